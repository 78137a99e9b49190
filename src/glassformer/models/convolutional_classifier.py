"""A convolutional network that sorts: windows that widen on both sides (seeds 001, 003)."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.models.network import ModelConfig, Network, Trait
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
    context: int = 512  # the most tokens that it is given; it could read more
    dim: int = 128
    depth: int = 4
    kernel_size: int = 3  # tokens that a layer sees at once
    dropout: float = 0.0


class ConvolutionalClassifier(Network):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.ENCODER, Trait.PADDED, Trait.COMPILED})
    embeddings = ("token",)
    stacks = ("layers",)
    taps: ClassVar[dict[str, Tap]] = POOLED
    heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.layers = convolutions(c.dim, c.depth, c.kernel_size, causal=False, dropout=c.dropout)
        self.norm, self.head = LayerNorm(c.dim), nn.Linear(c.dim, c.classes)
        init.normal(self)

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Scores for the classes of each text: b t -> b c."""
        logits: Tensor = self.head(mean_pool(self.features(ids, keep), keep))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """What the last layer knows of each token: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep)
        x = self.token(ids)  # b t d
        for layer in self.layers:
            x = layer(x, layout)
        features: Tensor = self.norm(x)
        return features
