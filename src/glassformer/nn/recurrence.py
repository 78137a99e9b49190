"""Recurrent layers (LSTM, GRU) that skip padding.

Shapes: b batch, t tokens, d features.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.nn.cache import RecurrentState
from glassformer.nn.layout import SequenceLayout

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrence(nn.Module):
    """One recurrent layer; with `reverse` it runs from the end of each sequence to its start."""

    def __init__(self, dim: int, *, cell: str = "lstm", reverse: bool = False) -> None:
        super().__init__()
        self.cell = CELLS[cell](dim, dim, batch_first=True)
        self.reverse = reverse

    def forward(
        self, x: Tensor, layout: SequenceLayout, state: RecurrentState | None = None
    ) -> Tensor:
        """The outputs for x, starting from `state`, which is updated: b t d -> b t d."""
        initial = state.state if state else None
        if initial is not None and (batch := state_tensors(initial)[0].shape[1]) != len(x):
            raise ValueError(f"the cache has batch size {batch}, got {len(x)}")
        keep = None if layout.keep is None else layout.keep[:, -layout.queries :]
        if keep is None and not self.reverse:
            y, final = self.cell(x, initial)
        else:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool) if keep is None else keep
            y, final = self.run_packed(x, keep, initial)
        if state is not None:
            state.advance(layout.queries, final)
        outputs: Tensor = y
        return outputs

    def run_packed(self, x: Tensor, keep: Tensor, initial: Any) -> tuple[Tensor, Any]:
        """Outputs and final state; padding has the output 0 and does not change the state."""
        order = self.reading_order(keep)
        lengths = keep.sum(dim=1)
        rows = x.gather(1, order[..., None].expand_as(x))
        packed = pack_padded_sequence(
            rows, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        y, final = self.cell(packed, initial)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        y = y.gather(1, order.argsort(dim=1)[..., None].expand_as(y)) * keep[..., None]
        has_tokens = (lengths > 0)[None, :, None]  # a row that is all padding keeps its state
        pairs = zip(state_tensors(final), state_tensors(initial) or [None] * 2, strict=False)
        states = [
            torch.where(has_tokens, new, new * 0 if old is None else old) for new, old in pairs
        ]
        return y, tuple(states) if isinstance(final, tuple) else states[0]

    def reading_order(self, keep: Tensor) -> Tensor:
        """The indexes of each row's real tokens in reading order, then those of padding: b t."""
        index = torch.arange(keep.shape[1], device=keep.device).expand_as(keep)
        index = -index if self.reverse else index
        return torch.where(keep, index, index + 2 * keep.shape[1]).argsort(dim=1)


def state_tensors(state: Any) -> tuple[Tensor, ...]:
    """The tensors of a cell's state: two for an LSTM, one for a GRU."""
    return () if state is None else state if isinstance(state, tuple) else (state,)
