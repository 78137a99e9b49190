"""The explorer: a local web page that looks inside a model.

`handlers.py` handles the requests of a page, `app.py` serves the page and its requests over HTTP,
and `export.py` writes a page with its responses to one file. The page itself is in `page/`.
"""
