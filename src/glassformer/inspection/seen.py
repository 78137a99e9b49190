"""What a trace of a text shows of itself: a text in a terminal, a foldable page in a notebook."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from html import escape
from io import BytesIO

import torch.nn.functional as F
from torch import Tensor

from glassformer.inspection.reading import Reading

SIDE = 24  # the most rows and columns of a small picture
STYLE = "font: 13px/1.4 monospace"


class Seen(Mapping[str, Tensor]):
    """Every value on a text's way through a model, by its name."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.tokens = reading, reading.tokens

    def __getitem__(self, name: str) -> Tensor:
        return self.reading.trace[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.reading.trace)

    def __len__(self) -> int:
        return len(self.reading.trace)

    def __repr__(self) -> str:
        wide = max(map(len, self), default=0)
        lines = [f"{name:<{wide}}  {facts(value)}" for name, value in self.items()]
        return "\n".join([" | ".join(self.tokens), *lines])

    def _repr_html_(self) -> str:
        """Parts of the model to unfold, each value with a small picture."""
        tree: dict[str, object] = {}
        for name, value in self.items():
            *path, leaf = name.split(".")
            branch = tree
            for part in path:
                below = branch.setdefault(part, {})
                if isinstance(below, Tensor):  # a part that says something itself
                    below = branch[part] = {"": below}
                branch = below  # type: ignore[assignment]
            if isinstance(branch.get(leaf), dict):
                branch[leaf][""] = value  # type: ignore[index]
            else:
                branch[leaf] = value
        head = escape(" | ".join(self.tokens))
        return f'<div style="{STYLE}"><p>{head}</p>{"".join(unfolded(tree))}</div>'


def unfolded(tree: dict[str, object]) -> Iterator[str]:
    for name, what in tree.items():
        if isinstance(what, Tensor):
            said = escape(f"{name} {facts(what)}".strip())
            yield f'<div style="margin-left: 1.5em">{said} {picture(what)}</div>'
        elif isinstance(what, dict):
            inside = "".join(unfolded(what))
            yield (
                f'<details style="margin-left: 1.5em"><summary>{escape(name)}</summary>'
                f"{inside}</details>"
            )


def facts(value: Tensor) -> str:
    """Its shape, and how large its numbers are."""
    shape, finite = " × ".join(map(str, value.shape)), value[value.isfinite()].float()
    if not finite.numel():
        return shape
    return f"{shape}   mean {finite.mean():.3g}, from {finite.min():.3g} to {finite.max():.3g}"


def picture(value: Tensor) -> str:
    """A small heat map of the first text, and of the first head."""
    from matplotlib import image

    grid = value.detach().float()
    while grid.ndim > 2:
        grid = grid[0]
    grid = grid.reshape(-1, grid.shape[-1]) if grid.ndim else grid.reshape(1, 1)
    low = grid[grid.isfinite()].min() if grid.isfinite().any() else grid.new_zeros(())
    grid = grid.nan_to_num(nan=0.0, posinf=0.0, neginf=float(low))
    size = tuple(min(n, SIDE) for n in grid.shape)
    grid = F.adaptive_avg_pool2d(grid[None, None], size)[0, 0]  # type: ignore[arg-type]
    file = BytesIO()
    image.imsave(file, grid.cpu().numpy(), cmap="viridis", format="png")
    data = base64.b64encode(file.getvalue()).decode()
    tall, wide = (max(4 * n, 8) for n in size)
    look = f"width: {wide}px; height: {tall}px; image-rendering: pixelated; vertical-align: middle"
    return f'<img alt="" style="{look}" src="data:image/png;base64,{data}">'
