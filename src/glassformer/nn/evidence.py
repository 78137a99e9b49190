"""What n-gram counts add to the log-probability of each token, precomputed for fast lookup.

The smoothed probabilities of `NGramCounts` can be written as a sum, up to a constant per context:

    log P(token | context) = log P(token) + sum over the lengths of the context of
        log(1 + count / (distinct * P(token | context shortened by one id)))

Each term is the evidence of one length. A token that never followed a context has none, so the sum
is sparse: a table of all followers holds it, and looking up a context is reading a slice.

Shapes: n contexts, k lengths from 1 to the order, m followers of all contexts and lengths,
v vocabulary, f folds plus one: the last column counts everything, column i leaves out fold i.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.nn.counts import NGramCounts, search

SUPPORT_SCALE = 0.2  # brings the logarithms of counts to about the size of other features


@dataclass(frozen=True)
class Evidence:
    """The evidence for n contexts: one dense term, and a list of m others."""

    unigrams: Tensor  # 1 v or n v: log P(token)
    slot: Tensor  # m: context * k + length - 1
    token: Tensor  # m
    value: Tensor  # m
    support: Tensor  # n 2k: log(1 + total) and log(1 + distinct) for each length, scaled


class EvidenceTable:
    """The evidence for every context that was counted, with and without each fold."""

    def __init__(self, counts: NGramCounts) -> None:
        self.counts, self.order, self.vocab = counts, counts.order, counts.vocab
        self.device = counts.followers[0].device
        self.unigram_probs = counts.unigram_probs()  # f v
        tokens, values, supports, ends = [], [], [], []
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
        no_support = supports[0].new_zeros(1, *supports[0].shape[1:])
        self.support = torch.cat((*supports, no_support))  # contexts f 2
        zero, end = ends[0].new_zeros(1), ends[0].new_full((1,), offset)
        self.starts = torch.cat((zero, *ends, end))  # the followers of context i: starts[i : i + 2]

    def find(self, columns: Sequence[Tensor], without: Tensor | None = None) -> Evidence:
        """Look up the evidence for contexts; `without` (n) is a fold to leave out for each."""
        n, k = len(columns[0]), self.order
        fold = columns[0].new_full((n,), self.values.shape[1] - 1) if without is None else without
        found = zip(self.first_context, self.counts.contexts.find(columns), strict=True)
        context = torch.stack(
            [torch.where(index < 0, self.unknown, first + index) for first, index in found], dim=1
        )  # n k
        start = self.starts[context].flatten()
        size = self.starts[context + 1].flatten() - start
        slots = torch.arange(n * k, device=self.device)
        slot = torch.repeat_interleave(slots, size)  # m
        i = torch.arange(len(slot), device=self.device) + (start - size.cumsum(0) + size)[slot]
        folds = self.values.shape[1]
        value = self.values.view(-1)[i * folds + fold.repeat_interleave(k)[slot]]
        support = self.support[context, fold[:, None]].float() * SUPPORT_SCALE  # n k 2
        unigrams = self.unigram_probs[fold] if without is not None else self.unigram_probs[-1:]
        return Evidence(unigrams.log(), slot, self.tokens[i], value, support.flatten(1))
