"""What is kept of tokens already read, so that each new token costs one step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_CAPACITY = 64  # tokens that a buffer has room for at first


class LayerCache:
    """One layer's keys and values so far, in buffers that grow with the text up to `capacity`.

    A source is read in one piece: its past has no capacity, and is complete after that.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity, self.length = capacity, 0
        self.keys = self.values = torch.empty(0)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k and v, b h t e; give back all so far, b h s e."""
        end = self.length + k.shape[2]
        if self.length and len(k) != len(self.keys):
            raise ValueError(f"the cache holds {len(self.keys)} texts; {len(k)} were given")
        if self.capacity is not None and end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens; {end} do not fit")
        self.keys = self.grow(self.keys, k, end)
        self.values = self.grow(self.values, v, end)
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.contents()

    def grow(self, buffer: Tensor, new: Tensor, end: int) -> Tensor:
        """A buffer for `end` tokens: the old one, or one of twice the size that holds the same."""
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
    """What one recurrent layer carries from token to token: tensors of the shape 1 b d.

    The state before the last pass is kept too, should that pass fail in another layer.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity, self.length = capacity, 0
        self.states: dict[int, Any] = {}  # by how many tokens were read

    @property
    def state(self) -> Any:
        return self.states.get(self.length)

    def set_initial(self, state: Any) -> None:
        """Start from a state that comes from elsewhere."""
        self.states = {0: state}

    def advance(self, new: int, state: Any) -> None:
        """Remember the state after so many new tokens."""
        end = self.length + new
        if self.capacity is not None and end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens; {end} do not fit")
        self.states = {self.length: self.state, end: state}
        self.length = end

    def select_rows(self, rows: Tensor) -> None:
        def of(state: Any) -> Any:
            if state is None:
                return None
            return tuple(map(of, state)) if isinstance(state, tuple) else state[:, rows]

        self.states = {length: of(state) for length, state in self.states.items()}


class Cache:
    """A `Past` or `Carry` for each layer, which tokens are real, and the same for a source.

    The caller owns it and hands it to the model with each new piece of text.
    """

    def __init__(
        self,
        depth: int,
        capacity: int | None,
        source: Cache | None = None,
        layer_type: Any = LayerCache,
    ) -> None:
        self.layers = [layer_type(capacity) for _ in range(depth)]
        self.source = source  # what cross-attention reads, kept after the first pass
        self.keep: Tensor | None = None  # b s, or None while no text was padded

    @property
    def length(self) -> int:
        """How many tokens every layer has read."""
        return int(min(layer_cache.length for layer_cache in self.layers))

    def start_pass(self, keep: Tensor | None, batch: int, new: int) -> tuple[int, Tensor | None]:
        """Make ready for new tokens: how many there are before, and which of all are real, b s.

        What a pass that failed has left behind is forgotten.
        """
        before = self.length
        for layer_cache in self.layers:
            layer_cache.length = before
        if self.keep is None and keep is None:
            return before, None
        known = keep if keep is not None else self.keep
        assert known is not None
        real = torch.ones(batch, max(before, new), dtype=torch.bool, device=known.device)
        old = real[:, :before] if self.keep is None else self.keep[:, :before]
        self.keep = torch.cat((old, real[:, :new] if keep is None else keep), dim=1)
        return before, self.keep

    def select_rows(self, rows: Tensor) -> None:
        """Go on with these rows of the batch: a beam search drops some and doubles others."""
        for layer_cache in self.layers:
            layer_cache.select_rows(rows)
        if self.keep is not None:
            self.keep = self.keep[rows]
        if self.source is not None:
            self.source.select_rows(rows)
