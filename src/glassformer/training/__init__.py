"""Training: optimizers and schedules, the training loop, and the run folder."""
