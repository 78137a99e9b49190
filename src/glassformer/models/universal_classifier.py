"""A classifier with one block, applied to each token a variable number of times.

The Universal Transformer without a mask, then mean pooling; see models/universal.py.

Shapes: b batch, t tokens, d features, c classes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.models.network import TRANSFORMER, TextClassifier, Trait
from glassformer.models.universal import DepthConfig, build_block, build_loop, ponder_loss
from glassformer.nn import init
from glassformer.nn.dropout import Dropout
from glassformer.nn.heads import POOLED, mean_pool
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import full
from glassformer.trace import Tap


@dataclass(frozen=True)
class Config(DepthConfig):
    vocab: int = 50_000
    classes: int = 2
    context: int = 512  # max sequence length


class UniversalClassifier(TextClassifier):
    Config: TypeAlias = Config
    traits = TRANSFORMER | {Trait.CLASSIFIER}
    embeddings = ("token",)
    stacks = ("loop.blocks",)
    taps: ClassVar[dict[str, Tap]] = POOLED
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.dropout = Dropout(c.dropout)
        self.loop = build_loop(c, build_block(c, full))
        self.head = nn.Linear(c.dim, c.classes)
        init.xavier(self)

    @classmethod
    def suggest_sizes(cls, minutes: float, tokens: int) -> dict[str, Any]:
        return {"depth": 3}  # one step, the default of the task, would not be a loop

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Class logits of each sequence: b t -> b c."""
        logits: Tensor = self.head(mean_pool(self.features(ids, keep), keep))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """The weighted states of the steps: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep)
        x = self.dropout(self.token(ids) * self.config.dim**0.5)  # b t d
        features: Tensor = self.loop(x, layout, lambda x, _step: self.loop.blocks[0](x, layout))
        return features

    def extra_loss(self) -> Tensor | None:
        return ponder_loss(self.config, self.loop)
