"""The forward pass of an encoder and a decoder with cross-attention.

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.models.network import DECODER, ModelConfig, PriorNetwork, Trait
from glassformer.nn.cache import Cache, LayerCache
from glassformer.nn.layout import SequenceLayout, mark_padding
from glassformer.nn.lexical_prior import LexicalPrior


@dataclass(frozen=True)
class LexicalPriorConfig(ModelConfig):
    """The settings of the prior of a translator."""

    max_entries: int = 12  # of the word-translation table, for each source token


class EncoderDecoder(PriorNetwork[LexicalPrior]):
    """The base class of Transformers that translate.

    A subclass makes the embeddings and the blocks, and defines `embed` and `unembed`; it may define
    how the blocks run, with `run_encoder` and `run_decoder`. Optionally, a
    prior adds the predictions of a word-translation table (see nn/lexical_prior.py).
    """

    prior_config_type = LexicalPriorConfig
    prior_inputs = ("folds",)
    traits = DECODER | {Trait.SEQ2SEQ}
    embeddings = ("token", "source_token")
    stacks = ("encoder", "decoder")
    forward_inputs = ("ids", "source", "source_keep")

    token: nn.Embedding
    source_token: nn.Embedding | None  # None if source and target share one vocabulary
    encoder: nn.ModuleList  # of Block
    decoder: nn.ModuleList  # of CrossBlock

    def forward(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        source_keep: Tensor | None = None,
        cache: Cache | None = None,
        folds: Tensor | None = None,
    ) -> Tensor:
        """Next-token logits, given the source: b t, b s -> b t v.

        `keep` (b t) and `source_keep` (b s) are true at real tokens, false at padding. With a
        cache, `source` and `source_keep` are passed with the first ids only. Only the prior
        uses `folds`, the fold to exclude from the prior for each pair (b) in training.
        """
        source_cache = cache.source if cache else None
        if source_cache and source_cache.length:
            if source is not None:
                raise ValueError(
                    "the cache already holds a source: use a new cache for another source"
                )
            encoded = None
            source_keep = source_cache.keep
            length = source_cache.length
        elif source is not None:
            encoded = self.encode(source, source_keep, source_cache)
            length = source.shape[1]
        else:
            raise ValueError("the translator needs source ids, unless its cache holds them")

        layout = SequenceLayout.from_ids(ids, keep, cache)
        source_layout = SequenceLayout(ids.shape[1], length, keep=source_keep, device=ids.device)
        x = self.embed(self.token, ids, layout)  # b t d
        x = self.run_decoder(x, layout, encoded, source_layout, cache)
        features = self.normalize(x)
        logits = self.unembed(features)
        if self.prior is None:
            return logits

        keys, source = self.alignment_keys(encoded, source, source_keep, source_cache)
        all_ids = real_ids = mark_padding(ids, keep)
        if cache is not None:
            past_ids = cache.extend_past_ids(real_ids, layout.keys)
            all_ids = real_ids if past_ids is None else torch.cat((past_ids, real_ids), dim=1)
        positions = layout.positions(layout.keys)
        mixed: Tensor = self.prior(logits, features, keys, all_ids, positions, source, folds)
        return mixed

    def alignment_keys(
        self,
        encoded: Tensor | None,
        source: Tensor | None,
        source_keep: Tensor | None,
        source_cache: Cache | None,
    ) -> tuple[Tensor, Tensor]:
        """The keys (b s e) and ids (b s, with -1 at padding) of the source, for the prior."""
        prior_cache = source_cache.layers[-1] if source_cache else None
        if prior_cache is not None and prior_cache.is_complete:
            keys, ids = prior_cache.contents()
            return keys[:, 0], ids[:, 0, :, 0]
        assert self.prior is not None
        assert encoded is not None
        assert source is not None
        keys = self.prior.encode_keys(encoded)
        ids = mark_padding(source, source_keep)
        if prior_cache is not None:
            prior_cache.extend(keys[:, None], ids[:, None, :, None])
        return keys, ids

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the encoder: b s -> b s d."""
        return self.encode(ids, keep)

    def encode(
        self, source: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the encoder: b s -> b s d. The cache stores the padding mask."""
        layout = SequenceLayout.from_ids(source, keep, cache)
        x = self.embed(self.source_token or self.token, source, layout)  # b s d
        return self.run_encoder(x, layout)

    def run_encoder(self, x: Tensor, layout: SequenceLayout) -> Tensor:
        """The blocks of the encoder: b s d -> b s d."""
        for block in self.encoder:
            x = block(x, layout)
        return x

    def run_decoder(
        self,
        x: Tensor,
        layout: SequenceLayout,
        encoded: Tensor | None,
        source_layout: SequenceLayout,
        cache: Cache | None,
    ) -> Tensor:
        """The blocks of the decoder: b t d -> b t d. `encoded` is None if the cache holds it."""
        for i, block in enumerate(self.decoder):
            x = block(x, layout, encoded, source_layout, *self.layer_caches(cache, i))
        return x

    def layer_caches(
        self, cache: Cache | None, layer: int
    ) -> tuple[LayerCache | None, LayerCache | None]:
        """A layer's caches of the target and of the source."""
        if cache is None or cache.source is None:
            return None, None
        return cache.layers[layer], cache.source.layers[layer]

    def embed(self, token: nn.Embedding, ids: Tensor, layout: SequenceLayout) -> Tensor:
        """The input of the first block: b t -> b t d."""
        raise NotImplementedError

    def normalize(self, x: Tensor) -> Tensor:
        """The hidden states from which the logits are computed: b t d -> b t d."""
        return x

    def unembed(self, features: Tensor) -> Tensor:
        """The network's own next-token logits: b t d -> b t v."""
        raise NotImplementedError

    def build_prior(self, config: LexicalPriorConfig) -> LexicalPrior:
        c = self.config
        return LexicalPrior(c.dim, c.vocab, c.source_vocab or c.vocab, config.max_entries)

    def cache(self, capacity: int) -> Cache:
        """An empty cache; the source's has one more layer for the keys of a prior."""
        depth = self.config.depth
        source_depth = depth if self.prior is None else depth + 1
        return Cache(depth, capacity, source=Cache(source_depth, capacity=None))
