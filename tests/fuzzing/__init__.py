"""Parts of `fuzz.py`: valid folders, and ways to corrupt them."""
