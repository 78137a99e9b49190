"""Where the positions of an image look: attention patterns drawn over the image.

Shapes: h heads, t query positions, s key positions, c channels, y rows, x columns.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.traced_text import find_layer
from glassformer.models.network import Network, Trait
from glassformer.tasks.task import Codec, move_to_device
from glassformer.trace import Trace

QUERIES = 3  # rows and columns of query positions that are drawn


@dataclass(frozen=True)
class TracedImage:
    """An image that a network read or painted, and the patterns of its attention layers."""

    pixels: NDArray[np.float32]  # y x c, from 0 to 1
    patterns: dict[str, Tensor]  # by the name of the layer: h t s
    title: str


@torch.no_grad()
def trace_image(network: Network, codec: Codec, example: str) -> TracedImage:
    """Run an image file through a classifier, or let a painter paint a class, and trace it.

    For a painter, `example` is a class, or a class and a seed: 3, or 3:42.
    """
    is_painter = network.has(Trait.PAINTER)
    parsed = parse_class(example)
    inputs = move_to_device(codec.encode([parsed if is_painter else example]), network)
    with Trace(network, "*.pattern", allow_missing=True) as trace:
        output = network(**inputs)
    patterns = {n.removesuffix(".pattern"): v[0].float().cpu() for n, v in trace.items()}
    if not patterns:
        raise GlassError("this model has no attention layers")
    image = (output if is_painter else inputs["pixels"])[0].float().cpu()  # c y x
    low = float(image.min())
    high = float(image.max())
    pixels = ((image - low) / max(high - low, 1e-9)).permute(1, 2, 0).numpy()
    title = example
    if not is_painter:
        label, prob = next(iter(codec.decode(codec.run(network, inputs))[0].items()))
        title = f"{label} ({prob:.0%})"
    return TracedImage(pixels, patterns, title)


def parse_class(example: str) -> tuple[str, int]:
    """The class and the seed of an image to paint."""
    label, _, seed = example.rpartition(":")
    return (label, int(seed)) if label and seed.isdecimal() else (example, 0)


def grid_of(count: int, height: int, width: int) -> tuple[int, int]:
    """The rows and columns of `count` positions that cover an image of this size evenly."""
    rows = round(math.sqrt(count * height / width))
    return rows, count // rows


def gaze(traced: TracedImage, layer: int | str | None = None, head: int = 0) -> Any:
    """The image, and for nine of its positions a map of where they look."""
    name, pattern = find_layer(traced.patterns, layer, head)
    height, width = traced.pixels.shape[:2]
    (rows, columns), keys = (grid_of(n, height, width) for n in pattern.shape)
    chart, axes = subplots(QUERIES, QUERIES + 1, figsize=(9, 7))
    for axis in axes.flat:
        axis.set_axis_off()
    extent = (0, width, height, 0)
    axes[0][0].imshow(traced.pixels, cmap="gray", extent=extent)
    axes[0][0].set_title(traced.title, fontsize=10)
    mean_map = pattern.mean(dim=0).reshape(keys)
    axes[1][0].imshow(mean_map.numpy(), cmap="magma", extent=extent)
    axes[1][0].set_title(tr("mean over all positions"), fontsize=9)
    for i in range(QUERIES):
        for j in range(QUERIES):
            row, column = ((2 * k + 1) * n // (2 * QUERIES) for k, n in ((i, rows), (j, columns)))
            axis = axes[i][j + 1]
            axis.imshow(traced.pixels, cmap="gray", extent=extent)
            weights = pattern[row * columns + column].reshape(keys)
            axis.imshow(weights.numpy(), cmap="magma", extent=extent, alpha=0.6, vmin=0)
            x = (column + 0.5) * width / columns
            y = (row + 0.5) * height / rows
            axis.plot([x], [y], marker="s", color="cyan", markersize=5)
            axis.set_title(tr("from the square: max {weight:.2f}", weight=float(weights.max())),
                           fontsize=8)  # fmt: skip
    chart.suptitle(tr("{name}, head {head}: where nine positions look", name=name, head=head))
    return chart
