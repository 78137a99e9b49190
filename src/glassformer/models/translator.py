"""The original Transformer, an encoder and a decoder (Vaswani et al., 2017).

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.network import ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, CrossBlock, post_norm
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
    hidden: int = 2048  # hidden size of the feed-forward layers
    dropout: float = 0.1


class Translator(EncoderDecoder):
    Config: TypeAlias = Config
    traits = EncoderDecoder.traits | {Trait.SOURCE_ORDER_FREE}
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "√d × E[id] + P")}

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

    def embed(self, token: nn.Embedding, ids: Tensor, layout: SequenceLayout) -> Tensor:
        x: Tensor = token(ids) * self.config.dim**0.5
        x = tap("embedded", x + self.position(layout).to(x.dtype))
        return drop(x, self.config.dropout) if self.training else x  # b t d

    def unembed(self, features: Tensor) -> Tensor:
        """The network's own logits: b t d -> b t v. The head is tied to the embedding."""
        return F.linear(features, self.token.weight)
