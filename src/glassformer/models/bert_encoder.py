"""BERT without a head, for text embeddings and as a starting point for other models.

Shapes: b batch, t tokens, d features.
"""

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from glassformer.models.bert import BertNetwork, BodyConfig
from glassformer.nn import init
from glassformer.nn.heads import Pooler


@dataclass(frozen=True)
class Config(BodyConfig):
    pooled: bool = True  # whether it has a pooler for the first token


class BertEncoder(BertNetwork):
    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.pooler = Pooler(config.dim) if config.pooled else None
        init.normal(self)

    def forward(
        self, ids: Tensor, *, segments: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Hidden states of the last block: b t -> b t d."""
        return self.features(ids, keep, segments)
