"""Ratings and times in the cells of a table, and the scale of ratings."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from glassformer.core.errors import GlassError

MAX_STEPS = 50  # ratings with more different values are continuous
MIN_RATINGS = 100  # needed to tell the steps of a scale


def parse_number(cell: str) -> float | None:
    """A finite number; None if the cell is something else."""
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def parse_time(cell: str) -> float | None:
    """A time in seconds, from a number or a date such as 2026-11-18; None if it is neither."""
    if (number := parse_number(cell)) is not None:
        return number
    try:
        return datetime.fromisoformat(cell.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def check_rating(cell: str) -> str | None:
    return None if parse_number(cell) is not None else f"the rating {cell!r} is not a number"


def check_time(cell: str) -> str | None:
    if parse_time(cell) is not None:
        return None
    return f"the time {cell!r} is neither a number nor a date such as 2026-11-18"


@dataclass(frozen=True)
class Scale:
    """The lowest and the highest rating, and the range outside of which a rating is a mistake."""

    low: float
    high: float
    low_limit: float
    high_limit: float

    @classmethod
    def of(cls, values: Counter[float], given: tuple[float, float] | None) -> "Scale":
        """The scale that was given, or the ratings that occur, without a stray one.

        Continuous ratings have no fixed ends: new ones may lie outside those that occur, by at most
        the distance between these.
        """
        if given:
            return cls(*given, *given)
        kept = drop_stray(values)
        low, high = min(kept), max(kept)
        margin = high - low if len(kept) > MAX_STEPS else 0.0
        return cls(low, high, low - margin, high + margin)

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> "Scale":
        """Read and check the scale in the metadata of a model."""
        parts = [metadata.get(name) for name in ("scale", "limits")]
        values = [value for part in parts if isinstance(part, list) for value in part]
        if len(values) != 4 or not all(isinstance(value, int | float) for value in values):
            raise GlassError(
                f"the scale of the model is corrupted: expected two pairs, got {parts}"
            )
        return cls(*values)

    def contains(self, rating: float) -> bool:
        return self.low_limit <= rating <= self.high_limit

    @property
    def metadata(self) -> dict[str, list[float]]:
        return {"scale": [self.low, self.high], "limits": [self.low_limit, self.high_limit]}


def drop_stray(values: Counter[float]) -> list[float]:
    """The different ratings in ascending order, without a rare one that is far from all others.

    Far is more than the largest step between two others; for few or continuous ratings, more than
    the distance between the lowest and the highest of the others.
    """
    kept = sorted(values)
    has_steps = len(kept) <= MAX_STEPS and values.total() >= MIN_RATINGS
    for end, neighbor in ((0, 1), (-1, -2)):
        others = kept[1:] if end == 0 else kept[:-1]
        if len(others) < 3 or values[kept[end]] > max(0.001 * values.total(), 1):
            continue
        steps = [b - a for a, b in pairwise(others)] if has_steps else [others[-1] - others[0]]
        if abs(kept[end] - kept[neighbor]) > max(steps):
            kept = others
    return kept
