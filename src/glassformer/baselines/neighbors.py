"""A hidden token by its neighbours: counting what stood between the token before and that after."""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from glassformer.models.network import MaskedLogits, ModelConfig, Network, Trait
from glassformer.nn.counts import NGramCounts
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 30_522


class Neighbors(Network):
    """Its weights are counts, which it learns in one go."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.MASKED_LM, Trait.FITTED, Trait.PADDED})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.counts = NGramCounts(config.vocab, 2)

    def fit(self, ids: Tensor) -> None:
        """Count what stands between what in texts, b t; -1 where there is none."""
        left, right = around(ids)
        there = ids.flatten() >= 0
        self.counts.fit([left[there], right[there]], ids.flatten()[there])

    def target_probs(self, ids: Tensor, masked_positions: Tensor, answers: Tensor) -> Tensor:
        """The chance of each answer where it is asked for, n: much faster than all chances."""
        columns = [column[masked_positions.flatten()] for column in around(ids)]
        return self.counts.target_probs(columns, answers)

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """The log-probability of each token in the place of each of ids: b t -> b t v."""
        layout = SequenceLayout.from_ids(ids, keep)
        known = ids if layout.keep is None else ids.masked_fill(~layout.keep, -1)
        return torch.unflatten(self.counts.probs(around(known)).log(), 0, ids.shape)

    @property
    def taps(self) -> dict[str, Tap]:
        return self.counts.order_taps

    def masked_logits(
        self,
        ids: Tensor,
        masked_positions: Tensor,
        segments: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> MaskedLogits:
        known = ids if keep is None else ids.masked_fill(~keep.bool(), -1)
        columns = [column[masked_positions.flatten()] for column in around(known)]
        return MaskedLogits(self.counts.probs(columns).log())


def around(ids: Tensor) -> list[Tensor]:
    """The ids before and after each: b t -> two columns of b * t; -1 where there is none."""
    none = torch.full_like(ids[:, :1], -1)
    return [torch.cat(x, dim=1).flatten() for x in ((none, ids[:, :-1]), (ids[:, 1:], none))]
