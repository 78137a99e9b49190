"""One file per architecture: its frozen `Config`, then the network. `registry.py` lists them.

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary, c classes.
"""
