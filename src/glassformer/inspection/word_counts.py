"""Word n-gram counts of a small corpus, for diagrams and lessons."""

import torch

from glassformer.nn.counts import NGramCounts, previous_ids

NOUN_COUNTS = {"directories": 2, "files": 3, "photos": 5}
SHOW_ME = [f"show me my {noun} please" for noun, count in NOUN_COUNTS.items() for _ in range(count)]


def count_words(lines: list[str], order: int) -> tuple[list[str], NGramCounts]:
    """The sorted words of the lines, and the counts of the next word after every `order` words."""
    words = sorted({word for line in lines for word in line.split()})
    counts = NGramCounts(len(words), order)
    texts = [torch.tensor([[words.index(word) for word in line.split()]]) for line in lines]
    contexts = [previous_ids(text[:, :-1], order) for text in texts]
    columns = [torch.cat(column) for column in zip(*contexts, strict=True)]
    counts.fit(columns, torch.cat([text[0, 1:] for text in texts]))
    return words, counts
