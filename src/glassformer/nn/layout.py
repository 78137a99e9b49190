"""The stretch of tokens that one pass reads, shared by all of a model's layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.nn.cache import Cache
from glassformer.nn.masks import Mask, causal, full

T = TypeVar("T")


class SequenceLayout:
    """Where each token stands, which are real, and who may look at whom.

    The t queries are the last of the s keys. `keep`, b s, is false at padding, which may stand
    before or after a text but not inside it. What every layer needs alike (a grid of booleans,
    the waves of rotary positions) is made once, by the first that asks, and goes with the span.
    """

    def __init__(
        self,
        queries: int,
        keys: int,
        *,
        keep: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.queries, self.keys, self.keep, self.device = queries, keys, keep, device
        self._computed: dict[Hashable, object] = {}

    @classmethod
    def from_ids(
        cls, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> SequenceLayout:
        """The span of new ids, b t, behind those that the cache holds."""
        if ids.ndim != 2:
            raise ValueError(
                f"ids are a batch of texts, b t; these have the shape {tuple(ids.shape)}"
            )
        batch, new = ids.shape
        if new == 0:
            raise GlassError("there are no tokens to read")
        if keep is not None and keep.shape != ids.shape:
            shapes = f"{tuple(keep.shape)}, the ids {tuple(ids.shape)}"
            raise ValueError(f"keep marks each id as real or padding: its shape is {shapes}")
        keep, before = keep if keep is None else keep.bool(), 0
        if cache is not None:
            before, keep = cache.start_pass(keep, batch, new)
        return cls(new, before + new, keep=keep, device=ids.device)

    def positions(self, last: int | None = None) -> Tensor:
        """The places of the last tokens, each in its own text: t, or b t where there is padding."""
        start = self.keys - (self.queries if last is None else last)
        if self.keep is None:
            return torch.arange(start, self.keys, device=self.device)
        return (self.keep.cumsum(dim=1) - 1).clamp(min=0)[:, start:]

    def is_unmasked(self, mask: Mask) -> bool:
        """Whether every query may look at every key; so it is for one new token under `causal`."""
        return self.keep is None and (mask == full or (mask == causal and self.queries == 1))

    def mask_matrix(self, mask: Mask) -> Tensor:
        """Where a query may look at a key: t s, or b 1 t s where there is padding."""
        return self.compute_once(mask, lambda: self._make_matrix(mask))

    def _make_matrix(self, mask: Mask) -> Tensor:
        if self.keep is None:
            return mask.matrix(self.queries, self.keys, self.device)
        first = self.keep.int().argmax(dim=1)[:, None]  # where each text starts
        i = torch.arange(self.keys - self.queries, self.keys, device=self.device) - first  # b t
        j = torch.arange(self.keys, device=self.device) - first  # b s
        return (mask.allow(i[:, :, None], j[:, None, :]) & self.keep[:, None, :])[:, None]

    def compute_once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._computed:
            self._computed[key] = make()
        return self._computed[key]  # type: ignore[return-value]
