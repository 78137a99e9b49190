"""A decoder that reads a long document and continues it with a summary (Liu et al., 2018).

After "Generating Wikipedia by Summarizing Long Sequences": document, separator and summary are one
sequence, and layers with two kinds of attention alternate. In local attention, a token attends to
its own block; in memory-compressed attention, to all earlier tokens, compressed in windows
(nn/compressed.py). Differs from the paper in rotary positions, normalized queries and keys, and a
copy head (nn/copying.py), because most words of a summary are in the document: it starts as a rule
that copies the document from its beginning.

Shapes: b batch, t tokens, s tokens so far, n chosen positions, d features, v vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import DECODER, ModelConfig, Network, Trait
from glassformer.models.speedrun import zero_output_layers
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.cache import Cache
from glassformer.nn.compressed import CompressedAttention, CompressedCache
from glassformer.nn.copying import CopyHead
from glassformer.nn.dropout import Dropout
from glassformer.nn.feedforward import FeedForward, relu_squared
from glassformer.nn.layout import SequenceLayout, mark_padding
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Rotary
from glassformer.nn.sparse import local_chunk


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 8192
    sep: int = 0  # the id between a document and its summary
    context: int = 1024  # tokens of a document that are read; longer documents are shortened
    dim: int = 256
    depth: int = 4
    heads: int = 4
    hidden: int | None = None  # hidden size of the feed-forward layers; by default 4 * dim
    block: int = 256  # tokens in a block of local attention
    compression: int = 4  # tokens in a window of compressed attention
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    dropout: float = 0.1  # not on attention patterns


class Summarizer(Network):
    Config: TypeAlias = Config
    traits = DECODER | {Trait.CAUSAL_LM, Trait.SUMMARIZER}
    embeddings = ("token",)
    stacks = ("blocks",)
    output_heads = ("copy",)
    forward_inputs = ("ids", "keep", "positions")
    lr_scales: ClassVar[Mapping[str, float]] = {"token": 0.15}  # the embedding is the output layer
    train_settings: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "schedule": "linear",
        "warmup": 0.02,
        "min_lr_ratio": 0.02,
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
                self.build_attention(layer),
                FeedForward(
                    c.dim,
                    c.hidden or 4 * c.dim,
                    activation=relu_squared,
                    dropout=c.dropout,
                    bias=False,
                ),
            )
            for layer in range(c.depth)
        )
        self.norm = LayerNorm(c.dim)
        self.copy = CopyHead(c.dim, c.sep)
        nn.init.normal_(self.token.weight, std=0.02)  # small, because it is also the output layer
        zero_output_layers(self)

    def build_attention(self, layer: int) -> nn.Module:
        """Local attention in even layers, compressed attention in odd ones."""
        c = self.config
        position = Rotary(c.dim // c.heads, c.rope_theta)
        norm = partial(LayerNorm, axes="b h t")
        options: dict[str, Any] = {"position": position, "norm": norm, "bias": False}
        if layer % 2:
            return CompressedAttention(
                c.dim, c.heads, window=c.compression, dropout=c.dropout, **options
            )
        return Attention(c.dim, c.heads, mask=local_chunk(c.block), out_bias=False, **options)

    @property
    def decoding_limit(self) -> None:
        """None: the positions are relative, and a summary follows a document of any length."""
        return

    def forward(
        self,
        ids: Tensor,
        *,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Next-token log-probabilities: b t -> b t v; with `positions` (b n) only there, b n v."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        features = self.compute_features(ids, layout, cache)
        keys, all_ids = self.copy.key(features), mark_padding(ids, keep)  # b s d, b s
        if cache is not None:
            keys = cache.layers[-1].extend(keys[:, None], keys[:, None, :, :0])[0][:, 0]
            past_ids = cache.extend_past_ids(all_ids, layout.keys)
            all_ids = all_ids if past_ids is None else torch.cat((past_ids, all_ids), dim=1)
        if positions is not None:
            features = features.gather(1, positions[..., None].expand(-1, -1, features.shape[2]))
        index = find_index(layout, positions).expand(len(ids), -1)
        log_probs: Tensor = self.copy(self.unembed(features), features, keys, all_ids, index)
        return log_probs

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states after the final norm: b t -> b t d."""
        return self.compute_features(ids, SequenceLayout.from_ids(ids, keep, cache), cache)

    def compute_features(self, ids: Tensor, layout: SequenceLayout, cache: Cache | None) -> Tensor:
        x = self.dropout(self.embedding_norm(self.token(ids)))  # b t d
        for i, block in enumerate(self.blocks):
            x = block(x, layout, cache.layers[i] if cache else None)
        features: Tensor = self.norm(x)
        return features

    def unembed(self, features: Tensor) -> Tensor:
        """The logits of the tokens if none is copied: b t d -> b t v."""
        return F.linear(features, self.token.weight)  # tied to the embedding

    def cache(self, capacity: int) -> Cache:
        """A cache with a layer for each block, and one for the keys of the copy head."""
        cache = Cache(len(self.blocks) + 1, capacity)
        for i, block in enumerate(self.blocks):
            if isinstance(block.attention, CompressedAttention):
                cache.layers[i] = CompressedCache(capacity)
        return cache


def find_index(layout: SequenceLayout, positions: Tensor | None) -> Tensor:
    """The index of the queries, or of those at `positions` (b n), among all tokens: 1 t or b n."""
    past = layout.keys - layout.queries
    if positions is not None:
        return positions + past
    return torch.arange(past, layout.keys, device=layout.device)[None]
