"""Two recurrent networks: one reads, one writes and looks back at what was read.

Without attention all that is read must fit into the memory that the one hands to the other
(Sutskever et al., 2014); with it each new word looks at every word read (Bahdanau et al., 2014;
Luong et al., 2015).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import DECODES, ModelConfig, Network, Trait
from glassformer.nn import init
from glassformer.nn.attention import AdditiveScore, Attention, dot
from glassformer.nn.cache import Cache, RecurrentState
from glassformer.nn.dropout import Dropout
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.recurrence import Recurrence


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 37_000
    dim: int = 512
    depth: int = 2
    cell: Literal["lstm", "gru"] = "lstm"
    attention: Literal["none", "dot", "additive"] = "dot"
    dropout: float = 0.1


class RecurrentTranslator(Network):
    Config: TypeAlias = Config
    traits = DECODES | {Trait.SEQ2SEQ}
    embeddings = ("token",)
    stacks = ("encoder", "decoder")
    forward_inputs = ("ids", "source", "source_keep")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token, self.dropout = nn.Embedding(c.vocab, c.dim), Dropout(c.dropout)
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
        """Scores for the token after each of ids, given source ids: b t, b s -> b t v.

        A cache remembers the source: it is given with the first ids only.
        """
        known, read = cache.source if cache else None, None
        layout = SequenceLayout.from_ids(ids, keep, cache)
        layers = cache.layers if cache else [RecurrentState(None) for _ in self.decoder]
        if known and known.length:
            if source is not None:
                raise ValueError("the cache holds a source already: give another a new cache")
            source_keep, length = known.keep, known.length
        elif source is not None:
            read, states = self.encode(source, source_keep, known)
            length = source.shape[1]
            for layer_cache, state in zip(layers, states, strict=True):
                layer_cache.set_initial(state)
        else:
            raise ValueError("the translator needs source ids, unless its cache has read them")

        x = self.dropout(self.token(ids))  # b t d
        for layer, layer_cache in zip(self.decoder, layers, strict=True):
            x = self.dropout(layer(x, layout, layer_cache))
        if self.cross is not None:
            source_layout = SequenceLayout(
                ids.shape[1], length, keep=source_keep, device=ids.device
            )
            source_cache = known.layers[0] if known else None
            found = self.cross(x, source_layout, source=read, layer_cache=source_cache)
            x = torch.cat((x, found), dim=-1)
        elif known is not None and read is not None:
            known.layers[0].extend(read[:, None], read[:, None])
        x = torch.tanh(self.together(x))
        return F.linear(x, self.token.weight)  # the head is the embedding

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        features, _ = self.encode(ids, keep)
        return features

    def encode(
        self, source: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> tuple[Tensor, list[object]]:
        """What the encoder says of each token, b s d, and what its layers remember at the end."""
        layout, states = SequenceLayout.from_ids(source, keep, cache), []
        x = self.dropout(self.token(source))
        for layer in self.encoder:
            state = RecurrentState(None)
            x = self.dropout(layer(x, layout, state))
            states.append(state.state)
        return x, states

    def cache(self, capacity: int) -> Cache:
        return Cache(
            len(self.decoder), capacity, Cache(1, capacity=None), layer_type=RecurrentState
        )
