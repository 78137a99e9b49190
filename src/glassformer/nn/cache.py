"""Per-layer caches of keys, values and recurrent states, so that each new token needs only one
incremental step.

Shapes: b batch, t new tokens, s all tokens so far, d features, h heads, e features of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_CAPACITY = 64  # min size of a buffer, in tokens


class LayerCache:
    """One layer's keys and values so far, in buffers that grow up to `capacity` tokens.

    With `capacity=None` the cache holds the keys and values of cross-attention: the whole source
    is encoded in one pass, after which the cache is complete.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity, self.length = capacity, 0
        self.keys = self.values = torch.empty(0)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (b h t e) and return all keys and values so far (b h s e)."""
        end = self.length + k.shape[2]
        if self.length and len(k) != len(self.keys):
            raise ValueError(f"the cache has batch size {len(self.keys)}, got {len(k)}")
        if self.capacity is not None and end > self.capacity:
            raise ValueError(
                f"the cache is full: it has {self.length} of at most {self.capacity} tokens, got "
                f"{end - self.length} more"
            )
        self.keys = self.grow(self.keys, k, end)
        self.values = self.grow(self.values, v, end)
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.contents()

    def grow(self, buffer: Tensor, new: Tensor, end: int) -> Tensor:
        """A buffer with room for `end` tokens: the old one, or a larger copy of it."""
        if self.length and end <= buffer.shape[2]:
            return buffer
        size = end if self.capacity is None else min(max(2 * end, MIN_CAPACITY), self.capacity)
        larger = new.new_empty(*new.shape[:2], size, new.shape[3])
        if self.length:
            larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger

    @property
    def is_complete(self) -> bool:
        return self.capacity is None and self.length > 0

    def contents(self) -> tuple[Tensor, Tensor]:
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select_rows(self, rows: Tensor) -> None:
        if self.length:
            self.keys, self.values = self.keys[rows], self.values[rows]


class RecurrentState:
    """The hidden state of one recurrent layer: a tensor 1 b d, or a tuple of them for an LSTM.

    The state before the last pass is kept as well, to return to if that pass fails in another
    layer (see `Cache.start_pass`).
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity, self.length = capacity, 0
        self.states: dict[int, Any] = {}  # keyed by the number of tokens processed

    @property
    def state(self) -> Any:
        return self.states.get(self.length)

    def set_initial(self, state: Any) -> None:
        """Start from this state, such as the final state of an encoder."""
        self.states = {0: state}

    def advance(self, new_tokens: int, state: Any) -> None:
        """Store the state after `new_tokens` more tokens."""
        end = self.length + new_tokens
        if self.capacity is not None and end > self.capacity:
            raise ValueError(
                f"the cache is full: it has {self.length} of at most {self.capacity} tokens, got "
                f"{end - self.length} more"
            )
        self.states = {self.length: self.state, end: state}
        self.length = end

    def select_rows(self, rows: Tensor) -> None:
        def select(state: Any) -> Any:
            if state is None:
                return None
            return tuple(map(select, state)) if isinstance(state, tuple) else state[:, rows]

        self.states = {length: select(state) for length, state in self.states.items()}


class Cache:
    """A `LayerCache` or `RecurrentState` for each layer, the padding mask, and a source's cache.

    The caller owns it and passes it to the model with each chunk of new tokens.
    """

    def __init__(
        self,
        depth: int,
        capacity: int | None,
        source: Cache | None = None,
        layer_type: Any = LayerCache,
    ) -> None:
        self.layers = [layer_type(capacity) for _ in range(depth)]
        self.source = source  # keys and values for cross-attention, complete after the first pass
        self.keep: Tensor | None = None  # b s; None as long as there has been no padding
        self.past_ids: Tensor | None = None  # b p: the last ids, if a prior needs them

    @property
    def length(self) -> int:
        """The number of tokens that all layers have processed."""
        return int(min(layer_cache.length for layer_cache in self.layers))

    def start_pass(
        self, keep: Tensor | None, batch: int, new_tokens: int
    ) -> tuple[int, Tensor | None]:
        """Prepare for new tokens.

        Returns: the number of earlier tokens, and the padding mask of all tokens so far (b s), or
        None as long as there has been no padding.

        Without `keep` (b t), all new tokens are real. For example, two prompts, the second padded
        on the left, and then one new token for each:

            start_pass([[1, 1, 1], [0, 0, 1]], 2, 3)  ->  0, [[1, 1, 1], [0, 0, 1]]
            start_pass(None, 2, 1)                    ->  3, [[1, 1, 1, 1], [0, 0, 1, 1]]

        If a pass fails, some layers have processed its tokens and others have not. The next call
        resets all layers to the length that they have in common: 3 if the second pass failed.
        """
        past = self.length
        for layer_cache in self.layers:
            layer_cache.length = past
        if self.keep is None and keep is None:
            return past, None
        any_keep = keep if keep is not None else self.keep
        assert any_keep is not None
        ones = torch.ones(batch, max(past, new_tokens), dtype=torch.bool, device=any_keep.device)
        past_keep = ones[:, :past] if self.keep is None else self.keep[:, :past]
        new_keep = ones[:, :new_tokens] if keep is None else keep
        self.keep = torch.cat((past_keep, new_keep), dim=1)
        return past, self.keep

    def extend_past_ids(self, ids: Tensor, count: int) -> Tensor | None:
        """Return the ids before the new ids (b t), and store the last `count` of all ids."""
        past_ids = self.past_ids
        all_ids = ids if past_ids is None else torch.cat((past_ids, ids), dim=1)
        self.past_ids = all_ids[:, max(all_ids.shape[1] - count, 0) :]
        return past_ids

    def select_rows(self, rows: Tensor) -> None:
        """Continue with these rows of the batch: beam search drops some and duplicates others."""
        for layer_cache in self.layers:
            layer_cache.select_rows(rows)
        if self.keep is not None:
            self.keep = self.keep[rows]
        if self.past_ids is not None:
            self.past_ids = self.past_ids[rows]
        if self.source is not None:
            self.source.select_rows(rows)
