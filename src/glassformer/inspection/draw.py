"""Pictures of what a trace holds: tensors in, a figure out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from glassformer.picture import canvas

SIDE = 0.42  # inches of a cell
WRITTEN = 24  # columns, up to which each cell has its number


def heat_map(
    values: Tensor, rows: Sequence[str], columns: Sequence[str], *, title: str = ""
) -> Any:
    """A grid of numbers from 0 to 1, dark where they are large: r c."""
    pyplot = canvas()
    size = (SIDE * len(columns) + 1.8, SIDE * len(rows) + 1.2)
    chart, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.imshow(values.float().cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(len(columns)), columns, rotation=45 if max(map(len, columns)) > 3 else 0)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    if len(columns) <= WRITTEN:
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                color = "white" if value > 0.6 else "black"
                axes.text(j, i, f"{value:.2f}"[1:] if value < 1 else "1", ha="center",
                          va="center", fontsize=7, color=color)  # fmt: skip
    if title:
        axes.set_title(title, fontsize=10)
    return chart
