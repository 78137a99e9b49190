"""A classifier on top of BERT, which pools the first token.

Shapes: b batch, t tokens, c classes.
"""

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor, nn

from glassformer.models.bert import TRAITS, BertNetwork, BodyConfig
from glassformer.models.network import TextClassifier, Trait
from glassformer.nn import init
from glassformer.nn.heads import Pooler


@dataclass(frozen=True)
class Config(BodyConfig):
    classes: int = 2


class BertClassifier(TextClassifier, BertNetwork):
    Config: TypeAlias = Config
    traits = TRAITS | {Trait.CLASSIFIER, Trait.FIRST_TOKEN}
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.pooler = Pooler(config.dim)
        self.head = nn.Linear(config.dim, config.classes)
        init.normal(self)

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Class logits of each sequence, a text or a pair of texts: b t -> b c."""
        pooled = self.pooler(self.body(ids, segments, keep), keep)
        logits: Tensor = self.head(self.body.dropout(pooled))
        return logits
