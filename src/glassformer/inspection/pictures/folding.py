"""How all heads are computed at once: one large matrix instead of many small ones.

Shapes: b sequences, t tokens, k features, h heads, s features of a head.
"""

from typing import Any

import torch
from torch import Tensor

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.draw import find_kind
from glassformer.inspection.pictures.canvas import GRAY, LINE, Area, Canvas
from glassformer.nn.attention import Attention
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Trace

HEADS, DIM, TOKENS = 4, 256, 3
COLORS = ("C0", "C1", "C2", "C4")  # of the heads


def folding(kind: str = "columns") -> Any:
    """Several heads: their data flow, the reshaping of tensors, the matrices, or the parameters."""
    kinds = {
        "columns": draw_columns, "reshape": draw_reshape, "projections": draw_projections,
        "parameters": draw_parameters,
    }  # fmt: skip
    return find_kind(kinds, kind)()


def make_attention(dim: int, heads: int) -> Attention:
    """Attention with random weights."""
    layer = Attention(dim, heads, bias=False, out_bias=False)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in layer.parameters():
            weights.copy_(torch.randn(weights.shape, generator=random) * dim**-0.5)
    return layer.eval()


@torch.no_grad()
def draw_columns() -> Any:
    """Input vectors, their small copies, attention, small outputs, and the joined output."""
    layer = make_attention(DIM, HEADS)
    x = torch.randn(1, TOKENS, DIM, generator=torch.Generator().manual_seed(1))
    with Trace(layer) as trace:
        layer(x, SequenceLayout(TOKENS, TOKENS))
    canvas = Canvas(12.6, 6.6)
    joined = trace["head_outputs"].transpose(1, 2).flatten(2)[0]
    s = layer.head_dim
    titles = (
        (0.9, tr("1. input\nt × {k}", k=DIM)),
        (3.4, tr("2. queries, keys, values\nt × {s} each", s=s)),
        (6.0, tr("3. attention\nin each head")), (8.4, tr("4. outputs\nt × {s} each", s=s)),
        (10.9, tr("5. joined\nt × {k}", k=DIM)),
    )  # fmt: skip
    for x_place, title in titles:
        canvas.text(x_place, 0.45, title)
    strips(canvas, 0.65, 1.2, x[0], 4.8)
    strips(canvas, 10.65, 1.2, joined, 4.8)
    for head, color in enumerate(COLORS):
        y = 1.0 + 1.35 * head
        for i, name in enumerate("qkv"):
            area = strips(canvas, 2.5 + 0.7 * i, y, trace[name][0, head], 1.1, color)
            canvas.text(area.x, y + 1.2, name, size=8)
        canvas.box(6.0, y + 0.55, 1.3, tr("head {n}", n=head), height=0.7, colors=("white", color))
        strips(canvas, 8.15, y, trace["head_outputs"][0, head], 1.1, color)
        canvas.arrow((1.35, 3.6), (2.4, y + 0.55), color=color)
        canvas.arrow((4.6, y + 0.55), (5.3, y + 0.55), color=color)
        canvas.arrow((6.7, y + 0.55), (8.05, y + 0.55), color=color)
        canvas.arrow((8.75, y + 0.55), (10.55, 1.8 + 1.2 * head), color=color)
    return canvas.figure


def strips(
    canvas: Canvas, x: float, y: float, values: Tensor, height: float, color: str = LINE
) -> Area:
    """The vector of each token as a column of colors."""
    width = 0.14
    for i, vector in enumerate(values):
        area = Area(x + i * (width + 0.04), y, x + i * (width + 0.04) + width, y + height)
        limit = 1.5 * float(values.abs().max())
        extent = (area.left, area.right, area.bottom, area.top)
        canvas.axes.imshow(vector[:, None].numpy(), cmap="RdBu", vmin=-limit, vmax=limit,
                           extent=extent, aspect="auto")  # fmt: skip
        canvas.frame(area, color, 0.8)
    return Area(x, y, area.right, y + height)


@torch.no_grad()
def draw_reshape() -> Any:
    """Keys of two sequences: b t k -> b t h s -> b h t s -> (b h) t s."""
    layer = make_attention(4, 2)
    batch = 2
    heads = 2
    dim = 4
    x = torch.randn(batch, TOKENS, dim, generator=torch.Generator().manual_seed(1))
    keys = layer.key(x)  # b t k
    by_head = layer.split_heads(keys)  # b h t s
    folded = by_head.flatten(0, 1)  # b*h t s
    canvas = Canvas(11.2, 5.5, tr("the heads become more sequences: one product for all of them"))
    limit = float(keys.abs().max())
    steps = ((0.6, "b t k"), (4.0, "b t h s"), (8.2, "(b h) t s"))
    for x_place, text in steps:
        canvas.text(x_place + 0.9, 0.75, text, size=10)
    for b in range(batch):
        y = 1.15 + 2.1 * b
        area = canvas.matrix(0.6, y, keys[b], decimals=2, limit=limit, cell=0.45)
        canvas.text(0.5, area.y, tr("sequence {n}", n=b), size=8, ha="right", rotation=90)
        for head in range(heads):
            part = keys[b].unflatten(-1, (heads, -1))[:, head]
            place = canvas.matrix(4.0 + 1.3 * head, y, part, decimals=2, limit=limit, cell=0.45)
            canvas.frame(place, COLORS[head], 2)
        canvas.arrow((2.65, area.y), (3.75, area.y))
        canvas.arrow((6.5, area.y), (7.8, area.y))
    for i, part in enumerate(folded):
        b, head = divmod(i, heads)
        place = canvas.matrix(8.6, 0.98 + 1.05 * i, part, decimals=2, limit=limit, cell=0.3, size=6)
        canvas.frame(place, COLORS[head], 2)
        text = tr("sequence {n}, head {head}", n=b, head=head)
        canvas.text(place.right + 0.15, place.y, text, size=8, ha="left")
    canvas.text(4.6, 5.2, tr("no number changes; only the order of the axes does"), color=GRAY)
    return canvas.figure


@torch.no_grad()
def draw_projections() -> Any:
    """One k x k product gives the queries of all heads, side by side."""
    layer = make_attention(8, HEADS)
    x = torch.randn(TOKENS, 8, generator=torch.Generator().manual_seed(1))
    canvas = Canvas(12.0, 4.6, tr("one product with a k × k matrix gives the queries of all heads"))
    left = canvas.matrix(0.6, 1.6, x)
    weights = canvas.matrix(4.5, 0.8, layer.query.weight.T)
    queries = canvas.matrix(8.6, 1.6, layer.query(x))
    for area in (weights, queries):
        part = (area.right - area.left) / HEADS
        for head, color in enumerate(COLORS):
            box = Area(
                area.left + head * part, area.top, area.left + (head + 1) * part, area.bottom
            )
            canvas.frame(box, color, 2.2)
            canvas.text(box.x, box.bottom + 0.17, tr("head {n}", n=head), size=7.5)
    canvas.text(left.x, left.bottom + 0.2, "x: t × k")
    canvas.text(weights.x, weights.bottom + 0.42, tr("W_q: k × k = h matrices k × s"))
    canvas.text(queries.x, queries.bottom + 0.42, "q: t × (h s)")
    canvas.text(3.95, left.y, "×", size=14)
    canvas.text(8.0, left.y, "=", size=14)
    canvas.text(
        6.0, 4.4, tr("keys and values likewise: three k × k products for all heads"), color=GRAY
    )
    return canvas.figure


def draw_parameters() -> Any:
    """The parameters of attention with one head and with several."""
    names = ("W_q", "W_k", "W_v", "W_o")
    chart, ax = subplots(figsize=(8, 3.2))
    labels = []
    for row, heads in enumerate((1, HEADS)):
        layer = Attention(DIM, heads, bias=False, out_bias=False)
        left = 0
        for i, linear in enumerate((layer.query, layer.key, layer.value, layer.out)):
            parts = heads if i < 3 else 1
            for _ in range(parts):
                count = linear.weight.numel() // parts
                ax.barh(row, count, left=left, color=f"C{i}", edgecolor="white")
                left += count
            ax.text(left - linear.weight.numel() / 2, row, names[i], ha="center", va="center")
        labels.append(tr("heads: {heads}, {count} parameters", heads=heads, count=f"{left:,}"))
    ax.set_yticks((0, 1), labels)
    ax.set_title(
        tr(
            "k = {k}: 3 k² = {three} either way, and k² for the output",
            k=DIM,
            three=f"{3 * DIM**2:,}",
        )
    )
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    return chart
