"""A hidden token by its neighbours: counting what stood between the token before and that after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from glassformer.config import check_sizes
from glassformer.nn.counts import Counts
from glassformer.nn.span import Span


@dataclass(frozen=True)
class Config:
    vocab: int = 30_522

    def __post_init__(self) -> None:
        check_sizes(self)


class Neighbours(nn.Module):
    """Its weights are counts, which it learns in one go."""

    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.counts = Counts(config.vocab, 2)

    def learn(self, ids: Tensor) -> None:
        """Count what stands between what in texts, b t; -1 where there is none."""
        left, right = around(ids)
        there = ids.flatten() >= 0
        self.counts.learn([left[there], right[there]], ids.flatten()[there])

    def likelihood(self, ids: Tensor, asked: Tensor, answers: Tensor) -> Tensor:
        """The chance of each answer where it is asked for, n: much faster than all chances."""
        columns = [column[asked.flatten()] for column in around(ids)]
        return self.counts.likelihood(columns, answers)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, asked: Tensor | None = None
    ) -> Tensor:
        """The logarithm of the chance of each token in the place of each of ids: b t -> b t v.

        Where `asked`, b t, is given, only in the places where it is true: n v.
        """
        span = Span.of(ids, keep)
        known = ids if span.keep is None else ids.masked_fill(~span.keep, -1)
        if asked is not None:
            return self.counts.chances([c[asked.flatten()] for c in around(known)]).log()
        return torch.unflatten(self.counts.chances(around(known)).log(), 0, ids.shape)


def around(ids: Tensor) -> list[Tensor]:
    """The ids before and after each: b t -> two columns of b * t; -1 where there is none."""
    none = torch.full_like(ids[:, :1], -1)
    return [torch.cat(x, dim=1).flatten() for x in ((none, ids[:, :-1]), (ids[:, 1:], none))]
