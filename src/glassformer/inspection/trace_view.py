"""Display a trace: as text in a terminal, as a collapsible tree in a notebook."""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from io import BytesIO

import torch.nn.functional as F
from torch import Tensor

from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.traced_text import TracedText

MAX_SIDE = 24  # maximum rows, and columns, of a thumbnail
MAX_HEADS = 8  # maximum number of thumbnails per value
STYLE = """
.glass-trace { font: 13px/1.4 monospace } .glass-trace summary { cursor: pointer }
.glass-trace details { margin-left: 1.2em } .glass-trace table { margin-left: 1.2em }
.glass-trace td { padding: .1em .8em .1em 0; border: none; white-space: nowrap;
                  text-align: left !important }
.glass-trace td:last-child { white-space: normal }
.glass-trace img { image-rendering: pixelated; margin: 1px 2px }
"""


class TraceView(Mapping[str, Tensor]):
    """Every value of a text's forward pass, by name, in the order of computation.

    If a value is computed several times, `name` is the last one and `name#1` the first.
    """

    def __init__(self, traced: TracedText) -> None:
        self.traced, self.tokens = traced, traced.tokens
        visits = traced.trace.visits
        counts = Counter[str]()
        self.values_by_name = {}
        for name in traced.trace.order:
            counts[name] += 1
            is_last = counts[name] == len(visits[name])
            value = visits[name][counts[name] - 1]
            self.values_by_name[name if is_last else f"{name}#{counts[name]}"] = value

    def __getitem__(self, name: str) -> Tensor:
        value = self.values_by_name.get(name)
        return self.traced.trace[name] if value is None else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    @property
    def title(self) -> str:
        texts = [text for text in (self.traced.source, self.tokens) if text]
        return " → ".join(" | ".join(map(show_whitespace, text)) for text in texts)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [f"{name:<{width}}  {'   '.join(summarize(v))}" for name, v in self.items()]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        inside = f"<style>{STYLE}</style><p>{escape(self.title)}</p>{html_tree(dict(self))}"
        return f'<div class="glass-trace">{inside}</div>'


def html_tree(values: dict[str, Tensor]) -> str:
    """The submodules of a module, collapsible, and its values; its own output has no name."""
    children: dict[str, dict[str, Tensor]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        children.setdefault(first, {})[rest] = value
    parts = []
    for name, below in children.items():
        if list(below) == [""]:
            parts.append(f"<table>{html_row(name or tr('output'), below[''])}</table>")
        else:
            parts.append(f"<details><summary>{escape(name)}</summary>{html_tree(below)}</details>")
    return "".join(parts).replace("</table><table>", "")


def html_row(name: str, value: Tensor) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in (name, *summarize(value)))
    return f"<tr>{cells}<td>{thumbnails(value)}</td></tr>"


def summarize(value: Tensor) -> tuple[str, ...]:
    """The shape of a tensor, and the mean and range of its finite numbers."""
    shape = " × ".join(map(str, value.shape))
    finite = value[value.isfinite()].float()
    if not finite.numel():
        return (shape,)
    return shape, f"mean {finite.mean():.3g}, min {finite.min():.3g}, max {finite.max():.3g}"


def thumbnails(value: Tensor) -> str:
    """Small heat maps of the first sequence: one, or one for each of the first heads."""
    value = value.detach().float()
    value = value[0] if value.ndim > 2 else value
    if value.ndim <= 2:
        return thumbnail(value)
    return "".join(map(thumbnail, value.flatten(0, -3)[:MAX_HEADS]))


def thumbnail(grid: Tensor) -> str:
    """A small heat map of a matrix, or of a vector as one row."""
    from matplotlib import image

    grid = grid if grid.numel() else grid.new_zeros(1)
    grid = grid.reshape(-1, grid.shape[-1]) if grid.ndim else grid.reshape(1, 1)
    low = grid[grid.isfinite()].min() if grid.isfinite().any() else grid.new_zeros(())
    grid = grid.nan_to_num(nan=0.0, posinf=0.0, neginf=float(low))
    size = tuple(min(n, MAX_SIDE) for n in grid.shape)
    grid = F.adaptive_avg_pool2d(grid[None, None], size)[0, 0]  # type: ignore[arg-type]
    file = BytesIO()
    image.imsave(file, grid.cpu().numpy(), cmap="viridis", format="png")
    data = base64.b64encode(file.getvalue()).decode()
    height, width = (max(4 * n, 8) for n in size)
    style = f"width: {width}px; height: {height}px"
    return f'<img alt="" style="{style}" src="data:image/png;base64,{data}">'
