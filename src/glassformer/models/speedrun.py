"""A decoder with the design choices of the public GPT-2 speedruns, sized for one CPU.

Rotary positions, normalized queries and keys, squared ReLU, linear layers without biases, and
output layers that start at zero, so that every block starts as the identity. It uses layer norms
rather than RMS norms, because torch computes them in one fused operation on a CPU, which makes a
step 10% faster. For the same reason, attention patterns have no dropout: it has no fused kernel.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import FeedForward, relu_squared
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Rotary

HEAD_DIM, HEADS_AT_ONE_MINUTE = 64, 2.0
FLOP_PER_MINUTE = 4e12  # roughly, in training on a laptop


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 256  # sequence length in training; longer sequences work
    dim: int = 160
    depth: int = 3
    heads: int = 4
    hidden: int | None = None  # hidden features of the feed-forward layers; by default 4 * dim
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    dropout: float = 0.0


class Speedrun(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM}
    embeddings = ("token",)
    stacks = ("blocks",)
    output_heads = ("head",)
    train_settings: ClassVar[Mapping[str, Any]] = {
        "batch_size": 6,
        "optimizer": "muon",
        "schedule": "linear",
        "warmup": 0.01,
        "min_lr_ratio": 0.02,
    }

    @classmethod
    def suggest_sizes(cls, minutes: float, tokens: int) -> dict[str, Any]:
        """Suggest dim, heads, depth, context and dropout.

        Models are wider and deeper for longer budgets, and have more dropout the more often
        training is likely to repeat the data. The number of parameters grows with dim**2, and the
        compute-optimal number of parameters with the square root of compute, so dim grows with the
        fourth root of the time.
        """
        dim = HEAD_DIM * min(max(round(HEADS_AT_ONE_MINUTE * minutes**0.25), 2), 12)
        depth = 2 if minutes < 4 else 3 if minutes < 15 else 4 if minutes < 60 else 6
        parameters = 12 * depth * dim**2  # of the blocks
        epochs = minutes * FLOP_PER_MINUTE / (6 * parameters * max(tokens, 1))
        return {
            "dim": dim,
            "heads": dim // HEAD_DIM,
            "depth": depth,
            "context": min(256, max(tokens // 4, 16)),
            "dropout": 0.0 if epochs < 1 else 0.1 if epochs < 3 else 0.2,
        }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.embedding_norm = LayerNorm(c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(
                    c.dim,
                    c.heads,
                    mask=causal,
                    position=Rotary(c.dim // c.heads, c.rope_theta),
                    norm=partial(LayerNorm, axes="b h t"),
                    dropout=c.dropout,
                    pattern_dropout=0.0,
                    bias=False,
                    out_bias=False,
                ),
                FeedForward(
                    c.dim,
                    c.hidden or 4 * c.dim,
                    activation=relu_squared,
                    dropout=c.dropout,
                    bias=False,
                ),
            )
            for _ in range(c.depth)
        )
        self.norm = LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.vocab, bias=False)
        zero_output_layers(self)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the last block: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        x = self.dropout(self.embedding_norm(self.token(ids)))  # b t d
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        logits: Tensor = self.head(features)
        return logits

    def cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)


def zero_output_layers(network: nn.Module) -> None:
    """Set the output layers of attention and feed-forward layers, and the head, to zero."""
    for name, weight in network.named_parameters():
        if name.endswith((".out.weight", ".down.weight", "head.weight")):
            nn.init.zeros_(weight)
