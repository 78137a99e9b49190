"""What a trace of a text shows of itself: a text in a terminal, a foldable page in a notebook."""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from io import BytesIO

import torch.nn.functional as F
from torch import Tensor

from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.traced_text import TracedText

SIDE, HEADS = 24, 8  # the most rows and columns of a small picture, and of those side by side
STYLE = """
.glass-trace { font: 13px/1.4 monospace } .glass-trace summary { cursor: pointer }
.glass-trace details { margin-left: 1.2em } .glass-trace table { margin-left: 1.2em }
.glass-trace td { padding: .1em .8em .1em 0; border: none; white-space: nowrap;
                  text-align: left !important }
.glass-trace td:last-child { white-space: normal }
.glass-trace img { image-rendering: pixelated; margin: 1px 2px }
"""


class TraceView(Mapping[str, Tensor]):
    """Every value on a text's way through a model, by its name, in the order in which they came.

    A value that comes by several times has its name at the last, and is name#1 at the first.
    """

    def __init__(self, traced: TracedText) -> None:
        self.traced, self.tokens = traced, traced.tokens
        visits, seen, self.values_by_name = traced.trace.visits, Counter[str](), {}
        for name in traced.trace.order:
            seen[name] += 1
            last = seen[name] == len(visits[name])
            value = visits[name][seen[name] - 1]
            self.values_by_name[name if last else f"{name}#{seen[name]}"] = value

    def __getitem__(self, name: str) -> Tensor:
        found = self.values_by_name.get(name)
        return self.traced.trace[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    @property
    def title(self) -> str:
        texts = [text for text in (self.traced.source, self.tokens) if text]
        return " → ".join(" | ".join(map(show_whitespace, text)) for text in texts)

    def __repr__(self) -> str:
        wide = max(map(len, self), default=0)
        lines = [f"{name:<{wide}}  {'   '.join(facts(value))}" for name, value in self.items()]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        """Parts of the model to unfold, each value with a small picture."""
        inside = f"<style>{STYLE}</style><p>{escape(self.title)}</p>{part(dict(self))}"
        return f'<div class="glass-trace">{inside}</div>'


def part(values: dict[str, Tensor]) -> str:
    """A part of a model: the parts in it to unfold, in the order in which they speak, and what it
    says itself, under no name."""
    inside: dict[str, dict[str, Tensor]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        inside.setdefault(first, {})[rest] = value
    pieces = []
    for name, below in inside.items():
        if list(below) == [""]:
            pieces.append(f"<table>{row(name or tr('all of it'), below[''])}</table>")
        else:
            pieces.append(f"<details><summary>{escape(name)}</summary>{part(below)}</details>")
    return "".join(pieces).replace("</table><table>", "")


def row(name: str, value: Tensor) -> str:
    cells = (name, *facts(value))
    told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr>{told}<td>{pictures(value)}</td></tr>"


def facts(value: Tensor) -> tuple[str, ...]:
    """Its shape, and how large its numbers are."""
    shape, finite = " × ".join(map(str, value.shape)), value[value.isfinite()].float()
    if not finite.numel():
        return (shape,)
    return shape, f"mean {finite.mean():.3g}, from {finite.min():.3g} to {finite.max():.3g}"


def pictures(value: Tensor) -> str:
    """Small heat maps of the first text: one, or one for each of the first heads."""
    value = value.detach().float()
    value = value[0] if value.ndim > 2 else value
    if value.ndim <= 2:
        return picture(value)
    return "".join(map(picture, value.flatten(0, -3)[:HEADS]))


def picture(grid: Tensor) -> str:
    """A heat map of a grid, r c, or of what is one row of it."""
    from matplotlib import image

    grid = grid.reshape(-1, grid.shape[-1]) if grid.ndim else grid.reshape(1, 1)
    low = grid[grid.isfinite()].min() if grid.isfinite().any() else grid.new_zeros(())
    grid = grid.nan_to_num(nan=0.0, posinf=0.0, neginf=float(low))
    size = tuple(min(n, SIDE) for n in grid.shape)
    grid = F.adaptive_avg_pool2d(grid[None, None], size)[0, 0]  # type: ignore[arg-type]
    file = BytesIO()
    image.imsave(file, grid.cpu().numpy(), cmap="viridis", format="png")
    data = base64.b64encode(file.getvalue()).decode()
    tall, wide = (max(4 * n, 8) for n in size)
    return (
        f'<img alt="" style="width: {wide}px; height: {tall}px" src="data:image/png;base64,{data}">'
    )
