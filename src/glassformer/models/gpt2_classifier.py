"""A classifier on top of GPT-2, which can start from the weights of a language model.

Shapes: b batch, t tokens, d features, c classes.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.models import gpt2
from glassformer.models.network import TRANSFORMER, TextClassifier, Trait
from glassformer.nn.heads import POOLED, mean_pool
from glassformer.trace import Tap


@dataclass(frozen=True)
class Config(gpt2.Config):
    classes: int = 2


class GPT2Classifier(TextClassifier):
    Config: TypeAlias = Config
    traits = TRANSFORMER | {Trait.CLASSIFIER}
    embeddings = ("body.token", "body.position")
    stacks = ("body.blocks",)
    taps: ClassVar[dict[str, Tap]] = gpt2.GPT2.taps | POOLED
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.body = gpt2.GPT2(config)
        self.head = nn.Linear(config.dim, config.classes)

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Class logits of each sequence: b t -> b c."""
        logits: Tensor = self.head(mean_pool(self.features(ids, keep), keep))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        return self.body.features(ids, keep)
