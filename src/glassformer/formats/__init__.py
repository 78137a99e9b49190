"""Checkpoints of other libraries: the mapping of their settings and tensors to ours and back."""
