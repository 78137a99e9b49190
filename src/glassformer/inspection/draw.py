"""What plots have in common: heat maps, lines, files; and plots of inspection results."""

import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.heads import ATTENTION_STATS, HeadStats
from glassformer.inspection.patch import PatchResult

T = TypeVar("T")
CELL_SIZE, LETTER_WIDTH = 0.42, 0.11  # inches
MAX_GRID_SIZE = 16.0  # inches
MAX_LABELED_COLUMNS = 24  # with more columns, cells have no numbers
DPI, ANIMATION_DPI = 130, 100
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
ANIMATION_SUFFIXES = (".gif",)


def heat_map(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    axis_names: tuple[str, str] = ("", ""),
    signed: bool = False,
) -> Any:
    """A heat map of values from 0 to 1, or, if signed, from -1 (red) to 1 (blue).

    `rows` and `columns` label the cells; `axis_names` name the vertical and horizontal axis.
    """
    rows, columns = ([*map(show_whitespace, names)] for names in (rows, columns))
    cell = min(CELL_SIZE, MAX_GRID_SIZE / max(len(columns), len(rows)))
    letter = LETTER_WIDTH * cell / CELL_SIZE
    longest_row = max(map(len, rows))
    longest_column = max(map(len, columns))
    width = cell * len(columns) + letter * longest_row + 1.8
    chart, axes = subplots(figsize=(width, cell * len(rows) + letter * longest_column + 1.2))
    style: dict[str, Any] = {"cmap": "RdBu", "vmin": -1} if signed else {"cmap": "Blues", "vmin": 0}
    image = axes.imshow(values.float().cpu().numpy(), vmax=1, aspect="auto", **style)
    rotation = 45 if longest_column > 3 else 0
    fontsize = 10 * cell / CELL_SIZE
    axes.set_xticks(range(len(columns)), columns, rotation=rotation, fontsize=fontsize)
    axes.set_yticks(range(len(rows)), rows, fontsize=fontsize)
    axes.xaxis.tick_top()
    axes.set(ylabel=axis_names[0], xlabel=axis_names[1])
    chart.colorbar(image, ax=axes, shrink=0.6)
    if len(columns) <= MAX_LABELED_COLUMNS:
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                label = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
                color = "white" if abs(value) > 0.6 else "black"
                if abs(value) >= 0.005:
                    axes.text(j, i, label, ha="center", va="center", fontsize=7, color=color)
    if title:
        chart.suptitle(textwrap.fill(title, round(width / LETTER_WIDTH)), fontsize=10)
    return chart


def heads_figure(report: Sequence[HeadStats]) -> Any:
    """What each head attends to, and the effect of ablating it."""
    names, missing = ATTENTION_STATS[:-1], float("nan")  # all but the distance
    rows = [[head.row()[name] for name in names] for head in report]
    fractions = torch.tensor([[missing if v is None else v for v in row] for row in rows])
    size = (9, 0.22 * len(report) + 1.6)
    chart, (left, middle, right) = subplots(1, 3, figsize=size, sharey=True, width_ratios=(3, 2, 2))
    image = left.imshow(fractions.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    left.set_xticks(range(len(names)), [*map(tr, names)], rotation=30, ha="right")
    left.set_yticks(range(len(report)), [head.title for head in report], fontsize=8)
    left.set_title(tr("mean attention weight"), fontsize=10)
    chart.colorbar(image, ax=left, fraction=0.05)
    distances = [head.distance or 0.0 for head in report]
    middle.barh(range(len(report)), distances, color="C2")
    middle.set_title(tr("mean distance, tokens"), fontsize=10)
    right.barh(range(len(report)), [head.cost for head in report], color="C1")
    right.set_title(tr("effect of ablation, nats"), fontsize=10)
    for ax in (middle, right):
        ax.grid(axis="x", alpha=0.3)
    return chart


def patch_figure(result: PatchResult) -> Any:
    """The fraction of the difference that each value recovers, at each token."""
    fractions = torch.stack(list(result.positions.values()))
    clean, corrupt = map(repr, result.answers)
    title = tr(
        "{clean} vs. {corrupt}: fraction recovered by each value", clean=clean, corrupt=corrupt
    )
    return heat_map(fractions, list(result.positions), result.tokens, title=title, signed=True)


def save(chart: Any, file: Path) -> None:
    """Write a figure or an animation to a file; its suffix is the format."""
    is_animation = not hasattr(chart, "savefig")
    suffixes = ANIMATION_SUFFIXES if is_animation else FIGURE_SUFFIXES
    if file.suffix not in suffixes:
        raise GlassError(f"{file}: this plot can be written as {' or '.join(suffixes)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing glyphs: an .svg contains the text itself
        if is_animation:
            chart.save(file, writer="pillow", dpi=ANIMATION_DPI)
        else:
            chart.savefig(file, dpi=DPI)
    if chart.missing:
        characters = "".join(sorted(chart.missing))[:20]
        message = tr(
            "{file}: no installed font has {characters}; drawn as code points instead. For "
            "Chinese, install Noto Sans CJK",
            file=file,
            characters=characters,
        )
        warnings.warn(message, stacklevel=2)


def draw_lines(
    ax: Any, pattern: Tensor, rows: Sequence[str], columns: Sequence[str], *, color: str = "C0",
    offset: float = 0.0,
) -> None:  # fmt: skip
    """Draw lines from query tokens on the left to key tokens on the right, darker for larger
    weights, and lowered by `offset`."""
    for i, row in enumerate(pattern.tolist()):
        for j, weight in enumerate(row):
            if weight > 0.02:
                ends = (-i - offset, -j - offset)
                ax.plot((0, 1), ends, color=color, alpha=min(weight, 1.0), linewidth=2)
    for x, tokens, side in ((-0.03, rows, "right"), (1.03, columns, "left")):
        for i, token in enumerate(tokens):
            ax.text(x, -i, show_whitespace(token), ha=side, va="center", fontsize=9)
    ax.set(xlim=(-0.5, 1.5), ylim=(-max(len(rows), len(columns)) + 0.5, 0.5))
    ax.axis("off")


def find_kind(kinds: Mapping[str, T], kind: str) -> T:
    """The variant of a plot with this name."""
    if kind not in kinds:
        raise GlassError(f"unknown kind {kind!r}: expected one of {', '.join(kinds)}")
    return kinds[kind]
