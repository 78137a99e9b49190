"""A convolutional classifier with symmetric windows that widen with each layer.

Shapes: b batch, t tokens, d features, c classes.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.models.network import ModelConfig, TextClassifier, Trait
from glassformer.nn import init
from glassformer.nn.convolution import convolutions
from glassformer.nn.heads import POOLED, mean_pool
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_000
    classes: int = 2
    context: int = 512  # sequences are truncated to it; longer ones would work
    dim: int = 128
    depth: int = 4
    kernel_size: int = 3  # tokens in the window of a layer
    dropout: float = 0.0


class ConvolutionalClassifier(TextClassifier):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.ENCODER, Trait.PADDING_INVARIANT, Trait.COMPILABLE})
    embeddings = ("token",)
    stacks = ("layers",)
    taps: ClassVar[dict[str, Tap]] = POOLED
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.layers = convolutions(c.dim, c.depth, c.kernel_size, causal=False, dropout=c.dropout)
        self.norm = LayerNorm(c.dim)
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
        x = self.token(ids)  # b t d
        for layer in self.layers:
            x = layer(x, layout)
        features: Tensor = self.norm(x)
        return features
