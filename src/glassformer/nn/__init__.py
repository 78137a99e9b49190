"""The parts that models are made of. None of them knows a model or reads a config.

Letters for shapes, used in every comment of this package:

    b  texts in a batch         d  features of a token (dim)        v  tokens in the vocabulary
    t  tokens that ask          h  heads                            c  classes
    s  tokens that are read     e  features of a head (d / h)       f  features inside feed-forward
"""
