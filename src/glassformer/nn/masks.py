"""Who may look at whom. A mask is a rule about positions; rules combine with & and |."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """A rule: `allow(i, j)` is true where the query at i may look at the key at j.

    The name says all that the rule does, so masks with equal names are equal.
    """

    name: str
    allow: Callable[[Tensor, Tensor], Tensor] = field(compare=False)

    def __and__(self, other: Mask) -> Mask:
        return Mask(f"{self} & {other}", lambda i, j: self.allow(i, j) & other.allow(i, j))

    def __or__(self, other: Mask) -> Mask:
        return Mask(f"({self} | {other})", lambda i, j: self.allow(i, j) | other.allow(i, j))

    def __repr__(self) -> str:
        return self.name

    def matrix(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        """The rule as booleans, t s. The queries are the last of the keys, as in decoding."""
        i = torch.arange(keys - queries, keys, device=device)
        j = torch.arange(keys, device=device)
        return self.allow(i[:, None], j[None, :])


full = Mask("full", lambda i, j: (i == i) & (j == j))
causal = Mask("causal", lambda i, j: j <= i)


def window(size: int) -> Mask:
    """Those less than `size` places away."""
    return Mask(f"window({size})", lambda i, j: (i - j).abs() < size)


def strided(stride: int) -> Mask:
    """Those a multiple of `stride` places away."""
    return Mask(f"strided({stride})", lambda i, j: (i - j) % stride == 0)


def fixed(stride: int, summary: int = 1) -> Mask:
    """Its own stretch of `stride` places, and the last `summary` places of every stretch."""
    return Mask(
        f"fixed({stride}, {summary})",
        lambda i, j: (i // stride == j // stride) | (j % stride >= stride - summary),
    )
