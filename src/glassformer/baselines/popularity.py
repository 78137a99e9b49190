"""Predict the next item of a user from how often each item was rated, whatever the history.

Shapes: b users, t items of a history, v items.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.layout import SequenceLayout


@dataclass(frozen=True)
class Config(ModelConfig):
    items: int = 1000


class Popularity(Network):
    """The logarithm of (ratings of an item + 1) / (all ratings + items)."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.NEXT_ITEM, Trait.FITTED})
    counts: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.register_buffer("counts", torch.zeros(config.items))

    def fit(self, ids: Tensor) -> None:
        """Count the items in histories: any shape, padded with -1."""
        items: int = self.config.items
        self.counts = torch.bincount(ids[ids >= 0], minlength=items).to(self.counts)

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Logits of the next item: b t -> b t v."""
        SequenceLayout.from_ids(ids, keep)  # checks the shapes
        return self.log_probs().expand(*ids.shape, -1)

    def score_next(self, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits of the item after the last one of each history: b t -> b v."""
        return self.log_probs().repeat(len(ids), 1)

    def log_probs(self) -> Tensor:
        """The logarithm of each item's share of the ratings: v."""
        return ((self.counts + 1) / (self.counts.sum() + len(self.counts))).log()

    @property
    def vocab(self) -> int:
        items: int = self.config.items
        return items
