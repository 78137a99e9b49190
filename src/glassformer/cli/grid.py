"""A grid of weights on a terminal: who reads from whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.words import visible

if TYPE_CHECKING:
    from rich.text import Text

SHADES = " ░▒▓█"
WIDE = 16  # columns that have room for a number


def grid(
    rows: list[list[float]],
    names: Sequence[str],
    columns: Sequence[str] = (),
    most: float | None = None,
) -> Text:
    """Percent on a colour while they fit on a line, and shades alone where there are more.

    Without names of columns the rows read from each other, each from itself and those above. A
    shade is darkest at `most`, or at the largest of its row.
    """
    from rich.text import Text

    wide, room = len(rows[0]) <= WIDE, min(max(12, *map(len, names)), 24)
    text = Text()
    if columns:
        text.append("".join(f"{at:5}  {visible(name)}\n" for at, name in enumerate(columns)))
    text.append(" " * (7 + room) + "".join(f"{at:4}" for at in range(len(rows[0])) if wide))
    for at, (name, row) in enumerate(zip(names, rows, strict=True)):
        text.append(f"\n{at:5}  {visible(name)[:room]:<{room}}")
        for weight in row if columns else row[: at + 1]:
            if wide:
                green, blue = round(20 + weight * 120), round(40 + weight * 160)
                text.append(f"{weight * 100:4.0f}", style=f"white on rgb(20,{green},{blue})")
            else:
                text.append(shade(weight / (most or max(row) or 1.0)) * 2)
    return text


def shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]
