"""Reading a text token by token, with a memory of fixed size."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.nn.cache import RecurrentState
from glassformer.nn.layout import SequenceLayout

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrence(nn.Module):
    """One layer: what it says of a token depends on that token and on its memory of those before.

    Backwards it begins at the end of each text.
    """

    def __init__(self, dim: int, *, cell: str = "lstm", backwards: bool = False) -> None:
        super().__init__()
        self.cell, self.backwards = CELLS[cell](dim, dim, batch_first=True), backwards

    def forward(
        self, x: Tensor, layout: SequenceLayout, state: RecurrentState | None = None
    ) -> Tensor:
        """Read x, b t d, on from what is carried, and carry what is remembered at the end."""
        before = state.state if state else None
        if before is not None and parts(before)[0].shape[1] != len(x):
            held = parts(before)[0].shape[1]
            raise ValueError(f"the cache holds {held} texts; {len(x)} were given")
        keep = None if layout.keep is None else layout.keep[:, -layout.queries :]
        if keep is None and not self.backwards:
            y, after = self.cell(x, before)
        else:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool) if keep is None else keep
            y, after = self.read(x, keep, before)
        if state is not None:
            state.advance(layout.queries, after)
        said: Tensor = y
        return said

    def read(self, x: Tensor, keep: Tensor, before: Any) -> tuple[Tensor, Any]:
        """The same past padding, which neither has an answer nor changes the memory."""
        order = self.order(keep)
        lengths = keep.sum(dim=1)
        rows = x.gather(1, order[..., None].expand_as(x))
        packed = pack_padded_sequence(
            rows, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        y, after = self.cell(packed, before)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        y = y.gather(1, order.argsort(dim=1)[..., None].expand_as(y)) * keep[..., None]
        some = (lengths > 0)[None, :, None]  # a row of padding alone leaves the memory as it was
        pairs = zip(parts(after), parts(before) or [None] * 2, strict=False)
        kept = [torch.where(some, new, new * 0 if old is None else old) for new, old in pairs]
        return y, tuple(kept) if isinstance(after, tuple) else kept[0]

    def order(self, keep: Tensor) -> Tensor:
        """The places of a row's real tokens in the order of reading, then all others: b t."""
        place = torch.arange(keep.shape[1], device=keep.device).expand_as(keep)
        place = -place if self.backwards else place
        return torch.where(keep, place, place + 2 * keep.shape[1]).argsort(dim=1)


def parts(state: Any) -> tuple[Tensor, ...]:
    """What a cell remembers: an LSTM two tensors, a GRU one."""
    return () if state is None else state if isinstance(state, tuple) else (state,)
