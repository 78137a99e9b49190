"""Word alignment with IBM Model 1: which source word each word of a translation comes from.

Shapes: m pairs of a source word and a word of the same text's translation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

EM_ITERATIONS = 5
DIAGONAL_STRENGTH = 4.0  # the prior of a pair is exp(-strength * distance from the diagonal)


@dataclass(frozen=True)
class WordPairs:
    """All pairs of a source word and a target word of the same text; every tensor has shape m.

    Words are numbered across all texts; a position is the index of a word in its own text.
    """

    source_word: Tensor
    target_word: Tensor
    source_id: Tensor
    target_id: Tensor
    source_position: Tensor
    target_position: Tensor
    text: Tensor  # index of the text
    diagonal_prior: Tensor  # higher if both words are at about the same relative position

    @classmethod
    def from_texts(cls, source: Tensor, target: Tensor) -> "WordPairs":
        """The pairs of sources and targets, each concatenated with -1 between texts."""
        n_texts = int((source < 0).sum()) + 1
        (s, s_text), (t, t_text) = (
            (ids[ids >= 0], (ids < 0).cumsum(0)[ids >= 0]) for ids in (source, target)
        )
        s_lengths, t_lengths = (text.bincount(minlength=n_texts) for text in (s_text, t_text))
        s_starts, t_starts = (lengths.cumsum(0) - lengths for lengths in (s_lengths, t_lengths))

        repeats = t_lengths[s_text]
        s_word = torch.repeat_interleave(torch.arange(len(s)), repeats)
        offset = torch.arange(len(s_word)) - (repeats.cumsum(0) - repeats)[s_word]
        t_word = offset + t_starts[s_text[s_word]]
        text = s_text[s_word]
        i, j = s_word - s_starts[text], t_word - t_starts[text]
        distance = ((i + 0.5) / s_lengths[text] - (j + 0.5) / t_lengths[text]).abs()
        prior = torch.exp(-DIAGONAL_STRENGTH * distance)
        return cls(s_word, t_word, s[s_word], t[t_word], i, j, text, prior)

    def swap(self) -> "WordPairs":
        """The same pairs with source and target exchanged."""
        return WordPairs(
            self.target_word,
            self.source_word,
            self.target_id,
            self.source_id,
            self.target_position,
            self.source_position,
            self.text,
            self.diagonal_prior,
        )


def alignment_probs(pairs: WordPairs) -> Tensor:
    """The probability that the target word of each pair comes from its source word (m).

    They add up to 1 for each target word. IBM Model 1 is fitted by expectation maximization.
    """
    n_ids = max((int(ids.max()) + 1 for ids in (pairs.source_id, pairs.target_id) if len(ids)),
                default=0)  # fmt: skip
    n_words = int(pairs.target_word.max()) + 1 if len(pairs.target_word) else 0
    distinct, pair = torch.unique(pairs.source_id * n_ids + pairs.target_id, return_inverse=True)
    source_id = torch.div(distinct, max(n_ids, 1), rounding_mode="floor")
    translation_probs = torch.ones(len(distinct))
    for _ in range(EM_ITERATIONS):
        probs = translation_probs[pair] * pairs.diagonal_prior
        probs = (
            probs / torch.zeros(n_words).index_add(0, pairs.target_word, probs)[pairs.target_word]
        )
        counts = torch.zeros(len(distinct)).index_add(0, pair, probs)
        translation_probs = counts / torch.zeros(n_ids).index_add(0, source_id, counts)[source_id]
    return probs
