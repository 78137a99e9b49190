"""The Sparse Transformer: attention factorized into two sparse patterns (Child et al., 2019).

A query does not attend to all earlier tokens, but to those near it and to a regular sample of the
others. The two halves belong to different heads or to alternating layers; two layers, or two heads
in successive layers, connect all tokens. See nn/sparse.py for the patterns and their kernels.
Differs from the paper in that positions are rotary: a learned vector for each of many thousand
positions would be seen too rarely.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

import math
from dataclasses import dataclass
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
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Rotary
from glassformer.nn.sparse import (
    local_chunk,
    local_stride,
    local_summaries,
    local_window,
    share_heads,
)


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 4096  # sequence length in training
    dim: int = 256
    depth: int = 4
    heads: int = 4
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    # strided: the last `stride` tokens, and every token a multiple of `stride` before
    # fixed: the chunk of `stride` tokens, and the last `summary` tokens of every chunk
    # window: the last `stride` tokens
    pattern: Literal["strided", "fixed", "window"] = "strided"
    stride: int | None = None  # by default about √context, for which the two halves cost the same
    summary: int = 8
    factorize: Literal["heads", "layers"] = "heads"  # what the two halves of a pattern belong to
    dropout: float = 0.0  # not on attention patterns, which are never computed as a whole

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunk_size > self.context:
            raise GlassError(
                f"stride must be at most the context, got {self.stride} and {self.context}"
            )
        if self.stride is not None and self.summary > self.stride:
            raise GlassError(
                f"summary must be at most the stride, got {self.summary} and {self.stride}"
            )
        if self.pattern != "window" and self.factorize == "heads" and self.heads % 2:
            raise GlassError(
                f"heads must be even to be shared by two patterns, got {self.heads}: use 2 or "
                "more, or factorize=layers"
            )

    @property
    def chunk_size(self) -> int:
        """The stride, by default the largest power of 2 that is at most √context."""
        return self.stride or 1 << int(math.log2(self.context) / 2)

    def masks(self) -> list[Mask]:
        """The mask of each layer."""
        size = self.chunk_size
        if self.pattern == "window":
            return [local_window(size)] * self.depth
        if self.pattern == "strided":
            halves = [local_window(size), local_stride(size)]
        else:
            halves = [local_chunk(size), local_summaries(size, min(self.summary, size))]
        if self.factorize == "heads":
            return [share_heads(halves, self.heads)] * self.depth
        return [halves[layer % 2] for layer in range(self.depth)]


class Sparse(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token",)
    stacks = ("blocks",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, mask=mask, position=Rotary(c.dim // c.heads)),
                FeedForward(c.dim, c.hidden or 4 * c.dim, activation=F.gelu, dropout=c.dropout),
            )
            for mask in c.masks()
        )
        self.norm = LayerNorm(c.dim)
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
        return F.linear(features, self.token.weight)  # the head is tied to the embedding

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
