"""SASRec: self-attention over the items that a user has rated, to predict the next one.

A causal Transformer whose tokens are items (Kang and McAuley, 2018). The task trains it with the
cross-entropy over a sample of the items instead of one random negative item per position (see
tasks/recommend_next.py).

Shapes: b users, t items of a history, d features, v items.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import TRANSFORMER, ModelConfig, Network, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Learned
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ModelConfig):
    items: int = 1000
    context: int = 50  # the most recent items that it reads
    dim: int = 64
    depth: int = 2
    heads: int = 2
    dropout: float = 0.2


class SASRec(Network):
    Config: TypeAlias = Config
    traits = TRANSFORMER | {Trait.NEXT_ITEM, Trait.CAUSAL}
    embeddings = ("item", "position")
    stacks = ("blocks",)
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "E[item] + P")}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.item = nn.Embedding(c.items, c.dim)
        self.position = Learned(c.context, c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, mask=causal, dropout=c.dropout),
                FeedForward(c.dim, 4 * c.dim, activation=F.relu, dropout=c.dropout),
            )
            for _ in range(c.depth)
        )
        self.norm = LayerNorm(c.dim)
        init.normal(self)

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Logits of the next item: b t -> b t v."""
        return F.linear(self.features(ids, keep), self.item.weight)

    def score_next(self, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits of the item after the last one of each history: b t -> b v."""
        return F.linear(select_last(self.features(ids, keep), keep), self.item.weight)

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep)
        x = self.dropout(tap("embedded", self.item(ids) + self.position(layout)))  # b t d
        for block in self.blocks:
            x = block(x, layout)
        features: Tensor = self.norm(x)
        return features

    def item_vectors(self) -> Tensor:
        """The features of every item: v d."""
        return self.item.weight

    @property
    def vocab(self) -> int:
        items: int = self.config.items
        return items


def select_last(x: Tensor, keep: Tensor) -> Tensor:
    """The vector at the last position that is not padding: b t d, b t -> b d."""
    last = keep.shape[1] - 1 - keep.flip(1).int().argmax(dim=1)
    return x[torch.arange(len(x), device=x.device), last]
