"""An encoder and a decoder with the design choices of `speedrun`, for translation on one CPU.

Rotary positions, normalized queries and keys, squared ReLU, linear layers without biases, and
output layers that start at zero, so that every block starts as the identity.

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.network import ModelConfig
from glassformer.models.speedrun import zero_output_layers
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, CrossBlock
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import FeedForward, relu_squared
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Rotary

HEAD_DIM, HEADS_AT_ONE_MINUTE = 64, 2.0
TOKENS_PER_MINUTE = 300_000  # of sources and targets, roughly, in training on a laptop


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 4096
    source_vocab: int | None = None  # by default source and target share one vocabulary
    dim: int = 256
    depth: int = 2  # blocks of the encoder, and of the decoder
    heads: int = 4
    hidden: int | None = None  # hidden features of the feed-forward layers; by default 3 * dim
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    dropout: float = 0.1


class SpeedrunTranslator(EncoderDecoder):
    Config: TypeAlias = Config
    output_heads = ("head",)
    train_settings: ClassVar[Mapping[str, Any]] = {
        "batch_tokens": 4096,
        "optimizer": "muon",
        "schedule": "linear",
        "warmup": 0.02,
        "min_lr_ratio": 0.02,
        "label_smoothing": 0.1,
    }

    @classmethod
    def suggest_sizes(cls, minutes: float, tokens: int) -> dict[str, Any]:
        """Wider for more time; more dropout if the data is likely to be read many times."""
        heads = min(max(round(HEADS_AT_ONE_MINUTE * minutes**0.2), 1), 8)
        epochs = minutes * TOKENS_PER_MINUTE / max(tokens, 1)
        return {
            "dim": HEAD_DIM * heads,
            "heads": heads,
            "hidden": None,  # 3 * dim
            "depth": 2 if minutes < 60 else 3,
            "dropout": 0.1 if epochs < 5 else 0.2 if epochs < 50 else 0.3,
        }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.source_token = nn.Embedding(c.source_vocab, c.dim) if c.source_vocab else None
        self.embedding_norm = LayerNorm(c.dim)
        self.dropout = Dropout(c.dropout)

        attention = partial(
            Attention, c.dim, c.heads, norm=partial(LayerNorm, axes="b h t"), dropout=c.dropout,
            bias=False, out_bias=False,
        )  # fmt: skip
        rotary = partial(Rotary, c.dim // c.heads, c.rope_theta)
        feedforward = partial(
            FeedForward, c.dim, c.hidden or 3 * c.dim, activation=relu_squared, dropout=c.dropout,
            bias=False,
        )  # fmt: skip
        self.encoder = nn.ModuleList(
            Block(c.dim, attention(position=rotary()), feedforward()) for _ in range(c.depth)
        )
        self.decoder = nn.ModuleList(
            CrossBlock(c.dim, attention(mask=causal, position=rotary()), attention(), feedforward())
            for _ in range(c.depth)
        )
        self.source_norm = LayerNorm(c.dim)
        self.norm = LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.vocab, bias=False)
        zero_output_layers(self)

    def embed(self, token: nn.Embedding, ids: Tensor, layout: SequenceLayout) -> Tensor:
        x: Tensor = self.dropout(self.embedding_norm(token(ids)))
        return x

    def encode(
        self, source: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Normalized hidden states of the encoder's last block: b s -> b s d."""
        encoded: Tensor = self.source_norm(super().encode(source, keep, cache))
        return encoded

    def normalize(self, x: Tensor) -> Tensor:
        normalized: Tensor = self.norm(x)
        return normalized

    def unembed(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits
