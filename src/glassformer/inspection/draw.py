"""Pictures of what a trace holds: tensors in, a figure out."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import GlassError
from glassformer.inspection.heads import LOOKS, Role
from glassformer.inspection.patch import Patched
from glassformer.picture import canvas

SIDE, LETTER = 0.42, 0.11  # inches of a cell, and of a letter
WRITTEN = 24  # columns, up to which each cell has its number


def heat_map(
    values: Tensor, rows: Sequence[str], columns: Sequence[str], *, title: str = ""
) -> Any:
    """A grid of numbers from 0 to 1, dark where they are large: r c."""
    pyplot = canvas()
    beside, above = max(map(len, rows)), max(map(len, columns))
    size = (SIDE * len(columns) + LETTER * beside + 0.8, SIDE * len(rows) + LETTER * above + 1.0)
    chart, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.imshow(values.float().cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(len(columns)), columns, rotation=45 if above > 3 else 0)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    if len(columns) <= WRITTEN:
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                color = "white" if value > 0.6 else "black"
                axes.text(j, i, f"{value:.2f}"[1:] if value < 1 else "1", ha="center",
                          va="center", fontsize=7, color=color)  # fmt: skip
    if title:
        chart.suptitle(textwrap.fill(title, round(size[0] / LETTER)), fontsize=10)
    return chart


def role_map(roles: Sequence[Role]) -> Any:
    """Where each head looks, and what it costs to switch it off."""
    names, nothing = LOOKS[:-1], float("nan")
    found = [[role.row()[name] for name in names] for role in roles]
    shares = torch.tensor([[nothing if share is None else share for share in r] for r in found])
    pyplot = canvas()
    size = (7, 0.22 * len(roles) + 1.6)
    chart, (left, right) = pyplot.subplots(
        1, 2, figsize=size, sharey=True, layout="constrained", width_ratios=(3, 2)
    )
    image = left.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    left.set_xticks(range(len(names)), names, rotation=30, ha="right")
    left.set_yticks(range(len(roles)), [f"{role.name} {role.head}" for role in roles], fontsize=8)
    left.set_title("share of attention", fontsize=10)
    chart.colorbar(image, ax=left, fraction=0.05)
    right.barh(range(len(roles)), [role.cost for role in roles], color="C1")
    right.set_title("cost of its silence, nats", fontsize=10)
    right.grid(axis="x", alpha=0.3)
    return chart


def patch_map(found: Patched) -> Any:
    """How much of a difference each value brings back, at each token."""
    shares = torch.stack(list(found.places.values())).clamp(0, 1)
    same = zip(found.clean, found.corrupt, strict=True)
    columns = [a if a == b else f"{a}/{b}" for a, b in same]
    title = f"{found.answers[0]!r} rather than {found.answers[1]!r}: what each value brings back"
    return heat_map(shares, list(found.places), columns, title=title)


def save(chart: Any, file: Path) -> None:
    if file.suffix not in (".png", ".svg", ".pdf"):
        raise GlassError(f"{file}: a picture is a .png, .svg or .pdf")
    with warnings.catch_warnings(record=True) as missing:
        warnings.simplefilter("always")
        chart.savefig(file, dpi=130)
    canvas().close(chart)
    if missing and file.suffix != ".svg":  # there a text stays a text, for whoever has the font
        warnings.warn(f"no font here has every sign of {file}; as .svg it needs none", stacklevel=2)
