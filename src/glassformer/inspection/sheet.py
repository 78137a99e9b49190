"""A worksheet: steps, each with a formula, an explanation and tables of numbers.

Shapes: r rows, c columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

BLANK = "____"
Kind = Literal["given", "printed", "correct", "computed"]


@dataclass(frozen=True)
class Table:
    """A matrix with labeled rows and columns.

    Its kind: given as input, printed in a tutorial (possibly wrong), the correct version of a
    printed table, or computed from the tables before it.
    """

    name: str
    values: Tensor  # r c
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    kind: Kind = "computed"
    decimals: int = 4
    hidden: Tensor | None = None  # r c: true where a cell is blank, for an exercise
    shaded: bool = False  # color each cell by its value, from 0 to 1
    dash_for_nan: bool = False  # show nan, which means no value, as a dash
    show_all: bool = False  # never crop rows or columns

    def crop(self, rows: int, columns: int) -> Table:
        """Return a table with only the first rows and columns."""
        return replace(
            self,
            values=self.values[:rows, :columns],
            rows=self.rows[:rows],
            columns=self.columns[:columns],
            hidden=None if self.hidden is None else self.hidden[:rows, :columns],
        )

    def cells(self) -> list[list[str]]:
        """The formatted text of each cell."""
        rows = [[format_number(v, self.decimals) for v in row] for row in self.values.tolist()]
        if self.dash_for_nan:
            rows = [["–" if cell == "nan" else cell for cell in row] for row in rows]
        if self.hidden is None:
            return rows
        return [
            [BLANK if hidden else cell for cell, hidden in zip(row, flags, strict=True)]
            for row, flags in zip(rows, self.hidden.tolist(), strict=True)
        ]

    def shades(self) -> list[list[float]]:
        """The color intensity of each cell, 0 to 1; 0 for blanks and unshaded tables."""
        shades = self.values.nan_to_num(nan=0.0).clamp(0, 1) * self.shaded
        return (shades if self.hidden is None else shades.masked_fill(self.hidden, 0)).tolist()


@dataclass(frozen=True)
class Step:
    title: str
    formula: str = ""
    text: str = ""
    tables: tuple[Table, ...] = ()
    note: str = ""  # for example, why printed numbers differ from the correct ones
    code: str = ""  # shown as it is

    def wrong_cells(self, table: Table) -> Tensor:
        """True where a printed table differs from the step's correct table (r c)."""
        correct = next((t for t in self.tables if t.kind == "correct"), None)
        if table.kind != "printed" or correct is None or correct.values.shape != table.values.shape:
            return torch.zeros_like(table.values, dtype=torch.bool)
        return ~equal_when_rounded(table.values, correct.values, table.decimals)


def blank_out(steps: Sequence[Step], fraction: float = 0.3, seed: int = 0) -> list[Step]:
    """Return the steps with a random fraction of the computed numbers left blank."""
    random = torch.Generator().manual_seed(seed)

    def make_exercise(table: Table) -> Table:
        if table.kind in ("given", "printed"):
            return table
        return replace(table, hidden=torch.rand(table.values.shape, generator=random) < fraction)

    return [replace(step, tables=tuple(map(make_exercise, step.tables))) for step in steps]


def equal_when_rounded(printed: Tensor, correct: Tensor, decimals: int) -> Tensor:
    """True where the correct value rounds to the printed one."""
    return (printed - correct).abs() <= 0.5 * 10.0**-decimals + 1e-9


def format_number(value: float, decimals: int) -> str:
    """Format a number with at most `decimals` decimals and no trailing zeros: 0.5, -inf, 12."""
    if not isfinite(value):
        return str(value)
    text = f"{value:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
