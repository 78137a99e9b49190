"""A classifier that reads as GPT-2 does, so that what a generator learnt can be built upon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor, nn

from glassformer.models import gpt2
from glassformer.nn.heads import mean_pool


@dataclass(frozen=True)
class Config(gpt2.Config):
    classes: int = 2


class GPT2Classifier(gpt2.GPT2):
    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.dim, config.classes)

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Scores for the classes of each text: b t -> b c."""
        logits: Tensor = self.head(mean_pool(self.read(ids, keep), keep))
        return logits
