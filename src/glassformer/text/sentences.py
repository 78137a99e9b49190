"""Split text into sentences and words, without a model."""

import re

# after . ! ? before a space, after their Chinese forms, and before a line break
BOUNDARY = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？])(?=.)|(?=\n)")
IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}]+")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, whose concatenation is the text; none is blank.

    The space between two sentences belongs to the second one.
    """
    sentences, blank = list[str](), ""
    for part in BOUNDARY.split(text):
        if part.strip():
            sentences.append(blank + part)
            blank = ""
        else:
            blank += part
    if sentences:
        sentences[-1] += blank
    return sentences


def split_words(text: str) -> list[str]:
    """The words of a text in lower case; an ideograph is a word."""
    return WORD.findall(text.casefold())
