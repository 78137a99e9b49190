"""The first stage of a summarizer: choose the sentences of a long document that the model reads.

Sentences are compared as tf-idf vectors, with each sentence as a document. With a title, those most
similar to it come first; without one, those closest to the mean of all sentences.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from glassformer.data.corpus import encode_batch
from glassformer.text.sentences import split_sentences, split_words
from glassformer.text.tf_idf import Vector, count_idf, dot, weigh
from glassformer.text.tokenizer import Tokenizer

MAX_RANK = 2**16 - 1  # sentences after it share a rank

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Extract:
    """What the model reads of a document."""

    ids: Ids
    tokens: int  # in the whole document
    sentences: int
    sentences_read: int

    @property
    def is_whole(self) -> bool:
        return len(self.ids) == self.tokens


def rank_sentences(sentences: Sequence[str], title: str | None = None) -> list[int]:
    """The rank of each sentence, 0 for the best."""
    words = [Counter(split_words(sentence)) for sentence in sentences]
    idf = count_idf(words)
    vectors = [weigh(counts, idf) for counts in words]
    center = Vector()
    for word, value in chain.from_iterable(vector.items() for vector in vectors):
        center[word] = center.get(word, 0.0) + value
    query = weigh(Counter(split_words(title)), idf) if title else {}
    keys = [(-dot(v, query), -dot(v, center), i) for i, v in enumerate(vectors)]
    ranks = [0] * len(keys)
    for rank, (_, _, i) in enumerate(sorted(keys)):
        ranks[i] = rank
    return ranks


def encode_sentences(
    tokenizer: Tokenizer, text: str, title: str | None = None
) -> tuple[list[int], list[int]]:
    """The ids of a document, and the rank of the sentence that each id is in."""
    sentences = split_sentences(text)
    ids = encode_batch(tokenizer, sentences) if sentences else []
    ranks = [min(rank, MAX_RANK) for rank in rank_sentences(sentences, title)]
    flat_ranks = [rank for row, rank in zip(ids, ranks, strict=True) for _ in row]
    return [id for row in ids for id in row], flat_ranks


def shorten(ids: Ids, ranks: Ids, limit: int) -> Ids:
    """The ids of the best sentences that fit into `limit` tokens together, in their order.

    If the best sentence alone is too long, it is cut.
    """
    if len(ids) <= limit:
        return ids
    lengths = np.bincount(ranks)
    left = limit
    chosen = list[int]()
    for rank, length in enumerate(lengths.tolist()):
        if 0 < length <= left:
            chosen.append(rank)
            left -= length
    if not chosen:
        is_read = ranks == ranks.min()
        is_read[np.flatnonzero(is_read)[limit:]] = False
    else:
        is_read = np.isin(ranks, chosen)
    read: Ids = ids[is_read]
    return read


def extract(tokenizer: Tokenizer, text: str, limit: int, title: str | None = None) -> Extract:
    """What fits into `limit` tokens of a document."""
    rows = encode_sentences(tokenizer, text, title)
    ids, ranks = (np.array(row, dtype=np.int64) for row in rows)
    read = shorten(ids, ranks, limit)
    read_ranks = shorten(ranks, ranks, limit)
    return Extract(read, len(ids), len(np.unique(ranks)), len(np.unique(read_ranks)))
