"""A decoder with a choice of attention scores and position encodings, for comparing them.

Everything else is the same for every choice.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import AdditiveScore, Attention, PlainAttention, dot, scaled_dot
from glassformer.nn.block import Block, pre_norm
from glassformer.nn.cache import Cache
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Alibi, Learned, Position, Rotary, Sinusoidal
from glassformer.trace import Tap, tap

SINUSOID_SCALE = 0.03  # keeps sinusoids close in size to the initial embeddings


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 256  # sequence length in training; a limit only for learned positions
    dim: int = 256
    depth: int = 6
    heads: int = 8
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    score: Literal["scaled", "unscaled", "additive", "plain"] = "scaled"  # plain: no parameters
    position: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "learned"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score == "plain" and self.position in ("rotary", "alibi"):
            raise GlassError(
                f"score 'plain' does not support {self.position} positions: "
                "choose learned, sinusoidal or none"
            )


class Decoder(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token", "position")
    stacks = ("blocks",)
    residual = staticmethod(pre_norm)
    attention = Attention

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = self.build_position()
        self.position_scale = SINUSOID_SCALE if c.position == "sinusoidal" else 1.0
        self.blocks = nn.ModuleList(self.build_block() for _ in range(c.depth))
        self.norm = LayerNorm(c.dim)
        init.normal(self)

    @property
    def taps(self) -> dict[str, Tap]:
        if self.position is None:
            return {}
        scale = "" if self.position_scale == 1 else f"{self.position_scale:g} × "
        return {"embedded": Tap("b t d", f"E[id] + {scale}P")}

    def build_position(self) -> nn.Module | None:
        """The position encoding that is added to the embedding, if any."""
        c = self.config
        if c.position == "learned":
            return Learned(c.context, c.dim)
        return Sinusoidal(c.dim) if c.position == "sinusoidal" else None

    def build_block(self) -> Block:
        c = self.config
        hidden = self.config.hidden or 4 * self.config.dim
        feedforward = FeedForward(c.dim, hidden, activation=F.gelu, dropout=c.dropout)
        return Block(c.dim, self.build_attention(), feedforward, residual=self.residual)

    def build_attention(self) -> nn.Module:
        c = self.config
        head_dim = self.config.dim // self.config.heads
        if c.score == "plain":
            return PlainAttention(mask=causal)
        score = {"scaled": scaled_dot, "unscaled": dot}.get(c.score) or AdditiveScore(
            c.heads, head_dim
        )
        position: Position | None = None
        if c.position in ("rotary", "alibi"):
            position = Rotary(head_dim) if c.position == "rotary" else Alibi(c.heads)
        return self.attention(
            c.dim,
            c.heads,
            mask=causal,
            score=score,
            position=position,
            dropout=c.dropout,
        )

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = self.token(ids)  # b t d
        if self.position is not None:
            x = tap("embedded", x + self.position(layout).to(x.dtype) * self.position_scale)
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        return F.linear(features, self.token.weight)  # the head is tied to the embedding

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
