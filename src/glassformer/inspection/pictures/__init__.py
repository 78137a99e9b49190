"""The plots of `glass draw`: one file per family, all listed in `inspection/plots.py`."""
