"""GPT-2: causal, pre-norm blocks that predict the next token (Radford et al., 2019).

`layout` holds the positions and the padding of the tokens (nn/layout.py). `tap` names a value, so
that a trace can record or edit it, and returns it, unchanged unless edited (trace.py).

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Learned
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_257
    context: int = 1024  # max sequence length
    dim: int = 768
    depth: int = 12
    heads: int = 12
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    activation: Literal["gelu_tanh", "gelu", "relu", "silu"] = "gelu_tanh"
    eps: float = 1e-5
    dropout: float = 0.1


class GPT2(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token", "position")
    stacks = ("blocks",)
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "E[id] + P")}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        norm = partial(LayerNorm, eps=c.eps)
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = Learned(c.context, c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, mask=causal, dropout=c.dropout),
                FeedForward(
                    c.dim,
                    c.hidden or 4 * c.dim,
                    activation=ACTIVATIONS[c.activation],
                    dropout=c.dropout,
                ),
                norm=norm,
            )
            for _ in range(c.depth)
        )
        self.norm = norm(c.dim)
        init.normal(self)
        # smaller weights for layers that add to the residual stream, so that its variance does not
        # grow with the depth
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "feedforward.down.weight")):
                nn.init.normal_(weight, std=0.02 * (2 * c.depth) ** -0.5)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = tap("embedded", self.token(ids) + self.position(layout))  # b t d
        x = self.dropout(x)
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        return F.linear(features, self.token.weight)  # the head is tied to the embedding

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
