"""Read files into examples, store them as ids, and draw batches."""
