"""Attention of one token, number by number: from its query to its output.

Shapes: t tokens, d features, e features of a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.draw import find_kind
from glassformer.inspection.pictures.canvas import GRAY, Canvas
from glassformer.inspection.pictures.folding import make_attention
from glassformer.inspection.traced_text import TracedText, find_head
from glassformer.models.network import Network
from glassformer.nn.attention import PlainAttention
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Trace, list_values

MAX_FEATURES, MAX_TOKENS = 6, 12
HEIGHT = 0.5  # of a row
INPUTS = ("x₁", "x₂", "x₃", "x₄")
TITLES = {
    "qkv": "attention of one token",
    "plain": "attention without parameters: a mean of the inputs, weighted by their dot products",
}


@dataclass(frozen=True)
class Flow:
    """The values of one head."""

    queries: Sequence[str]  # tokens
    keys: Sequence[str]  # tokens
    x: Tensor | None  # t d: the inputs of the layer
    q: Tensor  # t e
    k: Tensor  # s e
    v: Tensor  # s e
    scores: Tensor  # t s
    pattern: Tensor  # t s
    output: Tensor  # t e
    formula: str  # of the scores
    letters: str = "qkv"  # names of the query, the keys and the values


def flow(
    traced: TracedText,
    network: Network,
    layer: int | str | None = None,
    head: int = 0,
    token: int | None = None,
) -> Any:
    """The attention of one token in a trained model; by default of the last token."""
    found = find_head(traced, layer, head)
    trace = traced.trace
    names = ("q", "k", "v", "scores", "head_outputs")
    if any(f"{found.name}.{name}" not in trace for name in names):
        raise GlassError(f"{found.name} has no queries, keys and values to draw")

    def one_head(name: str) -> Tensor:
        value = trace[f"{found.name}.{name}"][0].float().cpu()
        group = head * len(value) // len(trace[f"{found.name}.q"][0])
        return value[group]

    values = {name: one_head(name) for name in names}
    q, k, v, scores, output = (values[name] for name in names)
    keys = found.columns[: scores.shape[-1]]
    before = f"{found.name}_norm"
    is_input = before in trace and trace.order.index(before) < trace.order.index(f"{found.name}.q")
    has_input = is_input and not found.name.endswith("cross")  # not a norm of the output
    x = trace[before][0].float().cpu() if has_input else None
    formula = formula_of(network, f"{found.name}.scores")
    pattern = found.pattern.float().cpu()
    result = Flow(found.rows, keys, x, q, k, v, scores, pattern, output, formula)
    return draw_flow(result, token, f"{found.name}, {tr('head {n}', n=head)}")


def formula_of(module: nn.Module, name: str) -> str:
    declared = list_values(module)[name]
    return declared.formula if declared else ""


@torch.no_grad()
def self_attention(kind: str = "qkv", token: int = 1) -> Any:
    """Attention of one of four inputs, with queries, keys and values, or without parameters; or
    of all of them, as products of matrices."""
    attend = find_kind(KINDS, kind)
    x = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(3)).mul(0.6).round(decimals=1)
    if kind == "matrices":
        return draw_matrices(attend(x))
    return draw_flow(attend(x), token, tr(TITLES[kind]))


def attend_with_weights(x: Tensor) -> Flow:
    layer = make_attention(4, 1)
    with Trace(layer) as trace:
        layer(x, SequenceLayout(4, 4))
    q, k, v, scores, pattern, output = (
        trace[name][0, 0] for name in ("q", "k", "v", "scores", "pattern", "head_outputs")
    )
    formula = formula_of(layer, "scores")
    return Flow(INPUTS, INPUTS, x[0], q, k, v, scores, pattern, output, formula)


def attend_without_weights(x: Tensor) -> Flow:
    layer = PlainAttention()
    with Trace(layer) as trace:
        output = layer(x, SequenceLayout(4, 4))[0]
    scores, pattern = (trace[name][0, 0] for name in ("scores", "pattern"))
    formula, (y,) = formula_of(layer, "scores"), x
    return Flow(INPUTS, INPUTS, None, y, y, y, scores, pattern, output, formula, "xxx")


KINDS = {
    "qkv": attend_with_weights,
    "plain": attend_without_weights,
    "matrices": attend_with_weights,
}


def draw_matrices(flow: Flow) -> Any:
    """Attention of all tokens at once: three products, the scores, the softmax, and the output."""
    assert flow.x is not None
    layer = make_attention(4, 1)
    canvas = Canvas(13.2, 6.6, tr("attention of all tokens at once: products of matrices"))
    products = (("Q", layer.query.weight.T, flow.q), ("K", layer.key.weight.T, flow.k),
                ("V", layer.value.weight.T, flow.v))  # fmt: skip
    for row, (name, weights, result) in enumerate(products):
        parts = (("X", flow.x), (f"W_{name.lower()}", weights), (name, result))
        draw_product(canvas, 0.6, 0.85 + 1.95 * row, parts)
    root = f"√{flow.k.shape[1]}"
    scaled = flow.k.T / flow.k.shape[1] ** 0.5
    parts = (("Q", flow.q), (f"Kᵀ / {root}", scaled), (tr("scores"), flow.scores))
    draw_product(canvas, 7.2, 0.85, parts)
    canvas.arrow((11.92, 2.6), (11.92, 2.95))
    canvas.text(11.8, 2.77, "softmax", ha="right", color=GRAY)
    canvas.matrix(11.2, 3.0, flow.pattern, decimals=2, title=tr("weights"))
    parts = ((tr("weights"), flow.pattern), ("V", flow.v), (tr("output"), flow.output))
    draw_product(canvas, 7.2, 4.75, parts)
    return canvas.figure


def draw_product(canvas: Canvas, x: float, y: float, parts: Sequence[tuple[str, Tensor]]) -> None:
    """Two matrices, their product, and the signs between them."""
    for i, (name, values) in enumerate(parts):
        area = canvas.matrix(x + 2 * i, y, values, decimals=2, title=name, size=6.5)
        if i:
            canvas.text(area.left - 0.28, area.y, "×" if i == 1 else "=", size=14)


def draw_flow(flow: Flow, token: int | None, title: str) -> Any:
    """Columns from left to right: inputs, query, keys, scores, weights, values, their products."""
    index = len(flow.queries) - 1 if token is None else token
    if not 0 <= index < len(flow.queries):
        raise GlassError(
            f"the text has tokens 0 to {len(flow.queries) - 1}; there is no token {index}"
        )
    count = min(len(flow.keys), MAX_TOKENS)
    chosen = flow.pattern[index].topk(count).indices.sort().values  # the largest weights
    names = [flow.keys[i] for i in chosen.tolist()]
    features = min(flow.q.shape[1], MAX_FEATURES)
    top, step = 1.7, 0.36 * features
    name_q, name_k, name_v = tuple(flow.letters)
    width = 4 * step + 5.9 if flow.x is not None else 3 * step + 5.4
    canvas = Canvas(width, HEIGHT * count + 3.3, title)
    part = slice(0, features)
    name = show_whitespace(flow.queries[index])
    x = 1.1
    if flow.x is not None:
        rows(canvas, x, top, flow.x[chosen, part], names)
        canvas.text(x + step / 2, top - 0.25, "x")
        x += step + 0.75
    else:
        labels(canvas, x, top, names)
    query = canvas.matrix(x, top - 0.9, flow.q[index : index + 1, part])
    canvas.text(query.left - 0.08, query.y, name_q, ha="right")
    canvas.text(query.x, query.top - 0.2, name)
    rows(canvas, x, top, flow.k[chosen, part])
    canvas.text(x + step + 0.12, top - 0.25, name_k)
    canvas.arrow((query.x, query.bottom + 0.03), (query.x, top - 0.08))
    x += step + 0.65
    draw_weights(canvas, x, top, flow.scores[index, chosen], flow.pattern[index, chosen])
    x += 2.1
    rows(canvas, x, top, flow.v[chosen, part])
    canvas.text(x + step / 2, top - 0.25, name_v)
    x += step + 0.8
    weighted = flow.pattern[index, chosen, None] * flow.v[chosen, part]
    rows(canvas, x, top, weighted, decimals=2)
    canvas.text(x + step / 2, top - 0.25, f"{tr('weight')} × {name_v}")
    bottom = top + HEIGHT * count
    canvas.arrow((x + step / 2, bottom), (x + step / 2, bottom + 0.35))
    canvas.text(x + step / 2 + 0.2, bottom + 0.15, "Σ", size=12)
    result = canvas.matrix(x, bottom + 0.4, flow.output[index : index + 1, part], decimals=2)
    canvas.text(result.x, result.bottom + 0.2, tr("output for {token}", token=name))
    draw_notes(canvas, flow, count, bottom + 1.0)
    return canvas.figure


def rows(
    canvas: Canvas,
    x: float,
    top: float,
    values: Tensor,
    names: Sequence[str] = (),
    decimals: int = 1,
) -> None:
    """The rows of a matrix, one below the other with gaps."""
    limit = max(float(values.abs().max()), 1e-9)
    for i, row in enumerate(values):
        canvas.matrix(x, top + HEIGHT * i, row[None], limit=limit, decimals=decimals, size=6.5)
    labels(canvas, x, top, names[: len(values)])


def labels(canvas: Canvas, x: float, top: float, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        place = x - 0.1, top + HEIGHT * i + 0.18
        canvas.text(*place, show_whitespace(name), ha="right")


def draw_weights(canvas: Canvas, x: float, top: float, scores: Tensor, weights: Tensor) -> None:
    """The scores, and the weights as numbers and as widths of arrows to the values."""
    canvas.text(x, top - 0.25, tr("scores"))
    canvas.text(x + 1.05, top - 0.25, tr("weights"))
    canvas.text(x + 0.52, top - 0.55, "softmax", color=GRAY)
    for i, (score, weight) in enumerate(zip(scores.tolist(), weights.tolist(), strict=True)):
        y = top + HEIGHT * i + 0.18
        shown = f"{score:.2f}".replace("-", "−") if score > -1e30 else "−∞"
        canvas.text(x, y, shown)
        canvas.arrow((x + 0.3, y), (x + 0.72, y))
        canvas.text(x + 1.05, y, f"{weight:.2f}")
        if weight >= 0.005:
            canvas.line((x + 1.35, y), (x + 1.95, y), color="C0", linewidth=0.5 + 8 * weight,
                        solid_capstyle="butt")  # fmt: skip


def draw_notes(canvas: Canvas, flow: Flow, count: int, y: float) -> None:
    """What the picture leaves out."""
    notes = [f"{tr('scores')} = {flow.formula}"]
    if flow.q.shape[1] > MAX_FEATURES:
        notes.append(tr("{n} of {total} features", n=MAX_FEATURES, total=flow.q.shape[1]))
    if len(flow.keys) > count:
        notes.append(tr("{n} of {total} tokens", n=count, total=len(flow.keys)))
    canvas.text(0.3, y, ", ".join(notes), ha="left", size=8, color=GRAY)
