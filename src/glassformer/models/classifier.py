"""P. Bloem's text classifier: bidirectional, post-norm blocks, then mean pooling.

Shapes: b batch, t tokens, d features, c classes.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import TRANSFORMER, ModelConfig, TextClassifier, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, post_norm
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.heads import POOLED, mean_pool
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Learned
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_000
    classes: int = 2
    context: int = 512  # max sequence length
    dim: int = 128
    depth: int = 6
    heads: int = 8
    dropout: float = 0.0


class Classifier(TextClassifier):
    Config: TypeAlias = Config
    traits = TRANSFORMER | {Trait.CLASSIFIER, Trait.ORDER_FREE}
    embeddings = ("token", "position")
    stacks = ("blocks",)
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "E[id] + P"), **POOLED}
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = Learned(c.context, c.dim)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, dropout=c.dropout, bias=False),
                FeedForward(c.dim, 4 * c.dim, activation=F.relu, dropout=c.dropout),
                residual=post_norm,
            )
            for _ in range(c.depth)
        )
        self.head = nn.Linear(c.dim, c.classes)
        init.normal(self)

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Class logits of each sequence: b t -> b c."""
        logits: Tensor = self.head(mean_pool(self.features(ids, keep), keep))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the last block: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep)
        x = tap("embedded", self.token(ids) + self.position(layout))  # b t d
        for block in self.blocks:
            x = block(x, layout)
        return x
