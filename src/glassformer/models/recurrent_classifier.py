"""A bidirectional recurrent classifier.

Shapes: b batch, t tokens, d features, c classes.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from torch import Tensor, nn

from glassformer.models.network import ModelConfig, TextClassifier, Trait
from glassformer.nn import init
from glassformer.nn.dropout import Dropout
from glassformer.nn.heads import POOLED, mean_pool
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.recurrence import Recurrence
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_000
    classes: int = 2
    context: int = 512  # sequences are truncated to it; longer ones would work
    dim: int = 128
    depth: int = 1
    cell: Literal["lstm", "gru"] = "lstm"
    dropout: float = 0.0


class RecurrentClassifier(TextClassifier):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.ENCODER, Trait.PADDING_INVARIANT})
    embeddings = ("token",)
    stacks = ("forth", "back")
    taps: ClassVar[dict[str, Tap]] = {"features": Tap("b t d", "forth + back"), **POOLED}
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        layers = [
            [Recurrence(c.dim, cell=c.cell, reverse=reverse) for _ in range(c.depth)]
            for reverse in (False, True)
        ]
        self.forth, self.back = map(nn.ModuleList, layers)
        self.dropout = Dropout(c.dropout)
        self.head = nn.Linear(c.dim, c.classes)
        init.normal(self)

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Class logits of each sequence: b t -> b c."""
        logits: Tensor = self.head(mean_pool(self.features(ids, keep), keep))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the last layer: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep)
        x = self.dropout(self.token(ids))  # b t d
        for forth, back in zip(self.forth, self.back, strict=True):
            x = self.dropout(forth(x, layout) + back(x, layout))
        return tap("features", x)
