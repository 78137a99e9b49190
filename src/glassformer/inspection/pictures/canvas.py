"""A drawing of boxes, arrows and matrices, measured in inches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.core.figures import subplots
from glassformer.core.i18n import show_whitespace

CELL = 0.36  # size of a cell of a matrix
LINE = "#4c6f9c"
GRAY = "#666"
ACCENT = "#c0392b"
PLAIN, LIT = ("#eef1f5", "#8a94a3"), ("#ffd76b", "#b07c00")  # face and edge of a box


@dataclass(frozen=True)
class Area:
    """Where something was drawn."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def x(self) -> float:
        return (self.left + self.right) / 2

    @property
    def y(self) -> float:
        return (self.top + self.bottom) / 2


class Canvas:
    """A figure without axes: x goes from the left to the right, y from the top down."""

    def __init__(self, width: float, height: float, title: str = "") -> None:
        self.figure, self.axes = subplots(figsize=(width, height))
        self.figure.set_layout_engine("none")
        self.axes.set_position((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")
        if title:
            self.text(width / 2, 0.25, title, size=11)

    def text(self, x: float, y: float, text: str, *, size: float = 9, **options: Any) -> None:
        options = {"ha": "center", "va": "center", "fontsize": size} | options
        self.axes.text(x, y, text, **options)

    def box(
        self, x: float, y: float, width: float, text: str = "", *, height: float = 0.4,
        colors: tuple[str, str] = PLAIN, size: float = 9,
    ) -> Area:  # fmt: skip
        """A box around the point (x, y) with a text in it."""
        from matplotlib.patches import FancyBboxPatch

        area = Area(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        corner = (area.left, area.top)
        style = f"round,pad=0,rounding_size={min(0.07, height / 3)}"
        face, edge = colors
        self.axes.add_patch(
            FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=face, edgecolor=edge)
        )
        self.text(x, y, text, size=size)
        return area

    def frame(self, area: Area, color: str = ACCENT, width: float = 1.6) -> None:
        """A frame around an area."""
        from matplotlib.patches import Rectangle

        corner = (area.left, area.top)
        size = (area.right - area.left, area.bottom - area.top)
        self.axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=color, linewidth=width))

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], *, color: str = GRAY,
        width: float = 1.0, bend: float = 0.0, style: str = "-|>",
    ) -> None:  # fmt: skip
        self.axes.annotate(
            "", end, start,
            arrowprops={"arrowstyle": style, "color": color, "linewidth": width, "shrinkA": 1,
                        "shrinkB": 1, "connectionstyle": f"arc3,rad={bend}"},
        )  # fmt: skip

    def line(self, *points: tuple[float, float], color: str = GRAY, **options: Any) -> None:
        options = {"linewidth": 1.0} | options
        self.axes.plot(*zip(*points, strict=True), color=color, **options)

    def matrix(
        self, x: float, y: float, values: Tensor, *, rows: Sequence[str] = (),
        columns: Sequence[str] = (), title: str = "", cell: float = CELL, decimals: int | None = 1,
        limit: float | None = None, size: float = 7.5,
    ) -> Area:  # fmt: skip
        """A matrix with its top left corner at (x, y); without `decimals`, only colors.

        Values from -limit to limit are red to blue; the limit is by default the largest.
        """
        values = values.detach().float().cpu()
        height, width = values.shape
        area = Area(x, y, x + width * cell, y + height * cell)
        finite = values.where(values.isfinite(), 0)
        limit = limit or max(float(finite.abs().max()), 1e-9)
        extent = (area.left, area.right, area.bottom, area.top)
        shades = values.where(values.isfinite(), torch.nan)
        self.axes.imshow(
            shades.numpy(), cmap="RdBu", vmin=-1.4 * limit, vmax=1.4 * limit, extent=extent,
            aspect="auto",
        )  # fmt: skip
        self.frame(area, "#8a94a3", 0.8)
        for i, row in enumerate(values.tolist() if decimals is not None else []):
            for j, value in enumerate(row):
                center = x + (j + 0.5) * cell, y + (i + 0.5) * cell
                color = "white" if 0.85 * limit < abs(value) < torch.inf else "black"
                self.text(*center, format_number(value, decimals or 0), size=size, color=color)
        for i, name in enumerate(rows):
            self.text(x - 0.08, y + (i + 0.5) * cell, show_whitespace(name), size=8, ha="right")
        is_long = max(map(len, columns), default=0) > 3
        for j, name in enumerate(columns):
            place = x + (j + 0.5) * cell, y - 0.08
            options = {"ha": "left", "rotation": 45} if is_long else {"ha": "center"}
            self.text(*place, show_whitespace(name), size=8, va="bottom", **options)
        if title:
            self.text(area.x, area.bottom + 0.17, title, size=9)
        return area

    def cell(self, area: Area, row: int, column: int, cell: float = CELL) -> Area:
        """The area of a cell of a matrix."""
        x, y = area.left + column * cell, area.top + row * cell
        return Area(x, y, x + cell, y + cell)

    def row(self, area: Area, row: int, cell: float = CELL) -> Area:
        """The area of a row of a matrix."""
        return Area(area.left, area.top + row * cell, area.right, area.top + (row + 1) * cell)


def format_number(value: float, decimals: int) -> str:
    """A short form of a number: .5, −.25, 0, −∞."""
    if value in (float("inf"), -float("inf")):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{value:.0f}"
    text = "0" if text in ("-0", "") else text
    return text.replace("-", "−").replace("0.", ".") if abs(value) < 1 else text.replace("-", "−")
