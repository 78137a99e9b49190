"""What n-gram counts add to the log-probability of each token, precomputed for fast lookup.

The smoothed probabilities of `NGramCounts` can be written as a sum, up to a constant per context:

    log P(token | context) = log P(token) + sum over the lengths of the context of
        log(1 + count / (distinct * P(token | context shortened by one id)))

Each term is the evidence of one length. A token that never followed a context has none, so the sum
is sparse: a table of all followers holds it, and looking up a context is reading a slice. Each term
belongs to a kind, its length and how often the token followed the context: something seen once is
much less reliable than something seen twice.

Shapes: n contexts, k kinds, m followers of all contexts and lengths, v vocabulary, f folds plus
one: the last column counts everything, column i leaves out fold i.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.nn.counts import NGramCounts, search

SUPPORT_SCALE = 0.2  # brings the logarithms of counts to about the size of other features
MIN_COUNTS = (1, 2, 4)  # a token that followed a context once, 2 or 3 times, or more often


@dataclass(frozen=True)
class Evidence:
    """The evidence for n contexts: one dense term, and a list of m others."""

    unigrams: Tensor  # 1 v or n v: log P(token)
    slot: Tensor  # m: context * k + kind, where kind is (length - 1) * 3 + the class of the count
    token: Tensor  # m
    value: Tensor  # m
    support: Tensor  # n 2*order: log(1 + total) and log(1 + distinct) for each length, scaled


class EvidenceTable:
    """The evidence for every context that was counted, with and without each fold."""

    def __init__(self, counts: NGramCounts) -> None:
        self.counts, self.order, self.vocab = counts, counts.order, counts.vocab
        self.device = counts.followers[0].device
        self.unigram_probs = counts.unigram_probs()  # f v
        tokens, values, classes, supports, ends = [], [], [], [], []
        parent_probs, offset = self.unigram_probs.T, 0
        parent_tokens = torch.arange(self.vocab, device=self.device)
        self.first_context = []  # the number of contexts of all shorter lengths
        for length in range(1, self.order + 1):
            followers, keys = counts.followers[length], counts.contexts.keys[length - 1]
            context, token = followers // self.vocab, followers % self.vocab
            count = counts.counts_without_folds(length).float()  # m f
            total = torch.zeros(len(keys), count.shape[1], device=self.device)
            distinct = total.index_add(0, context, (count > 0).float())
            total = total.index_add(0, context, count)
            # the same token after the context shortened by one id
            shorter = (keys // self.vocab)[context] if length > 1 else torch.zeros_like(context)
            parent, _ = search(parent_tokens, shorter * self.vocab + token)
            prob = parent_probs[parent]
            values.append(torch.log1p(count / (distinct[context] * prob).clamp(min=1e-30)))
            limits = torch.tensor(MIN_COUNTS[1:], device=self.device)
            classes.append(torch.bucketize(count, limits, right=True).to(torch.uint8))
            smoothed = count + distinct[context] * prob
            smoothed /= (total + distinct)[context].clamp(min=1)
            parent_probs = torch.where(distinct[context] > 0, smoothed, prob)
            parent_tokens = followers
            tokens.append(token)
            supports.append(torch.stack((total.log1p(), distinct.log1p()), dim=-1).half())
            ends.append(torch.bincount(context, minlength=len(keys)).cumsum(0) + offset)
            self.first_context.append(sum(map(len, supports[:-1])))
            offset += len(token)
        self.unknown = sum(map(len, supports))  # a context that never occurred: no followers
        self.tokens, self.values = torch.cat(tokens), torch.cat(values)  # m, m f
        self.classes = torch.cat(classes)  # m f: index of the largest min count that is reached
        no_support = supports[0].new_zeros(1, *supports[0].shape[1:])
        self.support = torch.cat((*supports, no_support))  # contexts f 2
        zero, end = ends[0].new_zeros(1), ends[0].new_full((1,), offset)
        self.starts = torch.cat((zero, *ends, end))  # the followers of context i: starts[i : i + 2]

    def find(self, columns: Sequence[Tensor], without: Tensor | None = None) -> Evidence:
        """Look up the evidence for contexts; `without` (n) is a fold to leave out for each."""
        n, lengths = len(columns[0]), self.order
        fold = columns[0].new_full((n,), self.values.shape[1] - 1) if without is None else without
        found = zip(self.first_context, self.counts.contexts.find(columns), strict=True)
        context = torch.stack(
            [torch.where(index < 0, self.unknown, first + index) for first, index in found], dim=1
        )  # n lengths
        start = self.starts[context].flatten()
        size = self.starts[context + 1].flatten() - start
        rows = torch.arange(n * lengths, device=self.device)
        row = torch.repeat_interleave(rows, size)  # m
        i = torch.arange(len(row), device=self.device) + (start - size.cumsum(0) + size)[row]
        cell = i * self.values.shape[1] + fold.repeat_interleave(lengths)[row]
        slot = row * len(MIN_COUNTS) + self.classes.view(-1)[cell]
        support = self.support[context, fold[:, None]].float() * SUPPORT_SCALE  # n lengths 2
        unigrams = self.unigram_probs[fold] if without is not None else self.unigram_probs[-1:]
        value = self.values.view(-1)[cell]
        return Evidence(unigrams.log(), slot, self.tokens[i], value, support.flatten(1))
