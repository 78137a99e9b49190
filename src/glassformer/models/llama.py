"""Llama (Touvron et al., 2023): RMS norm, rotary positions, gated feed-forward, grouped queries.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import ACTIVATIONS, GatedFeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import RopeScaling, Rotary


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 32_000
    context: int = 2048  # sequence length in training
    dim: int = 512
    depth: int = 8
    heads: int = 8
    kv_heads: int | None = None  # each serves heads / kv_heads query heads; by default heads
    head_dim: int | None = None  # features of a head; by default dim / heads
    hidden: int = 1376  # hidden size of the feed-forward layers
    activation: Literal["silu", "gelu", "gelu_tanh", "relu"] = "silu"
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    rope_scaling: RopeScaling | None = None
    eps: float = 1e-5
    tied: bool = False  # whether the head is tied to the embedding
    attention_bias: bool = False
    feedforward_bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % (self.kv_heads or self.heads):
            raise GlassError(
                f"heads must be divisible by kv_heads, got {self.heads} and {self.kv_heads}"
            )


class Llama(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token",)
    stacks = ("blocks",)
    output_heads = ("head",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        norm = partial(RMSNorm, eps=c.eps)
        self.token = nn.Embedding(c.vocab, c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(
                    c.dim,
                    c.heads,
                    kv_heads=c.kv_heads,
                    head_dim=c.head_dim,
                    mask=causal,
                    position=Rotary(c.head_dim or c.dim // c.heads, c.rope_theta, c.rope_scaling),
                    dropout=c.dropout,
                    bias=c.attention_bias,
                    out_bias=c.attention_bias,
                ),
                GatedFeedForward(
                    c.dim,
                    c.hidden,
                    activation=ACTIVATIONS[c.activation],
                    dropout=c.dropout,
                    bias=c.feedforward_bias,
                ),
                norm=norm,
            )
            for _ in range(c.depth)
        )
        self.norm = norm(c.dim)
        self.head = None if c.tied else nn.Linear(c.dim, c.vocab, bias=False)
        init.normal(self)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = self.dropout(self.token(ids))  # b t d
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        return F.linear(features, (self.head or self.token).weight)

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
