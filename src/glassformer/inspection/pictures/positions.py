"""Plots of positional encodings."""

from typing import Any

import torch
from torch import nn

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.pictures.canvas import CELL, Area, Canvas
from glassformer.inspection.pictures.counting import transitions
from glassformer.inspection.pictures.factors import principal_components
from glassformer.inspection.word_counts import SHOW_ME
from glassformer.nn.positions import sinusoid

POSITIONS, DIM = 40, 32  # size of the positional encoding
PLACES = 7  # positions on the circle around a word


def waves() -> Any:
    """Sinusoidal positional encoding, as waves and as points on circles."""
    values = sinusoid(torch.arange(POSITIONS), DIM)
    chart, (left, *circles) = subplots(1, 4, figsize=(14, 4), width_ratios=(5, 3, 3, 3))
    image = left.imshow(values.T.numpy(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    title = tr("sine and cosine: each pair has a lower frequency")
    left.set(xlabel=tr("position"), ylabel=tr("feature"), title=title)
    chart.colorbar(image, ax=left)
    for ax, pair, labeled in zip(
        circles, (0, 2, 4), (range(6), range(9), range(0, 40, 6)), strict=True
    ):
        x, y = values[:, 2 * pair + 1], values[:, 2 * pair]
        ax.plot(x, y, "o-", markersize=3, linewidth=0.7)
        ax.text(
            0, 0, tr("features\n{a} and {b}", a=2 * pair, b=2 * pair + 1), ha="center", va="center"
        )
        for position in labeled:
            point = (1.14 * float(x[position]), 1.14 * float(y[position]))
            ax.text(*point, str(position), ha="center", va="center", fontsize=8)
        ax.set(aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        ax.axis("off")
    circles[1].set_title(tr("each pair moves around a circle, position by position"))
    return chart


def distances() -> Any:
    """How far the encodings of two positions are apart, and that no two are equal."""
    values = sinusoid(torch.arange(POSITIONS), DIM)
    table = torch.cdist(values, values)
    chart, (left, right) = subplots(1, 2, figsize=(11, 4.2), width_ratios=(1, 1.2))
    image = left.imshow(table.numpy(), cmap="Blues")
    left.set(xlabel=tr("position"), ylabel=tr("position"), title=tr("distance of two encodings"))
    chart.colorbar(image, ax=left)
    for position in (0, POSITIONS // 2, POSITIONS - 1):
        right.plot(table[position], label=tr("from position {n}", n=position))
    smallest = float((table + torch.eye(POSITIONS) * table.max()).min())
    right.set(xlabel=tr("position"), ylabel=tr("distance"))
    right.set_title(
        tr("it depends on the offset; the smallest is {distance}", distance=f"{smallest:.2f}")
    )
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    return chart


def circles() -> Any:
    """Words in two dimensions, each with its vectors at the first positions: points on a circle.

    The vector of a word is made of the words before and after it, in its two principal components.
    """
    words, after = transitions(SHOW_ME, 1)
    neighbors = torch.cat((after, after.T), dim=1)
    points, _ = principal_components(neighbors)
    offsets = 0.2 * sinusoid(torch.arange(PLACES), 2)
    chart, ax = subplots(figsize=(8.2, 6.2))
    for number, (word, point) in enumerate(zip(words, points, strict=True)):
        ring, color = point + offsets, f"C{number}"
        ax.plot(*ring.T, ".-", color=color, linewidth=0.7, markersize=4)
        ax.plot(*point, "o", color=color, markersize=5, label=word)
        for place, spot in enumerate((point + 1.25 * offsets).tolist()):
            ax.annotate(f"{place}", spot, ha="center", va="center", fontsize=6.5, color=color)
    ax.set_title(
        tr("words in two dimensions; small numbers: the word at that position"), fontsize=10
    )
    ax.set_aspect("equal")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, loc="lower left")
    return chart


def concatenation() -> Any:
    """Appending a one-hot position before a matrix adds a position vector after it."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(4, 4, generator=random).round(decimals=1)
    one_hot = torch.eye(4)
    layer = nn.Linear(8, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(4, 8, generator=random).round(decimals=1))
    w_word, w_position = layer.weight.T[:4], layer.weight.T[4:]
    canvas = Canvas(11.4, 5.6, tr("appending a one-hot position = adding a position vector"))
    names = [f"x{i}" for i in range(4)]
    top = canvas.matrix(0.7, 1.35, torch.cat((x, one_hot), dim=1), rows=names)
    canvas.frame(Area(top.left + 4 * CELL, top.top, top.right, top.bottom))
    weights = canvas.matrix(4.3, 0.6, layer.weight.T)
    canvas.frame(Area(weights.left, weights.top + 4 * CELL, weights.right, weights.bottom))
    canvas.text(top.left + 2 * CELL, top.top - 0.15, "x")
    canvas.text(top.left + 6 * CELL, top.top - 0.15, tr("position"))
    canvas.text(weights.right + 0.3, weights.top + 2 * CELL, "W_x")
    canvas.text(weights.right + 0.3, weights.top + 6 * CELL, "W_p")
    canvas.matrix(7.6, 1.35, layer(torch.cat((x, one_hot), dim=1)), decimals=2, rows=names)
    left = canvas.matrix(0.7, 3.9, x @ w_word, rows=names, decimals=2)
    right = canvas.matrix(3.9, 3.9, one_hot @ w_position, decimals=2)
    total = canvas.matrix(7.6, 3.9, x @ w_word + one_hot @ w_position, decimals=2, rows=names)
    for place, text in (
        (top.right + 0.35, "×"), (weights.right + 1.1, "="),
    ):  # fmt: skip
        canvas.text(place, top.y, text, size=14)
    canvas.text((left.right + right.left) / 2, left.y, "+", size=14)
    canvas.text((right.right + total.left) / 2, left.y, "=", size=14)
    canvas.text(left.x, left.bottom + 0.18, "x W_x")
    canvas.text(right.x, left.bottom + 0.18, tr("W_p: one vector for each position"))
    return canvas.figure
