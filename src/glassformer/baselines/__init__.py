"""Baselines: models that are fitted directly, without training steps, to compare networks with."""
