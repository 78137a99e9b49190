"""The forward pass of an encoder and a decoder with cross-attention.

Shapes: b batch, t tokens, s source tokens, d features, v vocabulary.
"""

from torch import Tensor, nn

from glassformer.models.network import DECODER, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.nn.layout import SequenceLayout


class EncoderDecoder(Network):
    """The base class of Transformers that translate.

    A subclass makes the embeddings and the blocks, and defines `embed` and `unembed`.
    """

    traits = DECODER | {Trait.SEQ2SEQ}
    embeddings = ("token", "source_token")
    stacks = ("encoder", "decoder")
    forward_inputs = ("ids", "source", "source_keep")

    token: nn.Embedding
    source_token: nn.Embedding | None  # None if source and target share one vocabulary
    encoder: nn.ModuleList  # of Block
    decoder: nn.ModuleList  # of CrossBlock

    @property
    def vocab(self) -> int:
        size: int = min(self.config.vocab, self.config.source_vocab or self.config.vocab)
        return size

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
        if source_cache and source_cache.length:
            if source is not None:
                raise ValueError(
                    "the cache already holds a source: use a new cache for another source"
                )
            encoded, source_keep, length = None, source_cache.keep, source_cache.length
        elif source is not None:
            encoded, length = self.encode(source, source_keep, source_cache), source.shape[1]
        else:
            raise ValueError("the translator needs source ids, unless its cache holds them")

        layout = SequenceLayout.from_ids(ids, keep, cache)
        source_layout = SequenceLayout(ids.shape[1], length, keep=source_keep, device=ids.device)
        x = self.embed(self.token, ids, layout)  # b t d
        for i, block in enumerate(self.decoder):
            self_cache = cache.layers[i] if cache else None
            cross_cache = source_cache.layers[i] if source_cache else None
            x = block(x, layout, encoded, source_layout, self_cache, cross_cache)
        return self.unembed(x)

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the encoder: b s -> b s d."""
        return self.encode(ids, keep)

    def encode(
        self, source: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the encoder: b s -> b s d. The cache stores the padding mask."""
        layout = SequenceLayout.from_ids(source, keep, cache)
        x = self.embed(self.source_token or self.token, source, layout)  # b s d
        for block in self.encoder:
            x = block(x, layout)
        return x

    def embed(self, token: nn.Embedding, ids: Tensor, layout: SequenceLayout) -> Tensor:
        """The input of the first block: b t -> b t d."""
        raise NotImplementedError

    def unembed(self, x: Tensor) -> Tensor:
        """Next-token logits from the output of the last block: b t d -> b t v."""
        raise NotImplementedError

    def cache(self, capacity: int) -> Cache:
        depth = len(self.decoder)
        return Cache(depth, capacity, source=Cache(depth, capacity=None))
