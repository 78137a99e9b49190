"""Predict masked tokens from counts of the tokens between a left and a right neighbor.

Shapes: b batch, t tokens, n masked tokens, v vocabulary.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from glassformer.models.network import MaskedLogits, ModelConfig, Network, Trait
from glassformer.nn.counts import NGramCounts
from glassformer.nn.layout import SequenceLayout, mark_padding
from glassformer.trace import Tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 30_522


class Neighbors(Network):
    """Predicts a masked token from the tokens on its left and right; fitted directly."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.MASKED_LM, Trait.FITTED, Trait.PADDING_INVARIANT})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.counts = NGramCounts(config.vocab, 2)

    def fit(self, ids: Tensor) -> None:
        """Count the tokens between each pair of neighbors in sequences (b t), padded with -1."""
        left, right = neighbor_ids(ids)
        is_real = ids.flatten() >= 0
        self.counts.fit([left[is_real], right[is_real]], ids.flatten()[is_real])

    def target_probs(self, ids: Tensor, masked_positions: Tensor, targets: Tensor) -> Tensor:
        """The probability of each target at the masked positions (n); faster than `forward`."""
        columns = [column[masked_positions.flatten()] for column in neighbor_ids(ids)]
        return self.counts.target_probs(columns, targets)

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Token log-probabilities at each position: b t -> b t v."""
        layout = SequenceLayout.from_ids(ids, keep)
        real_ids = mark_padding(ids, layout.keep)
        return torch.unflatten(self.counts.probs(neighbor_ids(real_ids)).log(), 0, ids.shape)

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
        real_ids = mark_padding(ids, keep)
        columns = [column[masked_positions.flatten()] for column in neighbor_ids(real_ids)]
        return MaskedLogits(self.counts.probs(columns).log())


def neighbor_ids(ids: Tensor) -> list[Tensor]:
    """The ids before and after each token: b t -> two columns of b * t; -1 at the ends."""
    padding = torch.full_like(ids[:, :1], -1)
    return [torch.cat(x, dim=1).flatten() for x in ((padding, ids[:, :-1]), (ids[:, 1:], padding))]
