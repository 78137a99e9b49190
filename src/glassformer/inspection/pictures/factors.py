"""Plot the learned features of items.

Shapes: i items, d features.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.data.catalog import Catalog
from glassformer.models.network import ItemVectors, Network

MAX_ITEMS = 40  # with names
MAX_NAME = 34  # characters
SIZE = 7.5  # of the font
GAP = 4.0  # between a point and its name


def principal_components(vectors: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """Vectors in the directions in which they differ most, and each one's share of the variance.

    i d -> i count, count. The sign of a direction is that of its largest entry.
    """
    centered = vectors - vectors.mean(dim=0)
    u, s, v = torch.linalg.svd(centered, full_matrices=False)
    largest = v.gather(1, v.abs().argmax(dim=1, keepdim=True))[:, 0]
    shares = s.square() / s.square().sum().clamp(min=1e-12)
    return (u * s * largest.sign())[:, :count], shares[:count]


def factors(network: Network, task: Mapping[str, Any]) -> Any:
    """Draw the first two principal components of the vectors of the most rated items."""
    if not isinstance(network, ItemVectors) or "items" not in task:
        raise GlassError("`factors` needs a recommender with vectors of items, trained on ratings")
    catalog = Catalog.of(task)
    chosen = torch.from_numpy(catalog.counts()).argsort(descending=True, stable=True)[:MAX_ITEMS]
    vectors = network.item_vectors().detach().float().cpu()[chosen]
    if len(vectors) < 3 or vectors.shape[1] < 2:
        raise GlassError("`factors` needs at least 3 items with at least 2 features")
    points, shares = principal_components(vectors)
    figure, axes = subplots(figsize=(11, 8.5))
    axes.axhline(0, color="lightgray", linewidth=0.8)
    axes.axvline(0, color="lightgray", linewidth=0.8)
    axes.scatter(*points.T, s=14, color="tab:blue")
    axes.margins(x=0.36)
    for number, set_label in enumerate((axes.set_xlabel, axes.set_ylabel)):
        share = f"{shares[number]:.0%}"
        set_label(tr("learned feature {number} ({share})", number=number + 1, share=share))
    figure.draw_without_rendering()  # places the axes
    names = [shorten(catalog.name(item)) for item in chosen.tolist()]
    pixels = axes.transData.transform(points.numpy()) * 72 / figure.dpi
    for point, name, offset in zip(points, names, place_names(pixels, names), strict=True):
        side = "left" if offset[0] > 0 else "right"
        axes.annotate(
            name, point.tolist(), xytext=offset, textcoords="offset points", fontsize=SIZE,
            ha=side, va="center",
        )  # fmt: skip
    return figure


def shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def place_names(points: Any, names: list[str]) -> list[tuple[float, float]]:
    """The offset of each name from its point (n 2, in units of 1/72 inch).

    A name is beside its point, preferably on the side that is farther from the middle, raised or
    lowered as little as possible where another name or the mark of another point is.
    """
    middle = (points[:, 0].min() + points[:, 0].max()) / 2
    marks = [(x - GAP / 2, x + GAP / 2, y) for x, y in points.tolist()]
    placed: list[tuple[float, float, float]] = []  # left, right, height
    offsets = []
    for i, (x, y) in enumerate(points.tolist()):
        width = 0.56 * SIZE * len(names[i])
        outer = GAP if x > middle else -GAP
        taken = [*placed, *marks[:i], *marks[i + 1 :]]
        for step, side in product(range(1000), (outer, -outer)):
            height = y + (step + 1) // 2 * (-1) ** step
            left = x + side if side > 0 else x + side - width
            if not any(
                left < b and a < left + width and abs(height - h) < SIZE for a, b, h in taken
            ):
                break
        placed.append((left, left + width, height))
        offsets.append((side, height - y))
    return offsets
