"""A worked example: steps, each with a formula, matrices, and a word on why they are so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

BLANK = "____"
Kind = Literal["given", "printed", "right", "made"]


@dataclass(frozen=True)
class Table:
    """A matrix with names for its rows and columns.

    It is given, printed in a text that may be wrong, as it should be, or made by us where that
    text is silent.
    """

    name: str
    values: Tensor  # r c
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    kind: Kind = "made"
    decimals: int = 4  # after the point
    hidden: Tensor | None = None  # r c: what is left out for someone to work out
    shaded: bool = False  # shares from 0 to 1, each on a colour
    gaps: bool = False  # nan stands where there is no number
    whole: bool = False  # every row and column is shown, however many there are

    def first(self, rows: int, columns: int) -> Table:
        """So many rows and columns of it."""
        hidden = None if self.hidden is None else self.hidden[:rows, :columns]
        values, names, above = (
            self.values[:rows, :columns],
            self.rows[:rows],
            self.columns[:columns],
        )
        return replace(self, values=values, rows=names, columns=above, hidden=hidden)

    def cells(self) -> list[list[str]]:
        """The numbers as they are written."""
        rows = [[number(v, self.decimals) for v in row] for row in self.values.tolist()]
        if self.gaps:
            rows = [["–" if cell == "nan" else cell for cell in row] for row in rows]
        if self.hidden is None:
            return rows
        return [
            [BLANK if hidden else cell for cell, hidden in zip(row, out, strict=True)]
            for row, out in zip(rows, self.hidden.tolist(), strict=True)
        ]

    def shades(self) -> list[list[float]]:
        """How dark each cell is, from 0 to 1: nothing that is left out, or that is no share."""
        shown = self.values.nan_to_num(nan=0.0).clamp(0, 1) * self.shaded
        return (shown if self.hidden is None else shown.masked_fill(self.hidden, 0)).tolist()


@dataclass(frozen=True)
class Step:
    title: str
    formula: str = ""
    says: str = ""
    tables: tuple[Table, ...] = ()
    why: str = ""  # the printed numbers differ from the right ones

    def wrong(self, table: Table) -> Tensor:
        """Where a printed table differs from the right one, r c."""
        right = next((t for t in self.tables if t.kind == "right"), None)
        if table.kind != "printed" or right is None or right.values.shape != table.values.shape:
            return torch.zeros_like(table.values, dtype=torch.bool)
        return ~agree(table.values, right.values, table.decimals)


def blank_out(steps: Sequence[Step], share: float = 0.3, seed: int = 0) -> list[Step]:
    """The same with some of the numbers left out that can be worked out from those before."""
    random = torch.Generator().manual_seed(seed)

    def exercise(table: Table) -> Table:
        if table.kind in ("given", "printed"):
            return table
        return replace(table, hidden=torch.rand(table.values.shape, generator=random) < share)

    return [replace(step, tables=tuple(map(exercise, step.tables))) for step in steps]


def agree(printed: Tensor, right: Tensor, decimals: int) -> Tensor:
    """Where a number that was rounded to so many places is what the right one rounds to."""
    return (printed - right).abs() <= 0.5 * 10.0**-decimals + 1e-9


def number(value: float, decimals: int) -> str:
    """As short as it can be written with so many places: 0.5, -inf, 12."""
    if not isfinite(value):
        return str(value)
    text = f"{value:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
