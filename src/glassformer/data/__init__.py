"""From files to examples to batches."""
