"""Comparisons that raise `BrokenLawError`, with the largest difference."""

import torch
from torch import Tensor

TYPICAL_SIZE = 8.0  # of the largest logit: beyond it, rounding errors grow with the logits


class BrokenLawError(AssertionError):
    """A law does not hold for a network."""

    def __init__(self, reason: str, difference: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.difference = reason, difference
        self.law = self.network = ""  # filled in by the law that was checked

    def __str__(self) -> str:
        text = f"{self.network}: {self.law}: it does not hold {self.reason}"
        return text if self.difference is None else f"{text} (difference {self.difference:.3g})"


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise BrokenLawError(reason)


def require_equal(actual: Tensor, expected: Tensor, reason: str) -> None:
    """Equal bit for bit."""
    require_same_kind(actual, expected, reason)
    if not torch.equal(actual, expected):
        raise BrokenLawError(reason, largest_difference(actual, expected))


def require_close(
    actual: Tensor,
    expected: Tensor,
    tolerance: float,
    reason: str,
    *,
    relative: float | None = None,
) -> None:
    """Equal up to the tolerance, and the same (or a relative) part of each expected value."""
    require_same_kind(actual, expected, reason)
    if not is_close(actual, expected, tolerance, relative):
        raise BrokenLawError(reason, largest_difference(actual, expected))


def require_different(actual: Tensor, expected: Tensor, tolerance: float, reason: str) -> None:
    """Not equal up to the tolerance; with a tolerance of 0, not equal bit for bit."""
    if is_close(actual, expected, tolerance):
        raise BrokenLawError(reason, largest_difference(actual, expected))


def require_same_kind(actual: Tensor, expected: Tensor, reason: str) -> None:
    kinds = [f"{tuple(x.shape)} of {x.dtype}" for x in (actual, expected)]
    require(kinds[0] == kinds[1], f"{reason}: {kinds[0]} in place of {kinds[1]}")


def is_close(
    actual: Tensor, expected: Tensor, tolerance: float, relative: float | None = None
) -> bool:
    finite = expected[expected.isfinite()].abs()
    size = float(finite.max()) if finite.numel() else 0.0
    absolute = tolerance * max(1.0, size / TYPICAL_SIZE)
    allowed = absolute + (tolerance if relative is None else relative) * expected.abs()
    is_near = (actual == expected) | ((actual - expected).abs() <= allowed)
    return bool(is_near.all())


def largest_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest distance of two values; NaN where only one of them is a number."""
    distances = torch.where(actual == expected, 0.0, (actual - expected).abs())
    return float(distances.max()) if distances.numel() else 0.0
