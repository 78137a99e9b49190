"""When memory runs out: how it shows, and what would fit."""

from __future__ import annotations

from collections.abc import Callable

import torch

from glassformer.errors import GlassError
from glassformer.tasks.task import Batch


class TooLongError(GlassError):
    """Not even one text of this length fits; one of `fits` tokens does, unless that is 0."""

    def __init__(self, length: int, fits: int) -> None:
        way = f"{fits} do: --set model.context={fits}, or --fit" if fits else "no shorter one does"
        super().__init__(f"one text of {length} tokens needs more memory than there is; {way}")
        self.fits = fits


def is_memory_error(error: BaseException) -> bool:
    """Whether an error of torch or Python means that memory ran out."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    words = ("allocate memory", "not enough memory", "out of memory")
    return isinstance(error, kinds) or any(word in str(error) for word in words)


def shorter(batch: Batch, fits: Callable[[Batch], bool]) -> int:
    """The longest of half, a quarter, ... of a batch's length that fits; 0 if none does."""
    length = next(iter(batch.values())).shape[1]
    while length > 8:
        length //= 2
        cut = {name: v[:, :length] if v.ndim > 1 else v for name, v in batch.items()}
        if fits(cut):
            return length
    return 0
