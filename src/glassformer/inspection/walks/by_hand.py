"""The Transformer of Khan's tutorial: 6 wide, one head of 4, one block a side."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.inspection.sheet import Table
from glassformer.inspection.walks.printed import EMBEDDING, IDS, OUT, WK, WORDS, WQ, WV
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, CrossBlock, post_norm
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.masks import causal
from glassformer.nn.positions import Sinusoidal
from glassformer.nn.span import Span
from glassformer.core.i18n import say

DIM, WIDTH, HIDDEN = 6, 4, 12
START, END = "<start>", "<end>"
VOCABULARY = [*IDS, START, END]
FEATURES = [f"f{i}" for i in range(DIM)]
PARTS = [f"e{i}" for i in range(WIDTH)]


class ByHand(nn.Module):
    """One block a side, one head, from the parts that train models.

    The encoder's attention has the tutorial's weights; the others, which it leaves out, are ours.
    """

    def __init__(self) -> None:
        super().__init__()
        attention = partial(Attention, DIM, 1, width=WIDTH, bias=False, out_bias=False)
        feedforward = partial(FeedForward, DIM, HIDDEN, activation=F.relu)
        self.token, self.position = nn.Embedding(len(VOCABULARY), DIM), Sinusoidal(DIM)
        self.encoder = Block(DIM, attention(), feedforward(), residual=post_norm)
        self.decoder = CrossBlock(
            DIM, attention(mask=causal), attention(), feedforward(), residual=post_norm
        )
        self.head = nn.Linear(DIM, len(VOCABULARY), bias=False)
        self.double()
        random = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for name, weights in self.named_parameters():
                if "norm" not in name:  # small numbers that can be copied by hand
                    drawn = torch.randn(weights.shape, generator=random, dtype=torch.float64)
                    weights.copy_((drawn * 0.5).round(decimals=2))
            mine: Any = self.encoder.attention
            for layer, given in zip(
                (mine.query, mine.key, mine.value, mine.out), (WQ, WK, WV, OUT), strict=True
            ):
                layer.weight.copy_(given.T)  # a layer holds its matrix transposed
            self.token.weight[[VOCABULARY.index(word) for word in WORDS]] = EMBEDDING

    def read(self, x: Tensor) -> Tensor:
        """The encoder on embedded words with their places: t d."""
        y: Tensor = self.encoder(x[None], Span(len(x), len(x)))
        return y

    def forward(self, source: Tensor, ids: Tensor) -> Tensor:
        read = self.read(self.token(source) + self.position(Span(len(source), len(source))))
        span, across = Span(len(ids), len(ids)), Span(len(ids), len(source))
        x = (self.token(ids) + self.position(span))[None]
        logits: Tensor = self.head(self.decoder(x, span, read, across))
        return logits[0]  # t v


def ours_of(part: nn.Module, *names: str) -> list[Table]:
    """The weights of some layers of a part, as matrices to multiply with on the right."""
    marks = {"query": "_q", "key": "_k", "value": "_v", "out": "_o", "widen": "₁", "narrow": "₂"}
    tables = []
    for name in names:
        layer: Any = part.get_submodule(name)
        title = say("{name}, ours", name=f"W{marks.get(name, '')}")
        tables.append(Table(title, as_it_is(layer.weight.T), kind="given", places=2))
        if layer.bias is not None:
            title = say("{name}, ours", name=f"b{marks.get(name, '')}")
            tables.append(Table(title, as_it_is(layer.bias[None]), kind="given", places=2))
    return tables


def as_it_is(weights: Tensor) -> Tensor:
    """A copy: what is shown stays when the network learns."""
    return weights.detach().clone()


def ids_of(words: list[str]) -> Tensor:
    return torch.tensor([VOCABULARY.index(word) for word in words])


def grid(value: Tensor) -> Tensor:
    """The one text, and the one head, of a value."""
    return value.flatten(0, -3)[0]
