"""A convolutional network that writes: each layer sees twice as far back (seeds 001, 003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import check_sizes
from glassformer.nn import init
from glassformer.nn.cache import Cache
from glassformer.nn.convolution import convolutions
from glassformer.nn.norms import LayerNorm
from glassformer.nn.span import Span


@dataclass(frozen=True)
class Config:
    vocab: int = 256
    context: int = 256  # the tokens that it learns from at once; it can read more
    dim: int = 256
    depth: int = 6
    width: int = 3  # tokens that a layer sees at once
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(self)


class Convolutional(nn.Module):
    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.layers = convolutions(c.dim, c.depth, c.width, causal=True, dropout=c.dropout)
        self.norm = LayerNorm(c.dim)
        init.normal(self)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Scores for the token after each of ids: b t -> b t v."""
        span = Span.of(ids, keep, cache)
        x = self.token(ids)  # b t d
        for i, layer in enumerate(self.layers):
            x = layer(x, span, cache.pasts[i] if cache else None)
        return F.linear(self.norm(x), self.token.weight)  # the head is the embedding

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.layers), capacity)
