"""A translator whose encoder and decoder are one block each, applied as often as a token needs.

The Universal Transformer with an encoder and a decoder; see models/universal.py.

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.universal import (
    DepthConfig,
    build_attention,
    build_block,
    build_feedforward,
    build_loop,
    ponder_loss,
)
from glassformer.nn import init
from glassformer.nn.block import CrossBlock, post_norm
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import drop
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal, full


@dataclass(frozen=True)
class Config(DepthConfig):
    vocab: int = 8_000
    source_vocab: int | None = None  # by default source and target share one vocabulary


class UniversalTranslator(EncoderDecoder):
    Config: TypeAlias = Config
    stacks = ("encoder_loop.blocks", "decoder_loop.blocks")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.source_token = nn.Embedding(c.source_vocab, c.dim) if c.source_vocab else None
        self.encoder_loop = build_loop(c, build_block(c, full))
        block = CrossBlock(
            c.dim,
            build_attention(c, causal),
            build_attention(c, full),
            build_feedforward(c),
            residual=post_norm,
        )
        self.decoder_loop = build_loop(c, block)
        init.xavier(self)

    @classmethod
    def suggest_sizes(cls, minutes: float, tokens: int) -> dict[str, Any]:
        return {"depth": 4}  # two steps, the default of the task, would hardly be a loop

    def run_encoder(self, x: Tensor, layout: SequenceLayout) -> Tensor:
        block = self.encoder_loop.blocks[0]
        encoded: Tensor = self.encoder_loop(x, layout, lambda x, _step: block(x, layout))
        return encoded

    def run_decoder(
        self,
        x: Tensor,
        layout: SequenceLayout,
        encoded: Tensor | None,
        source_layout: SequenceLayout,
        cache: Cache | None,
    ) -> Tensor:
        def apply(x: Tensor, step: int) -> Tensor:
            caches = self.layer_caches(cache, step)
            y: Tensor = self.decoder_loop.blocks[0](x, layout, encoded, source_layout, *caches)
            return y

        features: Tensor = self.decoder_loop(x, layout, apply)
        return features

    def embed(self, token: nn.Embedding, ids: Tensor, layout: SequenceLayout) -> Tensor:
        x: Tensor = token(ids) * self.config.dim**0.5
        return drop(x, self.config.dropout) if self.training else x  # b t d

    def unembed(self, features: Tensor) -> Tensor:
        """The network's own logits: b t d -> b t v. The head is tied to the embedding."""
        return F.linear(features, self.token.weight)

    def extra_loss(self) -> Tensor | None:
        return ponder_loss(self.config, self.encoder_loop, self.decoder_loop)
