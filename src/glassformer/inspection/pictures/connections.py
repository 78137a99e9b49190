"""What one output of a layer has seen, measured by gradients through Glassformer's own layers.

Shapes: t tokens, d features.
"""

from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.draw import find_kind
from glassformer.inspection.pictures.canvas import ACCENT, GRAY, LINE, LIT, PLAIN, Canvas
from glassformer.inspection.pictures.influence import (
    DIM,
    attention,
    both_directions,
    convolution,
    gradient_of,
    measure_influence,
    recurrence,
    seeded,
)
from glassformer.models.recurrent_translator import RecurrentTranslator
from glassformer.nn.masks import full
from glassformer.trace import Trace

TOKENS, CONVOLUTIONS = 8, 3
TARGETS = 4  # tokens of a translation
LEFT, STEP, BOTTOM = 1.6, 0.95, 4.3
Point = tuple[float, float]
TITLES = {
    "rnn": "a recurrent layer: each output follows from the one before it",
    "birnn": "two recurrent layers, one in each direction",
    "cnn": "convolutions of 3 tokens: each layer widens what an output sees",
    "attention": "attention: each output reads all inputs at once",
    "seq2seq": "a recurrent translator: one vector between source and target",
    "seq2seq-attention": "a recurrent translator with attention to every source token",
}


def connections(kind: str = "rnn", token: int | None = None) -> Any:
    """The connections of a layer, and how strongly each input influences one output."""
    title = tr(find_kind(TITLES, kind))
    outputs = TARGETS if kind.startswith("seq2seq") else TOKENS
    token = (TOKENS // 2 if kind == "cnn" else outputs - 1) if token is None else token
    if not 0 <= token < outputs:
        raise GlassError(f"the outputs are 0 to {outputs - 1}; there is no output {token}")
    if kind.startswith("seq2seq"):
        return draw_translation(kind, title, token)
    layers = {
        "rnn": [recurrence()], "birnn": [both_directions()],
        "cnn": [convolution(1)] * CONVOLUTIONS, "attention": [attention(full)],
    }[kind]  # fmt: skip
    influence = measure_influence(layers, TOKENS, token)
    return draw_layers(kind, title, len(layers), token, influence)


def place(column: int, row: int, rows: int) -> Point:
    return LEFT + STEP * column, BOTTOM - 1.0 - (BOTTOM - 2.0) * row / rows


def draw_layers(kind: str, title: str, depth: int, token: int, influence: Tensor) -> Any:
    canvas = Canvas(LEFT + STEP * TOKENS + 0.2, 5.9, title)
    seen = reachable(kind, depth, token)
    for row in range(1, depth + 1):
        for column in range(TOKENS):
            for below in sources(kind, column):
                is_seen = column in seen[row] and below in seen[row - 1]
                draw_edge(canvas, place(below, row - 1, depth), place(column, row, depth), is_seen)
            if kind in ("rnn", "birnn") and column + 1 < TOKENS:
                ends = place(column, row, depth), place(column + 1, row, depth)
                draw_edge(canvas, *ends, column < token, along=True)
                if kind == "birnn":
                    draw_edge(canvas, ends[1], ends[0], column >= token, along=True)
    for row in range(depth + 1):
        name = "a" if row == 0 else "b" if row == depth else ""
        for column in range(TOKENS):
            is_output = row == depth and column == token
            colors = ("#f4b6ae", ACCENT) if is_output else LIT if column in seen[row] else PLAIN
            x, y = place(column, row, depth)
            canvas.box(x, y, 0.5, f"{name}{column}" if name else "", colors=colors)
    draw_influence(canvas, influence, tr("influence on b{n}", n=token))
    return canvas.figure


def sources(kind: str, column: int) -> list[int]:
    """The positions below that a position reads directly."""
    if kind == "attention":
        return list(range(TOKENS))
    reach = 1 if kind == "cnn" else 0
    return [i for i in range(column - reach, column + reach + 1) if 0 <= i < TOKENS]


def reachable(kind: str, depth: int, token: int) -> list[set[int]]:
    """For each row, from the bottom, the positions that lead to the output."""
    columns = {"rnn": set(range(token + 1)), "birnn": set(range(TOKENS))}.get(kind, {token})
    rows = [columns]
    for _ in range(depth):
        rows.insert(0, {i for column in rows[0] for i in sources(kind, column)})
    return rows


def draw_edge(
    canvas: Canvas, start: Point, end: Point, is_seen: bool, *, along: bool = False
) -> None:
    """An arrow between two boxes, in a row or from a row to the next."""
    color, width = (LINE, 1.8) if is_seen else ("#ccc", 0.8)
    (x, y), (u, v) = start, end
    if along:
        side = 1 if u > x else -1
        offset = 0.08 * -side
        canvas.arrow((x + 0.25 * side, y + offset), (u - 0.25 * side, v + offset), color=color,
                     width=width)  # fmt: skip
    else:
        canvas.arrow((x, y - 0.2), (u, v + 0.2), color=color, width=width)


def draw_influence(canvas: Canvas, influence: Tensor, title: str) -> None:
    """A bar below each input, with its share of the largest influence."""
    shares = influence / influence.max()
    canvas.text(LEFT - 0.5, 4.75, title, ha="right", rotation=0, size=8)
    for column, share in enumerate(shares.tolist()):
        x = LEFT + STEP * column
        height = 0.9 * share
        canvas.box(x, 5.05 - height / 2, 0.4, height=max(height, 0.02), colors=("#7fa6d6", LINE))
        canvas.text(x, 5.25, "0" if share == 0 else f"{share:.2g}", size=8)
    note = tr("norm of the gradient with respect to each input; the largest is 1")
    canvas.text(LEFT + STEP * (TOKENS - 1) / 2, 5.6, note, size=8, color=GRAY)


def draw_translation(kind: str, title: str, token: int) -> Any:
    """An encoder and a decoder, with one vector between them or with attention."""
    influence = translation_influence(kind, token)
    has_attention = kind == "seq2seq-attention"
    canvas = Canvas(LEFT + STEP * (TOKENS + TARGETS + 1) + 0.3, 5.9, title)

    def x_of(i: int) -> float:
        return LEFT + STEP * (i + (1.2 if i >= TOKENS else 0))

    between = (x_of(TOKENS - 1) + x_of(TOKENS)) / 2
    for i in range(TOKENS + TARGETS):
        is_target, x = i >= TOKENS, x_of(i)
        n = i - TOKENS if is_target else i
        if i:
            is_seen = not is_target or n <= token
            draw_edge(canvas, (x_of(i - 1), 2.6), (x, 2.6), is_seen, along=True)
        canvas.box(x, 2.6, 0.5, f"h{n}" if not is_target else f"s{n}",
                   colors=LIT if not is_target or n <= token else PLAIN)  # fmt: skip
        canvas.box(x, 3.6, 0.5, f"y{n - 1}" if n and is_target else "<s>" if is_target else f"a{n}")
        canvas.arrow((x, 3.4), (x, 2.8))
        if is_target:
            canvas.box(x, 1.6, 0.5, f"y{n}", colors=("#f4b6ae", ACCENT) if n == token else PLAIN)
            canvas.arrow((x, 2.4), (x, 1.8))
        elif has_attention:
            weight = float(influence[1][i])
            ends = (x, 2.38), (between - 0.2, 1.15)
            canvas.line(*ends, color=ACCENT, linewidth=0.4 + 6 * weight, zorder=0.5)
            label = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            canvas.text(x, 2.2, f"{weight:.2f}", size=8, color=ACCENT, bbox=label)
    if not has_attention:
        canvas.text(between, 2.25, tr("one vector"), size=8.5)
    else:
        text = tr("numbers: attention weights; their weighted mean is the context of y{n}", n=token)
        canvas.text(x_of(3), 0.75, text, size=8.5, color=ACCENT)
        canvas.box(between, 1.1, 0.5, "c", colors=("#f4b6ae", ACCENT))
        target = x_of(TOKENS + token)
        canvas.line((between + 0.25, 1.1), (target, 1.1), color=ACCENT)
        canvas.arrow((target, 1.1), (target, 1.38), color=ACCENT)
    draw_influence(canvas, influence[0], tr("influence on y{n}", n=token))
    return canvas.figure


def translation_influence(kind: str, token: int) -> tuple[Tensor, Tensor]:
    """For each source token, its influence on one output, and the attention weight if any."""
    score: Any = "dot" if kind == "seq2seq-attention" else "none"
    config = RecurrentTranslator.Config(vocab=24, dim=DIM, depth=1, attention=score)
    network = seeded(lambda: RecurrentTranslator(config))
    embeddings: list[Tensor] = []

    def keep_embedding(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        embeddings.append(output.detach().requires_grad_())
        return embeddings[-1]

    handle = network.token.register_forward_hook(keep_embedding)
    source = torch.arange(TOKENS)[None]
    target = torch.arange(TARGETS)[None] + TOKENS
    with Trace(network, "*.pattern", allow_missing=True) as trace:
        logits = network(target, source)
    handle.remove()
    source_embedding = next(x for x in embeddings if x.shape[1] == TOKENS)
    gradient = gradient_of(logits[0, token], source_embedding)
    pattern = next(iter(trace.values()))[0, 0, token] if len(trace) else torch.zeros(TOKENS)
    return gradient[0].norm(dim=-1), pattern.detach()
