"""What `fuzz.py` is made of: healthy folders, and ways to damage them."""
