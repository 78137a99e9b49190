"""A recurrent encoder and decoder, with or without attention.

Without attention, the decoder only gets the encoder's final state (Sutskever et al., 2014); with
attention, it also attends to every source token (Bahdanau et al., 2014; Luong et al., 2015).

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import AUTOREGRESSIVE, ModelConfig, Network, Trait
from glassformer.nn import init
from glassformer.nn.attention import AdditiveScore, Attention, dot
from glassformer.nn.cache import Cache, RecurrentState
from glassformer.nn.dropout import Dropout
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.recurrence import Recurrence


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 37_000
    source_vocab: int | None = None  # by default source and target share one vocabulary
    dim: int = 512
    depth: int = 2
    cell: Literal["lstm", "gru"] = "lstm"
    attention: Literal["none", "dot", "additive"] = "dot"
    dropout: float = 0.1


class RecurrentTranslator(Network):
    Config: TypeAlias = Config
    traits = AUTOREGRESSIVE | {Trait.SEQ2SEQ}
    embeddings = ("token", "source_token")
    stacks = ("encoder", "decoder")
    forward_inputs = ("ids", "source", "source_keep")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.dropout = Dropout(c.dropout)
        self.source_token = nn.Embedding(c.source_vocab, c.dim) if c.source_vocab else None
        self.encoder = nn.ModuleList(Recurrence(c.dim, cell=c.cell) for _ in range(c.depth))
        self.decoder = nn.ModuleList(Recurrence(c.dim, cell=c.cell) for _ in range(c.depth))
        score = AdditiveScore(1, c.dim) if c.attention == "additive" else dot
        self.cross = None if c.attention == "none" else Attention(c.dim, 1, score=score)
        self.together = nn.Linear(c.dim if self.cross is None else 2 * c.dim, c.dim)
        init.normal(self, std=c.dim**-0.5)

    def forward(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        source_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Next-token logits, given the source: b t, b s -> b t v.

        With a cache, `source` and `source_keep` are passed with the first ids only.
        """
        source_cache = cache.source if cache else None
        encoded = None
        layout = SequenceLayout.from_ids(ids, keep, cache)
        layers = cache.layers if cache else [RecurrentState(None) for _ in self.decoder]
        if source_cache and source_cache.length:
            if source is not None:
                raise ValueError(
                    "the cache already holds a source: use a new cache for another source"
                )
            source_keep, length = source_cache.keep, source_cache.length
        elif source is not None:
            encoded, states = self.encode(source, source_keep, source_cache)
            length = source.shape[1]
            for layer_cache, state in zip(layers, states, strict=True):
                layer_cache.set_initial(state)
        else:
            raise ValueError("the translator needs source ids, unless its cache holds them")

        x = self.dropout(self.token(ids))  # b t d
        for layer, layer_cache in zip(self.decoder, layers, strict=True):
            x = self.dropout(layer(x, layout, layer_cache))
        if self.cross is not None:
            source_layout = SequenceLayout(
                ids.shape[1], length, keep=source_keep, device=ids.device
            )
            layer_cache = source_cache.layers[0] if source_cache else None
            cross_output = self.cross(x, source_layout, source=encoded, layer_cache=layer_cache)
            x = torch.cat((x, cross_output), dim=-1)
        elif source_cache is not None and encoded is not None:
            source_cache.layers[0].extend(encoded[:, None], encoded[:, None])
        x = torch.tanh(self.together(x))
        return F.linear(x, self.token.weight)  # the head is tied to the embedding

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the encoder's last layer: b s -> b s d."""
        features, _ = self.encode(ids, keep)
        return features

    def encode(
        self, source: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> tuple[Tensor, list[object]]:
        """Hidden states of the encoder's last layer (b s d), and the final state of each layer.

        The cache, if any, stores the padding of the source.
        """
        layout = SequenceLayout.from_ids(source, keep, cache)
        states = []
        x = self.dropout((self.source_token or self.token)(source))
        for layer in self.encoder:
            state = RecurrentState(None)
            x = self.dropout(layer(x, layout, state))
            states.append(state.state)
        return x, states

    def cache(self, capacity: int) -> Cache:
        return Cache(
            len(self.decoder), capacity, Cache(1, capacity=None), layer_type=RecurrentState
        )
