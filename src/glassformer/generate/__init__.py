"""Text generation: sampling, decoding with the cache, beam search."""
