"""Markov chains: the next token by counting what followed the last ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.nn.counts import NGramCounts, previous_ids
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Tap, tap

MANY = 1000  # kinds of token, of which four in a row hardly ever occur twice
AT_ONCE = 2**25  # numbers in memory, at the most


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    order: int | None = None  # of the last tokens it looks at so many; 4, or 3 of many kinds
    skips: int = 0  # or else at pairs: the last token with each of so many before it
    masked: bool = False  # whether only pairs that are sure of the next token have a vote


class Markov(Network):
    """Its weights are counts, which it learns in one go.

    The order says how far back it looks. With skips it is of second order: every pair of the last
    token and one before it votes for what followed such a pair, wherever the two stood, and the
    last token alone has one vote more. A mask silences pairs that no token followed in more than
    half of all cases.
    """

    Config: TypeAlias = Config
    traits = frozenset({Trait.CAUSAL_LM, Trait.CAUSAL, Trait.CACHED, Trait.FITTED, Trait.PADDED})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        order = c.order or (4 if c.vocab <= MANY else 3)
        self.counts = NGramCounts(c.vocab, 2 if c.skips else order)
        self.alone = NGramCounts(c.vocab, 1) if c.skips else None
        self.far = 1 + c.skips if c.skips else order

    def fit(self, ids: Tensor) -> None:
        """Count what follows what in texts, b t; -1 where there is none."""
        columns, answers = previous_ids(ids[:, :-1], self.far), ids[:, 1:].flatten()
        if not (there := answers >= 0).all():
            columns, answers = [column[there] for column in columns], answers[there]
        if self.alone is not None:
            self.alone.fit(columns[:1], answers)
            last, *earlier = columns
            columns = [last.repeat(len(earlier)), torch.cat(earlier)]
            answers = answers.repeat(len(earlier))
        self.counts.fit(columns, answers)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The logarithm of the chance of each token after each of ids: b t -> b t v."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        said = ids[:, None, :, None]
        if cache is not None:
            said, _ = cache.layers[0].extend(said, said)
        said = said[:, 0, :, 0]
        said = said if layout.keep is None else said.masked_fill(~layout.keep, -1)
        columns = [
            torch.unflatten(c, 0, said.shape)[:, -layout.queries :]
            for c in previous_ids(said, self.far)
        ]
        most = max(AT_ONCE // self.config.vocab, 1)
        pieces = [torch.split(c.flatten(), most) for c in columns]
        probs = [self.probs(piece) for piece in zip(*pieces, strict=True)]
        return torch.unflatten(torch.cat(probs).log(), 0, ids.shape)

    def probs(self, columns: Sequence[Tensor]) -> Tensor:
        """The chance of every token, n v."""
        if self.alone is None:
            return self.counts.probs(columns)
        votes = self.votes(columns)
        total = votes.sum(dim=1, keepdim=True) + 1
        return (votes + self.alone.probs(columns[:1])) / total

    def votes(self, columns: Sequence[Tensor]) -> Tensor:
        """The votes for each token, n v: that of a pair is shared by all that followed it."""
        last, *earlier = columns
        total = torch.zeros(len(last), self.config.vocab, device=last.device)
        for one in earlier:
            shares = self.counts.shares([last, one])
            if self.config.masked:
                shares = shares * (shares > 0.5).any(dim=1, keepdim=True)
            total += shares
        return tap("votes", total)

    def target_probs(self, ids: Tensor) -> Tensor:
        """The chance of each token of a text but the first, t-1: much faster than all chances."""
        if self.alone is not None:
            most = max(AT_ONCE // self.config.vocab, 1)
            columns = zip(
                *(torch.split(c, most) for c in previous_ids(ids[None, :-1], self.far)), strict=True
            )
            answers = torch.split(ids[1:, None], most)
            pairs = zip(columns, answers, strict=True)
            return torch.cat([self.probs(c).gather(1, a)[:, 0] for c, a in pairs])
        return self.counts.target_probs(previous_ids(ids[None, :-1], self.far), ids[1:])

    @property
    def taps(self) -> dict[str, Tap]:
        votes = {"votes": Tap("n v", "Σ shares")} if self.alone else {}
        return {**(self.alone or self.counts).order_taps, **votes}

    def cache(self, capacity: int) -> Cache:
        return Cache(1, capacity)
