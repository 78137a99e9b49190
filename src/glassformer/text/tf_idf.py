"""Texts as tf-idf vectors: each word counts more, the fewer texts it occurs in."""

import math
from collections import Counter
from collections.abc import Sequence

from glassformer.text.sentences import split_words

Vector = dict[str, float]


def count_idf(words: Sequence[Counter[str]]) -> Vector:
    """The weight of each word, given the words of each text."""
    frequency = Counter(word for counts in words for word in counts)
    return {word: math.log((1 + len(words)) / (1 + df)) + 1 for word, df in frequency.items()}


def weigh(counts: Counter[str], idf: Vector) -> Vector:
    """The tf-idf vector of a text, with length 1; words without a weight are left out."""
    vector = {word: count * idf[word] for word, count in counts.items() if word in idf}
    norm = math.sqrt(sum(value * value for value in vector.values())) or 1.0
    return {word: value / norm for word, value in vector.items()}


def dot(first: Vector, second: Vector) -> float:
    return sum(value * second.get(word, 0.0) for word, value in first.items())


def compare_words(texts: Sequence[str], queries: Sequence[str]) -> list[list[float]]:
    """The cosine of the tf-idf vectors of each text and each query: texts x queries."""
    words = [Counter(split_words(text)) for text in texts]
    idf = count_idf(words)
    wanted = [weigh(Counter(split_words(query)), idf) for query in queries]
    return [[dot(query, vector) for query in wanted] for vector in (weigh(w, idf) for w in words)]
