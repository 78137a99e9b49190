"""Other libraries' checkpoints: what they call our settings and tensors, read both ways."""
