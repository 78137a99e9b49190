"""Baselines: models that are fitted in one pass by counting, to compare networks with."""
