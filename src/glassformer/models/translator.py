"""The original Transformer, an encoder and a decoder (Vaswani et al., 2017).

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import DECODER, ModelConfig, Network, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, CrossBlock, post_norm
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import drop
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.positions import Sinusoidal
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 37_000
    source_vocab: int | None = None  # by default source and target share one vocabulary
    dim: int = 512
    depth: int = 6
    heads: int = 8
    hidden: int = 2048  # hidden features of the feed-forward layers
    dropout: float = 0.1


class Translator(Network):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.SEQ2SEQ}
    embeddings = ("token", "source_token")
    stacks = ("encoder", "decoder")
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "√d × E[id] + P")}
    forward_inputs = ("ids", "source", "source_keep")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.source_token = nn.Embedding(c.source_vocab, c.dim) if c.source_vocab else None
        self.position = Sinusoidal(c.dim)

        attention = partial(Attention, c.dim, c.heads, dropout=c.dropout)
        feedforward = partial(FeedForward, c.dim, c.hidden, activation=F.relu, dropout=c.dropout)
        block = partial(Block, c.dim, residual=post_norm)
        cross_block = partial(CrossBlock, c.dim, residual=post_norm)
        self.encoder = nn.ModuleList(block(attention(), feedforward()) for _ in range(c.depth))
        self.decoder = nn.ModuleList(
            cross_block(attention(mask=causal), attention(), feedforward()) for _ in range(c.depth)
        )
        init.xavier(self)

    @property
    def vocab(self) -> int:
        size: int = min(self.config.vocab, self.config.source_vocab or self.config.vocab)
        return size

    def forward(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        source_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Next-token logits, given the source: b t, b s -> b t v.

        With a cache, `source` and `source_keep` are passed with the first ids only.
        """
        source_cache = cache.source if cache else None
        if source_cache and source_cache.length:
            if source is not None:
                raise ValueError(
                    "the cache already holds a source: use a new cache for another source"
                )
            encoded, source_keep, length = None, source_cache.keep, source_cache.length
        elif source is not None:
            encoded, length = self.encode(source, source_keep, source_cache), source.shape[1]
        else:
            raise ValueError("the translator needs source ids, unless its cache holds them")

        layout = SequenceLayout.from_ids(ids, keep, cache)
        source_layout = SequenceLayout(ids.shape[1], length, keep=source_keep, device=ids.device)
        x = self.embed(self.token, ids, layout)
        for i, block in enumerate(self.decoder):
            self_cache = cache.layers[i] if cache else None
            cross_cache = source_cache.layers[i] if source_cache else None
            x = block(x, layout, encoded, source_layout, self_cache, cross_cache)
        return F.linear(x, self.token.weight)  # the head is tied to the embedding

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the encoder's last block: b s -> b s d."""
        return self.encode(ids, keep)

    def encode(
        self, source: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the encoder's last block: b s -> b s d.

        The cache stores the padding mask.
        """
        layout = SequenceLayout.from_ids(source, keep, cache)
        x = self.embed(self.source_token or self.token, source, layout)
        for block in self.encoder:
            x = block(x, layout)
        return x

    def embed(self, token: nn.Embedding, ids: Tensor, layout: SequenceLayout) -> Tensor:
        x: Tensor = token(ids) * self.config.dim**0.5
        x = tap("embedded", x + self.position(layout).to(x.dtype))
        return drop(x, self.config.dropout) if self.training else x  # b t d

    def cache(self, capacity: int) -> Cache:
        depth = len(self.decoder)
        return Cache(depth, capacity, source=Cache(depth, capacity=None))
