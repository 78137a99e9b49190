"""Checkpoints of other libraries: mapping their settings and tensors to ours and back."""
