"""The explorer: a local web page that looks inside a model.

`questions.py` answers what a page asks, `app.py` serves answers and the page over HTTP, and
`export.py` writes a page with its answers to one file. The page itself is in `page/`.
"""
