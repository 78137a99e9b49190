"""The layers that models are built from. No layer depends on a model or reads a config.

Shape letters in this package:

    b  sequences in a batch     d  features of a token (dim)        v  tokens in the vocabulary
    t  query tokens             h  heads (g: key/value heads)       c  classes
    s  key tokens               e  features of a head (d / h)       f  hidden feed-forward features
"""
