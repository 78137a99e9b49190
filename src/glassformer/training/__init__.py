"""Learning: optimiser and schedule, the loop, the run folder."""
