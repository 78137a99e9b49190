"""A decoder whose parts can be exchanged: how tokens are compared, and how places are told.

Everything else stays as it is, so that what differs between two of them is that part alone.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.models.network import DECODER, ModelConfig, Network, Trait
from glassformer.nn import init
from glassformer.nn.attention import AdditiveScore, Attention, PlainAttention, dot, scaled_dot
from glassformer.nn.block import Block
from glassformer.nn.cache import Cache
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Alibi, Learned, Position, Rotary, Sinusoidal
from glassformer.trace import Tap, tap

WAVES = 0.03  # the size of waves, beside embeddings that start no larger


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 256  # the tokens that it learns from at once; only learned places end there
    dim: int = 256
    depth: int = 6
    heads: int = 8
    score: Literal["scaled", "unscaled", "additive", "plain"] = "scaled"  # plain: no parameters
    position: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "learned"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score == "plain" and self.position in ("rotary", "alibi"):
            raise GlassError(f"plain attention has no queries for {self.position} positions")


class Decoder(Network):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token", "position")
    stacks = ("blocks",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = self.added()
        self.size = WAVES if c.position == "sinusoidal" else 1.0
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                self.attention(),
                FeedForward(c.dim, 4 * c.dim, activation=F.gelu, dropout=c.dropout),
            )
            for _ in range(c.depth)
        )
        self.norm = LayerNorm(c.dim)
        init.normal(self)

    @property
    def taps(self) -> dict[str, Tap]:
        if self.position is None:
            return {}
        size = "" if self.size == 1 else f"{self.size:g} × "
        return {"embedded": Tap("b t d", f"E[id] + {size}P")}

    def added(self) -> nn.Module | None:
        """Places that are added to the embedding."""
        c = self.config
        if c.position == "learned":
            return Learned(c.context, c.dim)
        return Sinusoidal(c.dim) if c.position == "sinusoidal" else None

    def attention(self) -> nn.Module:
        c, head_dim = self.config, self.config.dim // self.config.heads
        if c.score == "plain":
            return PlainAttention(mask=causal)
        score = {"scaled": scaled_dot, "unscaled": dot}.get(c.score) or AdditiveScore(
            c.heads, head_dim
        )
        inside: Position | None = None
        if c.position in ("rotary", "alibi"):
            inside = Rotary(head_dim) if c.position == "rotary" else Alibi(c.heads)
        return Attention(
            c.dim,
            c.heads,
            mask=causal,
            score=score,
            position=inside,
            dropout=c.dropout,
        )

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Scores for the token after each of ids: b t -> b t v."""
        features = self.features(ids, keep, cache)
        return F.linear(features, self.token.weight)  # the head is the embedding

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """What the last block knows of each token: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = self.token(ids)  # b t d
        if self.position is not None:
            x = tap("embedded", x + self.position(layout).to(x.dtype) * self.size)
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)
