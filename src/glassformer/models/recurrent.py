"""A recurrent language model.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import AUTOREGRESSIVE, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.cache import Cache, RecurrentState
from glassformer.nn.dropout import Dropout
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.recurrence import Recurrence


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 256  # sequence length in training; longer sequences work
    dim: int = 512
    depth: int = 2
    cell: Literal["lstm", "gru"] = "lstm"
    dropout: float = 0.0


class Recurrent(LanguageModel):
    Config: TypeAlias = Config
    traits = AUTOREGRESSIVE | {Trait.CAUSAL_LM}
    embeddings = ("token",)
    stacks = ("layers",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.layers = nn.ModuleList(Recurrence(c.dim, cell=c.cell) for _ in range(c.depth))
        self.dropout = Dropout(c.dropout)
        self.offset = nn.Linear(c.dim, c.dim)
        init.normal(self, std=c.dim**-0.5)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the last layer: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x: Tensor = self.dropout(self.token(ids))  # b t d
        for i, layer in enumerate(self.layers):
            x = self.dropout(layer(x, layout, cache.layers[i] if cache else None))
        return x

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        # the head is tied to the embedding
        return F.linear(self.offset(features), self.token.weight)

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.layers), capacity, layer_type=RecurrentState)
