"""P. Bloem's text generator: causal, post-norm blocks with ReLU.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, post_norm
from glassformer.nn.cache import Cache
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.positions import Learned
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 256  # max sequence length
    dim: int = 256
    depth: int = 12
    heads: int = 8
    dropout: float = 0.0


class Generator(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token", "position")
    stacks = ("blocks",)
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "E[id] + P")}
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = Learned(c.context, c.dim)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, mask=causal, dropout=c.dropout, bias=False),
                FeedForward(c.dim, 4 * c.dim, activation=F.relu, dropout=c.dropout),
                residual=post_norm,
            )
            for _ in range(c.depth)
        )
        self.head = nn.Linear(c.dim, c.vocab)
        init.normal(self)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the last block: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = tap("embedded", self.token(ids) + self.position(layout))  # b t d
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        return x

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        logits: Tensor = self.head(features)
        return logits

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
