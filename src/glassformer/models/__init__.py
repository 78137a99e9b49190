"""One architecture, one file: its frozen `Config`, then the network. See `registry.py`."""
