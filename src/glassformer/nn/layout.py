"""Positions, padding and masks of the tokens in one forward pass, shared by all layers.

Shapes: b batch, t queries (the new tokens), s keys (all tokens so far).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.nn.cache import Cache
from glassformer.nn.masks import Mask, causal, full

T = TypeVar("T")


def mark_padding(ids: Tensor, keep: Tensor | None) -> Tensor:
    """The ids (b t), with -1 at padding, where `keep` (b t) is false."""
    return ids if keep is None else ids.masked_fill(~keep.bool(), -1)


class SequenceLayout:
    """The positions of the tokens in a pass, which are real, and which keys a query may see.

    The t queries are the last t of the s keys. `keep` (b s) is false at padding, which may come
    before or after a sequence but not inside it. Tensors that are the same for every layer (mask
    matrices, the sines and cosines of rotary positions) are computed once and stored here.
    """

    def __init__(
        self,
        queries: int,
        keys: int,
        *,
        keep: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.keep = keep
        self.device = device
        self._computed: dict[Hashable, object] = {}

    @classmethod
    def from_ids(
        cls, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> SequenceLayout:
        """The layout of new ids (b t) that follow the tokens in the cache."""
        if ids.ndim != 2:
            raise ValueError(f"expected ids of shape (batch, tokens), got {tuple(ids.shape)}")
        batch, new_tokens = ids.shape
        if new_tokens == 0:
            raise GlassError("there are no tokens to read: the input is empty")
        if keep is not None and keep.shape != ids.shape:
            shapes = f"expected {tuple(ids.shape)}, got {tuple(keep.shape)}"
            raise ValueError(f"keep must have the shape of ids: {shapes}")
        keep = keep if keep is None else keep.bool()
        past = 0
        if cache is not None:
            past, keep = cache.start_pass(keep, batch, new_tokens)
        return cls(new_tokens, past + new_tokens, keep=keep, device=ids.device)

    def positions(self, count: int | None = None) -> Tensor:
        """The positions of the last `count` tokens, by default of the queries.

        The shape is t, or b t if there is padding, which is not counted.
        """
        start = self.keys - (self.queries if count is None else count)
        if self.keep is None:
            return torch.arange(start, self.keys, device=self.device)
        return (self.keep.cumsum(dim=1) - 1).clamp(min=0)[:, start:]

    def last(self, keys: int) -> SequenceLayout:
        """The layout of the same queries, and of only the last `keys` keys."""
        keep = None if self.keep is None else self.keep[:, self.keys - keys :]
        return SequenceLayout(self.queries, keys, keep=keep, device=self.device)

    def is_unmasked(self, mask: Mask) -> bool:
        """Whether every query may see every key, as a single new token may with a causal mask."""
        return self.keep is None and (mask == full or (mask == causal and self.queries == 1))

    def mask_matrix(self, mask: Mask) -> Tensor:
        """Which keys each query may see: t s, or b 1 t s if there is padding.

        If heads have different rules: h t s, or b h t s.

        A mask's rule gets positions counted from the first real token, so that padding on the left
        does not change the mask. With one padding token before the tokens A, B and C:

            token      _  A  B  C
            position  -1  0  1  2

        the rule "same chunk of two positions" gives [0, 1, 1, 0] for A and B, and [0, 0, 0, 1]
        for C. Applied to indexes into the padded row, it would pair A with the padding, and B
        with C.
        """
        return self.compute_once(mask, lambda: self._make_matrix(mask))

    def _make_matrix(self, mask: Mask) -> Tensor:
        if self.keep is None:
            return mask.matrix(self.queries, self.keys, self.device)
        first = self.keep.int().argmax(dim=1)[:, None]  # index of each row's first real token: b 1
        i = torch.arange(self.keys - self.queries, self.keys, device=self.device) - first  # b t
        j = torch.arange(self.keys, device=self.device) - first  # b s
        allowed = mask.allow(i[:, :, None], j[:, None, :])  # b t s, or b h t s
        return (allowed if allowed.ndim == 4 else allowed[:, None]) & self.keep[:, None, None]

    def compute_once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._computed:
            self._computed[key] = make()
        return self._computed[key]  # type: ignore[return-value]
