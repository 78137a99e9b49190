"""What n-gram counts add to the log-probability of each token, precomputed for fast lookup.

The smoothed probabilities of `NGramCounts` can be written as a sum, up to a constant per context:

    log P(token | context) = log P(token) + sum over the lengths of the context of
        log(1 + count / (distinct * P(token | context shortened by one id)))

Each term is the evidence of one length. It is 0 for a token that never followed the context, so the
sum is sparse: a table stores the terms of all followers, and looking up a context reads a slice of
it. Terms are of different kinds, by the length of the context and by how often the token followed
it, because a follower seen once is much less reliable than one seen twice.

Shapes: n contexts, k kinds, m followers of all contexts and lengths, v vocabulary, f folds + 1:
column i excludes fold i, and the last column excludes nothing.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.nn.counts import NGramCounts, check_tables, search

SUPPORT_SCALE = 0.2  # brings the logarithms of counts to about the scale of other features
MIN_COUNTS = (1, 2, 4)  # a token that followed a context once, 2 or 3 times, or more often


@dataclass(frozen=True)
class Evidence:
    """The evidence for n contexts: one dense term, and a list of m others."""

    unigrams: Tensor  # f v: log P(token)
    fold: Tensor  # n: the row of `unigrams` for each context
    slot: Tensor  # m: context * k + kind, where kind is (length - 1) * 3 + the class of the count
    token: Tensor  # m
    value: Tensor  # m
    support: Tensor  # n 2*order: log(1 + total) and log(1 + distinct) for each length, scaled


class EvidenceTable:
    """The evidence for every context that was counted, with and without each fold.

    It is immutable, so copies of a network share it.
    """

    def __init__(self, counts: NGramCounts) -> None:
        self.contexts = counts.contexts
        self.order = counts.order
        self.n_folds = counts.n_folds
        unigram_probs = counts.unigram_probs()
        self.unigrams = unigram_probs.log()  # f v
        tables = [*tabulate_lengths(counts, unigram_probs.T)]
        self.tokens = torch.cat([table.token for table in tables])  # m
        self.values = torch.cat([table.value for table in tables])  # m f
        self.classes = torch.cat([table.count_class for table in tables])  # m f
        sizes = torch.cat([table.size for table in tables])
        # the rows of context i are starts[i] to starts[i + 1]; the last one is for unseen contexts
        self.starts = F.pad(F.pad(sizes, (0, 1)).cumsum(0), (1, 0))
        self.support = F.pad(torch.cat([table.support for table in tables]), (0, 0, 0, 0, 0, 1))
        n_contexts = [len(table.size) for table in tables]
        *self.first_context, self.unknown = accumulate(n_contexts, initial=0)

    def find(self, columns: Sequence[Tensor], held_out_fold: Tensor | None = None) -> Evidence:
        """Look up the evidence for contexts; `held_out_fold` (n) is the fold to leave out."""
        n = len(columns[0])
        lengths = self.order
        device = self.starts.device
        fold = held_out_fold
        if fold is None:
            fold = columns[0].new_full((n,), self.values.shape[1] - 1)
        found = zip(self.first_context, self.contexts.find(columns), strict=True)
        context = torch.stack(
            [torch.where(index < 0, self.unknown, first + index) for first, index in found], dim=1
        )  # n lengths
        start = self.starts[context].flatten()
        size = self.starts[context + 1].flatten() - start
        rows = torch.arange(n * lengths, device=device)
        row = torch.repeat_interleave(rows, size)  # m
        i = torch.arange(len(row), device=device) + (start - size.cumsum(0) + size)[row]
        cell = i * self.values.shape[1] + fold.repeat_interleave(lengths)[row]
        slot = row * len(MIN_COUNTS) + self.classes.view(-1)[cell]
        support = self.support[context, fold[:, None]].float() * SUPPORT_SCALE  # n lengths 2
        value = self.values.view(-1)[cell]
        return Evidence(self.unigrams, fold, slot, self.tokens[i], value, support.flatten(1))

    def to(self, device: torch.device) -> "EvidenceTable":
        """This table, or a copy of it on another device."""
        if device == self.starts.device:
            return self
        moved = copy.copy(self)
        moved.contexts = copy.deepcopy(self.contexts).to(device)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(device))
        return moved

    def __deepcopy__(self, memo: dict[int, Any]) -> "EvidenceTable":
        return self


@dataclass(frozen=True)
class LengthTable:
    """The evidence of all contexts of one length: c contexts, m followers."""

    token: Tensor  # m
    value: Tensor  # m f
    count_class: Tensor  # m f: the index of the largest of MIN_COUNTS that the count reaches
    size: Tensor  # c: number of followers
    support: Tensor  # c f 2: log(1 + total) and log(1 + distinct)


def tabulate_lengths(counts: NGramCounts, unigram_probs: Tensor) -> Iterator[LengthTable]:
    """Yield the table of each length, shortest first; `unigram_probs` is v f."""
    vocab, device = counts.vocab, unigram_probs.device
    limits = torch.tensor(MIN_COUNTS[1:], device=device)
    parent_keys = torch.arange(vocab, device=device)
    parent_probs = unigram_probs
    for length in range(1, counts.order + 1):
        followers = counts.followers[length]
        keys = counts.contexts.keys[length - 1]
        context, token = followers // vocab, followers % vocab
        count = counts.counts_without_folds(length).float()  # m f
        zeros = torch.zeros(len(keys), count.shape[1], device=device)
        total = zeros.index_add(0, context, count)  # c f
        distinct = zeros.index_add(0, context, (count > 0).float())
        # the probability of the same token after the context shortened by one id
        shorter = (keys // vocab)[context] if length > 1 else torch.zeros_like(context)
        parent, is_found = search(parent_keys, shorter * vocab + token)
        check_tables(bool(is_found.all()), "a shorter n-gram is missing")
        prob = parent_probs[parent]  # m f
        weight = distinct[context] * prob
        yield LengthTable(
            token,
            torch.log1p(count / weight.clamp(min=1e-30)),
            torch.bucketize(count, limits, right=True).to(torch.uint8),
            torch.bincount(context, minlength=len(keys)),
            torch.stack((total.log1p(), distinct.log1p()), dim=-1).half(),
        )
        smoothed = (count + weight) / (total + distinct)[context].clamp(min=1)
        parent_keys = followers
        parent_probs = torch.where(weight > 0, smoothed, prob)
