"""A recurrent network that writes: its memory of a text has a fixed size (seeds 001, 003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import check_sizes
from glassformer.nn import init
from glassformer.nn.cache import Cache, Carry
from glassformer.nn.dropout import Dropout
from glassformer.nn.recurrence import Recurrence
from glassformer.nn.span import Span


@dataclass(frozen=True)
class Config:
    vocab: int = 256
    context: int = 256  # the tokens that it learns from at once; it can read more
    dim: int = 512
    depth: int = 2
    cell: Literal["lstm", "gru"] = "lstm"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(self)


class Recurrent(nn.Module):
    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.layers = nn.ModuleList(Recurrence(c.dim, cell=c.cell) for _ in range(c.depth))
        self.dropout, self.offset = Dropout(c.dropout), nn.Linear(c.dim, c.dim)
        init.normal(self, std=c.dim**-0.5)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Scores for the token after each of ids: b t -> b t v."""
        span = Span.of(ids, keep, cache)
        x = self.dropout(self.token(ids))  # b t d
        for i, layer in enumerate(self.layers):
            x = self.dropout(layer(x, span, cache.pasts[i] if cache else None))
        return F.linear(self.offset(x), self.token.weight)  # the head is the embedding

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.layers), capacity, past=Carry)
