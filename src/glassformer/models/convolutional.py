"""A convolutional language model: the receptive field doubles with each layer.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.cache import Cache
from glassformer.nn.convolution import convolutions
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 256  # sequence length in training; longer sequences work
    dim: int = 256
    depth: int = 6
    kernel_size: int = 3  # tokens in the window of a layer
    dropout: float = 0.0


class Convolutional(LanguageModel):
    Config: TypeAlias = Config
    traits = frozenset(
        {
            Trait.CAUSAL_LM,
            Trait.CAUSAL,
            Trait.CACHED,
            Trait.ENCODER,
            Trait.PADDING_INVARIANT,
            Trait.COMPILABLE,
        }
    )
    embeddings = ("token",)
    stacks = ("layers",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.layers = convolutions(c.dim, c.depth, c.kernel_size, causal=True, dropout=c.dropout)
        self.norm = LayerNorm(c.dim)
        init.normal(self)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the last layer: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = self.token(ids)  # b t d
        for i, layer in enumerate(self.layers):
            x = layer(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        return F.linear(features, self.token.weight)  # the head is tied to the embedding

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.layers), capacity)
