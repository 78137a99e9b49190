"""P. Bloem's text generator: causal, post-norm blocks with ReLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import check_sizes
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, post_norm
from glassformer.nn.cache import Cache
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.masks import causal
from glassformer.nn.positions import Learned
from glassformer.nn.span import Span
from glassformer.trace import tap


@dataclass(frozen=True)
class Config:
    vocab: int = 256
    context: int = 256  # the most tokens it can read at once
    dim: int = 256
    depth: int = 12
    heads: int = 8
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(self)


class Generator(nn.Module):
    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = c = config
        self.token, self.position = nn.Embedding(c.vocab, c.dim), Learned(c.context, c.dim)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, mask=causal, dropout=c.dropout, bias=False),
                FeedForward(c.dim, 4 * c.dim, activation=F.relu, dropout=c.dropout),
                residual=post_norm,
            )
            for _ in range(c.depth)
        )
        self.head = nn.Linear(c.dim, c.vocab)
        init.normal(self)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Scores for the token after each of ids: b t -> b t v."""
        span = Span.of(ids, keep, cache)
        x = tap("embedded", self.token(ids) + self.position(span))  # b t d
        for i, block in enumerate(self.blocks):
            x = block(x, span, cache.pasts[i] if cache else None)
        logits: Tensor = self.head(x)
        return logits

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
