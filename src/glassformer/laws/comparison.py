"""Comparisons that raise `BrokenLawError` with the largest difference.

A `reason` completes the sentence "the law does not hold ...".
"""

import torch
from torch import Tensor

TYPICAL_SIZE = 8.0  # of the largest logit; above it, the absolute tolerance grows with the logits


class BrokenLawError(AssertionError):
    """A law does not hold for a network."""

    def __init__(self, reason: str, difference: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.difference = reason, difference
        self.law = self.network = ""  # set by the law that was checked

    def __str__(self) -> str:
        text = f"{self.network}: the law {self.law!r} does not hold {self.reason}"
        return text if self.difference is None else f"{text} (difference {self.difference:.3g})"


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise BrokenLawError(reason)


def require_equal(actual: Tensor, expected: Tensor, reason: str) -> None:
    """Require equality bit for bit."""
    require_same_type(actual, expected, reason)
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
    """Require equality up to an absolute tolerance and a relative one, by default the same."""
    require_same_type(actual, expected, reason)
    if not is_close(actual, expected, tolerance, relative):
        raise BrokenLawError(reason, largest_difference(actual, expected))


def require_different(actual: Tensor, expected: Tensor, tolerance: float, reason: str) -> None:
    """Require a difference above the tolerance, at least at one element."""
    if is_close(actual, expected, tolerance):
        raise BrokenLawError(reason, largest_difference(actual, expected))


def require_same_type(actual: Tensor, expected: Tensor, reason: str) -> None:
    types = [f"{tuple(x.shape)} of {x.dtype}" for x in (actual, expected)]
    require(types[0] == types[1], f"{reason}: expected {types[1]}, got {types[0]}")


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
    """The largest absolute difference; NaN if there is a NaN."""
    differences = torch.where(actual == expected, 0.0, (actual - expected).abs())
    return float(differences.max()) if differences.numel() else 0.0
