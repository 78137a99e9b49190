"""From a network to new tokens: sampling, decoding with the cache, beam search."""
