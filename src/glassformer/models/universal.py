"""The Universal Transformer: one block, applied to each token a variable number of times.

After Dehghani et al., 2018. See nn/depth.py for the loop and for how a token stops. `depth` is the
max number of steps; all of them share their weights.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, post_norm
from glassformer.nn.cache import Cache
from glassformer.nn.depth import DepthLoop
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal


@dataclass(frozen=True)
class DepthConfig(ModelConfig):
    """The settings that the Universal Transformers of all tasks have in common."""

    dim: int = 256
    depth: int = 6  # max number of steps
    heads: int = 8
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    adaptive: bool = True  # whether each token has its own number of steps
    halt_threshold: float = 0.99
    ponder_cost: float = 0.001  # weight of the number of steps in the loss
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % 2:
            raise GlassError(f"sinusoidal positions need an even dim, got {self.dim}")


def build_loop(c: DepthConfig, block: nn.Module) -> DepthLoop:
    return DepthLoop(block, c.dim, c.depth, adaptive=c.adaptive, threshold=c.halt_threshold)


def build_attention(c: DepthConfig, mask: Mask) -> Attention:
    return Attention(c.dim, c.heads, mask=mask, dropout=c.dropout)


def build_feedforward(c: DepthConfig) -> FeedForward:
    return FeedForward(c.dim, c.hidden or 4 * c.dim, activation=F.relu, dropout=c.dropout)


def build_block(c: DepthConfig, mask: Mask) -> Block:
    return Block(c.dim, build_attention(c, mask), build_feedforward(c), residual=post_norm)


@dataclass(frozen=True)
class Config(DepthConfig):
    vocab: int = 256
    context: int = 256  # sequence length in training


class Universal(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token",)
    stacks = ("loop.blocks",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.dropout = Dropout(c.dropout)
        self.loop = build_loop(c, build_block(c, causal))
        init.xavier(self)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The weighted states of the steps: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = self.dropout(self.token(ids) * self.config.dim**0.5)  # b t d

        def apply(x: Tensor, step: int) -> Tensor:
            y: Tensor = self.loop.blocks[0](x, layout, cache.layers[step] if cache else None)
            return y

        features: Tensor = self.loop(x, layout, apply)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        return F.linear(features, self.token.weight)  # the head is tied to the embedding

    def cache(self, capacity: int) -> Cache:
        """A cache with keys and values for each step."""
        return Cache(self.config.depth, capacity)

    def extra_loss(self) -> Tensor | None:
        return ponder_loss(self.config, self.loop)


def ponder_loss(config: DepthConfig, *loops: DepthLoop) -> Tensor | None:
    """The ponder cost of the last pass in training, times its weight; None if there is none."""
    costs = [cost for loop in loops if (cost := loop.take_ponder()) is not None]
    return config.ponder_cost * sum(costs[1:], costs[0]) if costs else None
