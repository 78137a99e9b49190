"""Attention masks. A mask is a rule about two positions; rules combine with & and |.

Shapes: t queries, s keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """A rule: `allow(i, j)` is true where the query at position i may attend to the key at j.

    Masks with equal names are equal, so the name must describe the rule completely. A kernel
    computes attention with this mask, for as many queries as keys, without the grid of all scores.
    """

    name: str
    allow: Callable[[Tensor, Tensor], Tensor] = field(compare=False)
    kernel: Callable[[Tensor, Tensor, Tensor], Tensor] | None = field(default=None, compare=False)

    def __and__(self, other: Mask) -> Mask:
        return Mask(f"{self} & {other}", lambda i, j: self.allow(i, j) & other.allow(i, j))

    def __or__(self, other: Mask) -> Mask:
        return Mask(f"({self} | {other})", lambda i, j: self.allow(i, j) | other.allow(i, j))

    def __repr__(self) -> str:
        return self.name

    def matrix(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        """The rule as booleans: t s, or h t s if heads have different rules.

        The queries occupy the last `queries` of the `keys` positions.
        """
        i = torch.arange(keys - queries, keys, device=device)
        j = torch.arange(keys, device=device)
        return self.allow(i[:, None], j[None, :])


full = Mask("full", lambda i, j: (i == i) & (j == j))
causal = Mask("causal", lambda i, j: j <= i)


def window(size: int) -> Mask:
    """Keys fewer than `size` positions away."""
    return Mask(f"window({size})", lambda i, j: (i - j).abs() < size)


def strided(stride: int) -> Mask:
    """Keys a multiple of `stride` positions away.

    Combined with a window, this is the "strided" pattern of the Sparse Transformer (Child et al.,
    2019).
    """
    return Mask(f"strided({stride})", lambda i, j: (i - j) % stride == 0)


def chunk(size: int) -> Mask:
    """Keys in the same chunk of `size` positions."""
    return Mask(f"chunk({size})", lambda i, j: i // size == j // size)


def summaries(stride: int, count: int = 1) -> Mask:
    """The last `count` keys of every chunk of `stride` positions."""
    return Mask(
        f"summaries({stride}, {count})", lambda i, j: (i == i) & (j % stride >= stride - count)
    )


def fixed(stride: int, summary: int = 1) -> Mask:
    """Keys in the same chunk of `stride` positions, and the last `summary` keys of every chunk.

    This is the "fixed" pattern of the Sparse Transformer (Child et al., 2019).
    """
    rule = chunk(stride) | summaries(stride, summary)
    return Mask(f"fixed({stride}, {summary})", rule.allow)


def edges(pairs: Iterable[tuple[int, int]]) -> Mask:
    """The pairs of a query and a key in a list, such as the edges of a graph of the tokens.

    A query that is in no pair attends to nothing, so its output is 0. For edges in both directions,
    and for each token itself: `edges(pairs) | edges(reversed pairs) | window(1)`.
    """
    known = sorted(set(pairs))
    if invalid := [pair for pair in known if min(pair) < 0]:
        raise ValueError(f"edges must be pairs of positions from 0, got {invalid[0]}")
    size = 1 + max((position for pair in known for position in pair), default=-1)
    table = torch.zeros(size + 1, size + 1, dtype=torch.bool)  # the last row and column: all others
    for i, j in known:
        table[i, j] = True

    def allow(i: Tensor, j: Tensor) -> Tensor:
        i, j = (torch.where((k >= 0) & (k < size), k, size) for k in (i, j))
        return table.to(i.device)[i, j]

    return Mask(f"edges({', '.join(map(str, known))})", allow)


def per_head(masks: Sequence[Mask], heads: int) -> Mask:
    """A mask that gives each of the masks an equal number of consecutive heads."""
    names = ", ".join(map(str, masks))
    share, rest = divmod(heads, len(masks))
    if rest:
        raise ValueError(f"{heads} heads cannot be shared equally by {len(masks)} masks")

    def allow(i: Tensor, j: Tensor) -> Tensor:
        rules = torch.stack([mask.allow(i, j) for mask in masks], dim=-3)
        return rules.repeat_interleave(share, dim=-3)

    return Mask(f"per_head({names}; {heads})", allow)
