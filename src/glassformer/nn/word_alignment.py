"""Word alignment: which source word each word of a translation comes from.

IBM Model 1 without an empty word, with a prior that favors the diagonal (after Dyer et al., 2013).

Shapes: m pairs of a source word and a word of the same text's translation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.nn.counts import unique

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
    """The probability that the target word of each pair comes from its source word (m)."""
    return fit_alignment(pairs).probs


@dataclass(frozen=True)
class AlignedPairs:
    """The probabilities of alignments, and which pairs have the same two ids."""

    probs: Tensor  # m: that the target word comes from the source word
    row: Tensor  # m: index into the ids below
    source_id: Tensor  # of each distinct pair of ids, sorted by source and target
    target_id: Tensor


def fit_alignment(pairs: WordPairs) -> AlignedPairs:
    """Fit IBM Model 1 by expectation maximization; the probabilities add up to 1 for each target.

    Repeatedly, the probability of each alignment is computed from the probability that its target
    id translates its source id, and the other way around.
    """
    n_ids = max((int(ids.max()) + 1 for ids in (pairs.source_id, pairs.target_id) if len(ids)),
                default=1)  # fmt: skip
    n_words = int(pairs.target_word.max()) + 1 if len(pairs.target_word) else 0
    keys, row, _ = unique(pairs.source_id * n_ids + pairs.target_id)
    source_id, target_id = keys // n_ids, keys % n_ids
    translation_probs = torch.ones(len(keys))
    for _ in range(EM_ITERATIONS):
        probs = translation_probs[row] * pairs.diagonal_prior
        totals = torch.zeros(n_words).index_add(0, pairs.target_word, probs)
        probs = probs / totals[pairs.target_word]
        counts = torch.zeros(len(keys)).index_add(0, row, probs)
        translation_probs = counts / torch.zeros(n_ids).index_add(0, source_id, counts)[source_id]
    return AlignedPairs(probs, row, source_id, target_id)
