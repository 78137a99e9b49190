"""How often each word of a small corpus follows which: for pictures and for lessons."""

import torch

from glassformer.nn.counts import NGramCounts, previous_ids

FILES = {"directories": 2, "files": 3, "photos": 5}  # of ten
SHOW_ME = [f"show me my {word} please" for word, count in FILES.items() for _ in range(count)]


def count_words(lines: list[str], order: int) -> tuple[list[str], NGramCounts]:
    """The words in alphabetical order, and the counts of what followed `order` words."""
    words = sorted({word for line in lines for word in line.split()})
    counts = NGramCounts(len(words), order)
    texts = [torch.tensor([[words.index(word) for word in line.split()]]) for line in lines]
    pieces = [previous_ids(text[:, :-1], order) for text in texts]
    columns = [torch.cat(column) for column in zip(*pieces, strict=True)]
    counts.fit(columns, torch.cat([text[0, 1:] for text in texts]))
    return words, counts
