"""When memory runs out: how it shows, and what would fit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from glassformer.errors import GlassError
from glassformer.tasks.task import Batch


class TooLongError(GlassError):
    """Not even one text of this length fits; one of `fits` tokens does, unless that is 0."""

    def __init__(self, length: int, fits: int) -> None:
        way = f"{fits} do: --set model.context={fits}, or --fit" if fits else "no shorter one does"
        super().__init__(f"one text of {length} tokens needs more memory than there is; {way}")
        self.fits = fits


def shorter(batch: Batch, fits: Callable[[Batch], bool]) -> int:
    """The longest of half, a quarter, ... of a batch's length that fits; 0 if none does."""
    length = next(iter(batch.values())).shape[1]
    while length > 8:
        length //= 2
        cut = {name: v[:, :length] if v.ndim > 1 else v for name, v in batch.items()}
        if fits(cut):
            return length
    return 0


def total_memory() -> float:
    """The memory of this machine in GB; infinite where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return math.inf
