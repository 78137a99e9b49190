"""Transformer-XL: segments with a memory of previous segments (Dai et al., 2019).

Text is read in segments of `context` tokens. Each layer attends to its inputs for the segment and,
without gradients, to those for the last `memory` tokens before it, so information can move
`memory` tokens further with every layer. Scores have the paper's four terms: content and distance,
each with and without the query (nn/positions.py: Relative). Differs from the paper in that norms
come before the layers and that all layers have their own biases for the distance.

Shapes: b batch, t tokens, m remembered tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import DECODER, LanguageModel, ModelConfig, Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.cache import Cache
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.memory import LayerMemory, MemoryBlock, StreamMemory
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Relative


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 256
    context: int = 128  # tokens in a segment
    memory: int = 128  # tokens before a segment that it can attend to
    dim: int = 256
    depth: int = 6
    heads: int = 8
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    dropout: float = 0.0


class TransformerXL(LanguageModel):
    Config: TypeAlias = Config
    traits = DECODER - {Trait.COMPILABLE} | {Trait.CAUSAL_LM, Trait.SEGMENT_MEMORY}
    embeddings = ("token",)
    stacks = ("blocks",)
    forward_inputs = ("ids", "keep", "streams", "segment", "memory")
    decoding_limit = None  # a cache forgets its oldest tokens

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            MemoryBlock(
                c.dim,
                Attention(
                    c.dim,
                    c.heads,
                    mask=causal,
                    position=Relative(c.heads, c.dim // c.heads),
                    dropout=c.dropout,
                ),
                FeedForward(c.dim, c.hidden or 4 * c.dim, activation=F.gelu, dropout=c.dropout),
            )
            for _ in range(c.depth)
        )
        self.norm = LayerNorm(c.dim)
        self.train_memory = StreamMemory(c.depth)
        self.eval_memory = StreamMemory(c.depth)
        init.normal(self)

    def forward(
        self,
        ids: Tensor,
        *,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        past_ids: Tensor | None = None,
        folds: Tensor | None = None,
        streams: Tensor | None = None,
        segment: Tensor | None = None,
        memory: int | None = None,
    ) -> Tensor:
        """Next-token logits: b t -> b t v.

        With `streams` (b), each row is the next segment of a stream of text: the one with the index
        `segment` (b, the same for all rows). It attends to the memory of the stream and is then
        added to it. `memory` overrides `config.memory`, the number of remembered tokens.
        """
        if streams is None or segment is None:
            return super().forward(ids, keep=keep, cache=cache, past_ids=past_ids, folds=folds)
        limit = self.config.memory if memory is None else int(memory)
        stream_memory = self.train_memory if self.training else self.eval_memory
        with stream_memory.open(streams, int(segment[0]), limit) as cache:
            cache.past_ids = past_ids
            return super().forward(ids, keep=keep, cache=cache, folds=folds)

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        if cache is not None:
            layout = layout.last(cache.layers[0].size + layout.queries)
        x = self.dropout(self.token(ids))  # b t d
        for i, block in enumerate(self.blocks):
            inputs = x if cache is None else cache.layers[i].extend(x)  # b m+t d
            x = block(inputs, layout)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """Next-token logits: b t d -> b t v."""
        return F.linear(features, self.token.weight)  # the head is tied to the embedding

    def cache(self, capacity: int) -> Cache:
        """A cache that reaches as far back as the last token of a segment does in training."""
        limit = self.config.memory + self.config.context
        return Cache(len(self.blocks), capacity, layer_type=partial(LayerMemory, limit=limit))

    def training_state(self) -> dict[str, Tensor]:
        return self.train_memory.to_tensors()

    def load_training_state(self, tensors: dict[str, Tensor]) -> None:
        self.train_memory.restore(tensors)
