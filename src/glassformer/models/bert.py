"""BERT: an encoder that guesses hidden tokens and sorts texts (Devlin et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from glassformer.config import check_sizes
from glassformer.errors import GlassError
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, post_norm
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.heads import MaskedHead, Pooler
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Alibi, Learned
from glassformer.nn.span import Span
from glassformer.trace import tap


@dataclass(frozen=True)
class Config:
    vocab: int = 30_522
    context: int = 512  # the most tokens it can read at once
    segments: int = 2
    dim: int = 768
    depth: int = 12
    heads: int = 12
    hidden: int | None = None  # inside feed-forward; four times dim unless given
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    position: Literal["learned", "alibi"] = "learned"  # or by distance, which is learnt much sooner
    eps: float = 1e-12
    masked: bool = True  # whether it has the head that guesses hidden tokens
    pooled: bool = True  # whether the first token is made ready to stand for the whole text
    classes: int = 2  # what it sorts a text into: whether two sentences follow, or labels; 0: none
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.classes and not self.pooled:
            raise GlassError("a BERT with classes must be pooled: the pooled text is what it sorts")


@dataclass(frozen=True)
class Reading:
    """All that BERT says of a text."""

    features: Tensor  # b t d
    tokens: Tensor | None  # b t v, scores for hidden tokens
    pooled: Tensor | None  # b d
    classes: Tensor | None  # b c, scores


class Bert(nn.Module):
    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = c = config
        norm, activation = partial(LayerNorm, eps=c.eps), ACTIVATIONS[c.activation]
        learned = c.position == "learned"
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = Learned(c.context, c.dim) if learned else None
        self.segment, self.norm = nn.Embedding(c.segments, c.dim), norm(c.dim)
        self.dropout = Dropout(c.dropout)
        hidden = c.hidden or 4 * c.dim
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(
                    c.dim,
                    c.heads,
                    position=None if learned else Alibi(c.heads, sided=True),
                    dropout=c.dropout,
                ),
                FeedForward(c.dim, hidden, activation=activation, dropout=c.dropout),
                residual=post_norm,
                norm=norm,
            )
            for _ in range(c.depth)
        )
        self.masked = (
            MaskedHead(c.dim, c.vocab, activation=activation, eps=c.eps) if c.masked else None
        )
        self.pooler = Pooler(c.dim) if c.pooled else None
        self.head = nn.Linear(c.dim, c.classes) if c.classes else None
        init.normal(self)

    def forward(
        self, ids: Tensor, *, segments: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Scores for hidden tokens, b t v, or else for classes, b c, or else features, b t d."""
        reading = self.read(ids, segments=segments, keep=keep)
        answers = (reading.tokens, reading.classes, reading.features)
        return next(answer for answer in answers if answer is not None)

    def read(
        self,
        ids: Tensor,
        *,
        segments: Tensor | None = None,
        keep: Tensor | None = None,
        asked: Tensor | None = None,
    ) -> Reading:
        """All of its results; segments, b t, tell the first sentence (0) from the second (1).

        Where `asked`, b t, is given, tokens are guessed only where it is true: n v.
        """
        span = Span.of(ids, keep)
        segments = torch.zeros_like(ids) if segments is None else segments
        x = self.token(ids) + self.segment(segments)  # b t d
        x = tap("embedded", x if self.position is None else x + self.position(span))
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x, span)
        hidden = x if asked is None else x[asked]
        tokens = self.masked(hidden, self.token.weight) if self.masked else None
        pooled = self.pooler(x, span.keep) if self.pooler else None
        classes = self.head(self.dropout(pooled)) if self.head else None
        return Reading(x, tokens, pooled, classes)
