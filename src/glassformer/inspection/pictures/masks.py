"""Masks, and the targets of a language model."""

from typing import Any

import torch

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.pictures.canvas import ACCENT, LINE, LIT, Canvas
from glassformer.nn.attention import PlainAttention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal, fixed, full, strided, window
from glassformer.trace import Trace

WORD = "transformer"


def masks() -> Any:
    """Which query may attend to which key: the masks that the models use."""
    examples = (full, causal, causal & window(4), causal & strided(4), causal & fixed(4),
                causal & (window(4) | strided(4)))  # fmt: skip
    chart, axes = subplots(1, len(examples), figsize=(14, 2.9))
    for ax, mask in zip(axes, examples, strict=True):
        ax.imshow(mask.matrix(16, 16).numpy(), cmap="Blues", vmin=0, vmax=1.4)
        ax.set_title(str(mask), fontsize=8)
        ax.set(xticks=[], yticks=[])
    axes[0].set(ylabel=tr("query"), xlabel=tr("key"))
    chart.suptitle(tr("blue: the query (row) may attend to the key (column)"), fontsize=9)
    return chart


@torch.no_grad()
def shift() -> Any:
    """The targets of a language model are its inputs, shifted by one; a mask hides the answer."""
    inputs = list(WORD[:-1])
    targets = list(WORD[1:])
    layer = PlainAttention(mask=causal)
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(26, 2, generator=random)
    x = vectors[torch.tensor([ord(c) - ord("a") for c in inputs])]
    with Trace(layer) as trace:
        layer(x[None], SequenceLayout(len(x), len(x)))
    canvas = Canvas(12.2, 7.0, tr("a language model: each position predicts the next character"))
    for i, (character, target) in enumerate(zip(inputs, targets, strict=True)):
        x_place = 3.2 + 0.65 * i
        canvas.box(x_place, 0.85, 0.45, target, colors=LIT)
        canvas.arrow((x_place, 1.85), (x_place, 1.08))
        canvas.box(x_place, 2.08, 0.45, character)
        if i:
            canvas.line((x_place - 0.23, 1.88), (x_place - 0.42, 1.05), color=ACCENT, linestyle=":")
    canvas.text(2.6, 0.85, tr("targets"), ha="right")
    canvas.text(2.6, 2.08, tr("inputs"), ha="right")
    for x_left, values, title in (
        (1.2, trace["scores"], tr("scores: −∞ above the diagonal")),
        (7.2, trace["pattern"], tr("after the softmax: 0 above the diagonal")),
    ):
        canvas.matrix(
            x_left,
            2.95,
            values[0, 0],
            rows=inputs,
            columns=inputs,
            decimals=2,
            title=title,
            size=6.5,
        )
    canvas.arrow((5.2, 4.75), (6.7, 4.75), color=LINE, width=1.5)
    canvas.text(5.95, 4.55, "softmax")
    return canvas.figure
