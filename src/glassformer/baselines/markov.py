"""Markov chains (n-gram models): predict the next token from counts.

Shapes: b batch, t tokens, n contexts, v vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.nn.counts import IntTables, NGramCounts, previous_ids
from glassformer.nn.layout import SequenceLayout, mark_padding
from glassformer.trace import Tap, tap

LARGE_VOCAB = 1000  # above it, the same four tokens rarely occur twice: the default order is lower
MAX_ELEMENTS = 2**25  # max size of a table n v in memory


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    order: int | None = None  # length of the context; by default 4, or 3 for a large vocab
    skips: int = 0  # if set: pair the last token with each of the `skips` tokens before it
    masked: bool = False  # whether a pair votes only if one token follows it in most cases


class Markov(Network):
    """An n-gram model; its weights are counts, fitted directly.

    Its context is the last `order` tokens. With `skips`, each pair of the last token and an
    earlier one votes for the tokens that followed such a pair at any distance, and the last token
    alone adds one more vote. With `masked`, a pair votes only if one token followed it in more
    than half of all cases.
    """

    Config: TypeAlias = Config
    traits = frozenset(
        {Trait.CAUSAL_LM, Trait.CAUSAL, Trait.CACHED, Trait.FITTED, Trait.PADDING_INVARIANT}
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        order = c.order or (4 if c.vocab <= LARGE_VOCAB else 3)
        self.counts = NGramCounts(c.vocab, 2 if c.skips else order)
        self.bigrams = NGramCounts(c.vocab, 1) if c.skips else None
        self.context_length = 1 + c.skips if c.skips else order

    @classmethod
    def from_counts(cls, counts: NGramCounts, order: int) -> "Markov":
        """Make a model of this order, at least 1, that shares the tables of these counts."""
        model = cls(Config(vocab=counts.vocab, order=order))
        for name in ("contexts.keys", "followers", "cumulative"):
            tables = model.counts.get_submodule(name)
            shared = counts.get_submodule(name)
            assert isinstance(tables, IntTables)
            assert isinstance(shared, IntTables)
            for i in range(len(tables)):
                tables[i] = shared[i]
        return model

    def fit(self, ids: Tensor) -> None:
        """Count the tokens that follow each context in sequences (b t), with -1 as padding."""
        columns = previous_ids(ids[:, :-1], self.context_length)
        targets = ids[:, 1:].flatten()
        if not (is_real := targets >= 0).all():
            columns = [column[is_real] for column in columns]
            targets = targets[is_real]
        if self.bigrams is not None:
            self.bigrams.fit(columns[:1], targets)
            last, *earlier = columns
            columns = [last.repeat(len(earlier)), torch.cat(earlier)]
            targets = targets.repeat(len(earlier))
        self.counts.fit(columns, targets)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Next-token log-probabilities: b t -> b t v."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        all_ids = ids[:, None, :, None]  # as b h t e, for the cache
        if cache is not None:
            all_ids, _ = cache.layers[0].extend(all_ids, all_ids)
        all_ids = all_ids[:, 0, :, 0]
        all_ids = mark_padding(all_ids, layout.keep)
        columns = [
            torch.unflatten(c, 0, all_ids.shape)[:, -layout.queries :]
            for c in previous_ids(all_ids, self.context_length)
        ]
        chunk_size = max(MAX_ELEMENTS // self.config.vocab, 1)
        chunks = [torch.split(c.flatten(), chunk_size) for c in columns]
        probs = [self.probs(chunk) for chunk in zip(*chunks, strict=True)]
        return torch.unflatten(torch.cat(probs).log(), 0, ids.shape)

    def probs(self, columns: Sequence[Tensor]) -> Tensor:
        """The probability of every token after each context (n v)."""
        if self.bigrams is None:
            return self.counts.probs(columns)
        votes = self.votes(columns)
        total = votes.sum(dim=1, keepdim=True) + 1
        return (votes + self.bigrams.probs(columns[:1])) / total

    def votes(self, columns: Sequence[Tensor]) -> Tensor:
        """The votes for each token (n v); a pair splits its vote among its followers."""
        last, *earlier = columns
        total = torch.zeros(len(last), self.config.vocab, device=last.device)
        for column in earlier:
            fractions = self.counts.fractions([last, column])
            if self.config.masked:
                fractions = fractions * (fractions > 0.5).any(dim=1, keepdim=True)
            total += fractions
        return tap("votes", total)

    def target_probs(self, ids: Tensor) -> Tensor:
        """The probability of each token in a sequence (t) except the first: t-1.

        Without skips this is much faster than computing the probabilities of all tokens.
        """
        columns = previous_ids(ids[None, :-1], self.context_length)
        if self.bigrams is None:
            return self.counts.target_probs(columns, ids[1:])
        chunk_size = max(MAX_ELEMENTS // self.config.vocab, 1)
        chunks = zip(*(torch.split(c, chunk_size) for c in columns), strict=True)
        pairs = zip(chunks, torch.split(ids[1:, None], chunk_size), strict=True)
        return torch.cat([self.probs(chunk).gather(1, targets)[:, 0] for chunk, targets in pairs])

    @property
    def taps(self) -> dict[str, Tap]:
        votes = {"votes": Tap("n v", "Σ fractions")} if self.bigrams else {}
        return {**(self.bigrams or self.counts).order_taps, **votes}

    def cache(self, capacity: int) -> Cache:
        return Cache(1, capacity)
