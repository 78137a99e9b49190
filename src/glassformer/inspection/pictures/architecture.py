"""The Transformer of Vaswani et al. (2017): the whole with one part highlighted, or one part."""

from collections.abc import Callable
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.pictures.canvas import GRAY, LIT, PLAIN, Area, Canvas
from glassformer.models.translator import Config

ENCODER, DECODER = 2.6, 7.2  # centers of the columns
WIDTH, BOTTOM, STEP = 2.9, 6.6, 0.68
# boxes from the bottom up: name of the part and label
COLUMNS = {
    ENCODER: (
        ("embedding", "embedding"), ("position", "+ positional encoding"),
        ("attention", "self-attention"), ("norm", "add & norm"),
        ("feedforward", "feed-forward"), ("norm", "add & norm"),
    ),
    DECODER: (
        ("embedding", "embedding"), ("position", "+ positional encoding"),
        ("mask", "masked self-attention"), ("norm", "add & norm"),
        ("cross", "cross-attention"), ("norm", "add & norm"),
        ("feedforward", "feed-forward"), ("norm", "add & norm"),
        ("logits", "linear: logits"), ("softmax", "softmax"),
    ),
}  # fmt: skip
STACKS = {"encoder": (ENCODER, 2, 6), "decoder": (DECODER, 2, 8)}  # column, first box, end


def architecture(part: str = "attention") -> Any:
    """The Transformer with one part highlighted, or one of its parts drawn large."""
    parts = list(dict.fromkeys(name for boxes in COLUMNS.values() for name, _ in boxes))
    if part in ZOOMED:
        return ZOOMED[part]()
    if part not in (*parts, *STACKS):
        names = ", ".join((*parts, *STACKS, *ZOOMED))
        raise GlassError(f"unknown part {part!r}: expected one of {names}")
    canvas = Canvas(9.9, 7.5)
    for name, (x, first, end) in STACKS.items():
        lit = name == part
        top = height(end - 1) - 0.36
        bottom = height(first) + 0.42
        area = Area(x - 1.95, top, x + 1.95, bottom)
        canvas.frame(area, LIT[1] if lit else "#b9c2cf", 3 if lit else 1)
        canvas.text(area.left + 0.15, top + 0.17, f"× {Config.depth}", ha="left", color=GRAY)
    for x, boxes in COLUMNS.items():
        side = -1 if x == ENCODER else 1
        for i, (name, label) in enumerate(boxes):
            is_lit = name == part or (part in STACKS and is_inside(part, x, i))
            canvas.box(x, height(i), WIDTH, tr(label), colors=LIT if is_lit else PLAIN, size=10)
            if i:
                canvas.arrow((x, height(i - 1) - 0.22), (x, height(i) + 0.22))
            if name == "norm":
                draw_residual(canvas, x, i, side)
    draw_inputs(canvas)
    return canvas.figure


def height(row: int) -> float:
    return BOTTOM - STEP * row


def is_inside(stack: str, x: float, row: int) -> bool:
    column, first, end = STACKS[stack]
    return x == column and first <= row < end


def draw_residual(canvas: Canvas, x: float, row: int, side: int) -> None:
    """The residual connection around the layer below a norm."""
    start = height(row - 1) + 0.34
    out = x + side * 1.72
    canvas.line((x, start), (out, start), (out, height(row)), color="#999")
    canvas.arrow((out, height(row)), (x + side * (WIDTH / 2 + 0.01), height(row)), color="#999")


def draw_inputs(canvas: Canvas) -> None:
    """The names of the inputs, and the arrow from the encoder to the decoder."""
    for x, text in ((ENCODER, tr("source")), (DECODER, tr("target (shifted right)"))):
        canvas.text(x, BOTTOM + 0.55, text, color=GRAY)
    middle, left = (ENCODER + DECODER) / 2, DECODER - WIDTH / 2
    top = height(len(COLUMNS[ENCODER]) - 1) - 0.22
    canvas.line((ENCODER, top), (ENCODER, top - 0.3), (middle, top - 0.3), (middle, height(4)))
    canvas.arrow((middle, height(4)), (left, height(4)))
    canvas.text(middle + 0.03, height(4) - 0.14, "K, V", ha="left", size=8, color=GRAY)
    canvas.text(DECODER - 0.12, height(4) + 0.34, "Q", size=8, color=GRAY)


# --- one part -------------------------------------------------------------------------------------


def draw_stack(
    canvas: Canvas, x: float, bottom: float, boxes: list[tuple[str, str]], width: float = 2.6
) -> None:
    """Boxes from the bottom up with arrows between them and a shape beside each."""
    for i, (label, shape) in enumerate(boxes):
        y = bottom - 0.8 * i
        canvas.box(x, y, width, label, size=10)
        canvas.text(x + width / 2 + 0.15, y, shape, ha="left", color=GRAY)
        if i:
            canvas.arrow((x, y + 0.58), (x, y + 0.22))


def sizes() -> tuple[int, int, int]:
    """The features, heads, and features of a head in the paper."""
    return Config.dim, Config.heads, Config.dim // Config.heads


def draw_head() -> Any:
    """One head of attention."""
    d, _, e = sizes()
    canvas = Canvas(7.2, 6.9, tr("one head of attention"))
    for name, x in (("Q", 1.9), ("K", 3.3), ("V", 4.9)):
        canvas.box(x, 5.5, 1.1, f"× W_{name.lower()}")
        canvas.arrow((x, 6.1), (x, 5.72))
        canvas.text(x, 6.3, f"t × {d}", color=GRAY)
    labels = [("Q Kᵀ", f"t × {e} · {e} × t"), (f"÷ √{e}", "t × t"),
              (tr("mask: −∞ for later tokens"), tr("decoder's\nself-attention")),
              ("softmax", tr("each row sums to 1"))]  # fmt: skip
    for i, (label, note) in enumerate(labels):
        y = 4.5 - 0.75 * i
        canvas.box(2.6, y, 2.3, label)
        canvas.text(1.35, y, note, ha="right", size=7.5, color=GRAY)
        if i:
            canvas.arrow((2.6, y + 0.53), (2.6, y + 0.22))
    for name, x in (("Q", 1.85), ("K", 3.35), ("V", 5.05)):
        canvas.text(x, 5.0, name)
    canvas.arrow((1.9, 5.28), (2.2, 4.72))
    canvas.arrow((3.3, 5.28), (3.0, 4.72))
    canvas.box(3.75, 1.4, 2.3, tr("weights × V"))
    canvas.arrow((2.6, 2.03), (3.2, 1.62))
    canvas.line((4.9, 5.28), (4.9, 1.9))
    canvas.arrow((4.91, 1.91), (4.4, 1.62))
    canvas.arrow((3.75, 1.18), (3.75, 0.8))
    canvas.text(3.75, 0.65, f"t × {e}", color=GRAY)
    return canvas.figure


def draw_multihead() -> Any:
    """All heads of attention, with the sizes of the paper."""
    d, h, e = sizes()
    canvas = Canvas(8.6, 6.4, tr("multi-head attention with {h} heads", h=h))
    for name, x in (("Q", 1.9), ("K", 4.0), ("V", 6.1)):
        canvas.text(x, 6.05, f"{name}: t × {d}", color=GRAY)
        for i in range(h):
            shift = 0.07 * (h - 1 - i)
            text = "" if shift else f"{d} → {e}"
            canvas.box(x + shift, 5.0 - shift, 1.5, text, colors=("white", PLAIN[1]))
        canvas.arrow((x, 5.85), (x, 5.22))
        canvas.arrow((x + 0.2, 4.38), (x + 0.2, 3.88))
    for i in range(h):
        shift = 0.07 * (h - 1 - i)
        text = "" if shift else tr("attention, each head by itself")
        canvas.box(4.0 + shift, 3.6 - shift, 5.6, text, colors=("#fff3cf", LIT[1]), size=10)
    canvas.arrow((4.2, 2.96), (4.2, 2.52))
    canvas.box(4.2, 2.3, 4.2, tr("join the heads"), size=10)
    canvas.text(6.5, 2.3, f"{h} × {e} = {h * e}", ha="left", color=GRAY)
    canvas.arrow((4.2, 2.08), (4.2, 1.52))
    canvas.box(4.2, 1.3, 4.2, f"× W_o: {h * e} → {d}", size=10)
    canvas.arrow((4.2, 1.08), (4.2, 0.72))
    canvas.text(4.2, 0.58, f"t × {d}", color=GRAY)
    return canvas.figure


def draw_block() -> Any:
    """One block of the encoder: attention mixes the tokens, feed-forward treats each by itself."""
    canvas = Canvas(7.9, 8.1, tr("one block"))
    note = tr(
        "feed-forward: {d} → {f} → {d}, the same for each token", d=Config.dim, f=Config.hidden
    )
    canvas.text(3.95, 0.55, note, size=8, color=GRAY)
    tokens = [1.5 + 1.5 * i for i in range(4)]
    for i, x in enumerate(tokens):
        canvas.text(x, 7.85, f"x{i}", size=10)
        canvas.arrow((x, 7.7), (x, 6.72))
        for top in (5.6, 3.4):  # the sum and the norm after attention and after feed-forward
            canvas.text(x, top, "⊕", size=14)
            canvas.arrow((x, top + 0.68), (x, top + 0.13))
            canvas.arrow((x, top - 0.13), (x, top - 0.42))
            start = 7.2 if top > 5 else 4.65  # before attention, and before feed-forward
            path = (x, start), (x + 0.55, start), (x + 0.55, top)
            canvas.line(*path, color="#999", zorder=0.5)
            canvas.arrow((x + 0.55, top), (x + 0.12, top), color="#999")
        canvas.arrow((x, 4.78), (x, 4.52))
        canvas.box(x, 4.3, 0.75, tr("MLP"), colors=LIT)
        canvas.arrow((x, 2.58), (x, 1.6))
        canvas.text(x, 1.4, f"y{i}", size=10)
    middle = sum(tokens) / 4
    canvas.box(middle, 6.5, 5.6, tr("self-attention"), colors=LIT, size=10)
    for y in (4.98, 2.78):
        canvas.box(middle, y, 5.6, tr("layer norm, each token by itself"))
    return canvas.figure


def draw_classifier() -> Any:
    """A classifier: blocks, the mean over the tokens, and the probability of each class."""
    canvas = Canvas(7.4, 6.2, tr("a classifier"))
    boxes = [
        (tr("embedding, + positions"), "t × d"), (tr("blocks"), "t × d"),
        (tr("mean over the tokens"), "1 × d"), (tr("linear: logits"), tr("1 × classes")),
        ("softmax", tr("1 × classes")),
    ]  # fmt: skip
    draw_stack(canvas, 3.2, 4.9, boxes, 3.0)
    canvas.arrow((3.2, 5.5), (3.2, 5.12))
    canvas.text(3.2, 5.7, tr("tokens: t"), color=GRAY)
    return canvas.figure


ZOOMED: dict[str, Callable[[], Any]] = {
    "head": draw_head,
    "multihead": draw_multihead,
    "block": draw_block,
    "classifier": draw_classifier,
}
