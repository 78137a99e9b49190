"""BERT: an encoder that predicts masked tokens (Devlin et al., 2018).

Shapes: b batch, t tokens, d features, v vocabulary, n masked tokens.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from glassformer.models.network import TRANSFORMER, MaskedLogits, ModelConfig, Network, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, post_norm
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.heads import MaskedHead, Pooler
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Alibi, Learned
from glassformer.trace import Tap, tap

TRAITS = TRANSFORMER | {Trait.SEGMENTED, Trait.ORDER_FREE}


@dataclass(frozen=True)
class BodyConfig(ModelConfig):
    vocab: int = 30_522
    context: int = 512  # max sequence length
    segments: int = 2
    dim: int = 768
    depth: int = 12
    heads: int = 12
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    position: Literal["learned", "alibi"] = "learned"  # alibi (by distance) trains faster
    eps: float = 1e-12
    dropout: float = 0.1


@dataclass(frozen=True)
class Config(BodyConfig):
    next_sentence: bool = True  # whether to predict if the second text follows the first


class Body(nn.Module):
    """The encoder that all BERT models share."""

    def __init__(self, config: BodyConfig) -> None:
        super().__init__()
        c = config
        norm = partial(LayerNorm, eps=c.eps)
        activation = ACTIVATIONS[c.activation]
        learned = c.position == "learned"
        self.token = nn.Embedding(c.vocab, c.dim)
        self.position = Learned(c.context, c.dim) if learned else None
        self.segment = nn.Embedding(c.segments, c.dim)
        self.norm = norm(c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(
                    c.dim,
                    c.heads,
                    position=None if learned else Alibi(c.heads, directional=True),
                    dropout=c.dropout,
                ),
                FeedForward(c.dim, c.hidden or 4 * c.dim, activation=activation, dropout=c.dropout),
                residual=post_norm,
                norm=norm,
            )
            for _ in range(c.depth)
        )

    @property
    def taps(self) -> dict[str, Tap]:
        return {"embedded": Tap("b t d", "E[id] + S" + (" + P" if self.position else ""))}

    def forward(
        self, ids: Tensor, segments: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Hidden states of the last block: b t -> b t d.

        `segments` (b t) are 0 in the first text and 1 in the second.
        """
        layout = SequenceLayout.from_ids(ids, keep)
        segments = torch.zeros_like(ids) if segments is None else segments
        x = self.token(ids) + self.segment(segments)  # b t d
        x = tap("embedded", x if self.position is None else x + self.position(layout))
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x, layout)
        features: Tensor = x
        return features


class BertNetwork(Network):
    """A network with a `Body`, which holds its embeddings and blocks."""

    traits = TRAITS
    embeddings = ("body.token", "body.position", "body.segment")
    stacks = ("body.blocks",)
    forward_inputs = ("ids", "keep", "segments")
    body: Body

    def __init__(self, config: BodyConfig) -> None:
        super().__init__(config)
        self.body = Body(config)
        if config.position != "learned":
            self.traits = self.traits - {Trait.ORDER_FREE}

    def features(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Hidden states of the last block: b t -> b t d."""
        features: Tensor = self.body(ids, segments, keep)
        return features


class Bert(BertNetwork):
    Config: TypeAlias = Config
    traits = TRAITS | {Trait.MASKED_LM}
    output_heads = ("masked", "pooler", "head")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.masked = MaskedHead(c.dim, c.vocab, activation=ACTIVATIONS[c.activation], eps=c.eps)
        self.pooler = Pooler(c.dim) if c.next_sentence else None
        self.head = nn.Linear(c.dim, 2) if c.next_sentence else None
        init.normal(self)

    def forward(
        self, ids: Tensor, *, segments: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Token logits at each position: b t -> b t v."""
        logits: Tensor = self.masked(self.body(ids, segments, keep), self.body.token.weight)
        return logits

    def masked_logits(
        self,
        ids: Tensor,
        masked_positions: Tensor,
        segments: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> MaskedLogits:
        """Logits where `masked_positions` (b t) is true (n v), and next-sentence logits (b 2)."""
        x = self.body(ids, segments, keep)
        tokens = self.masked(x[masked_positions], self.body.token.weight)
        if self.pooler is None or self.head is None:
            return MaskedLogits(tokens)
        return MaskedLogits(tokens, self.head(self.body.dropout(self.pooler(x, keep))))
