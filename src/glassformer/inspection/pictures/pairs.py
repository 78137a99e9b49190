"""Attention as a lookup, and a feed-forward layer that combines two words into a feature."""

from typing import Any

import torch
from torch import Tensor

from glassformer.core.i18n import tr
from glassformer.inspection.pair_features import compute_pair_features
from glassformer.inspection.pictures.canvas import GRAY, LINE, LIT, PLAIN, Canvas, format_number
from glassformer.inspection.word_counts import CANDIDATES

Point = tuple[float, float]


def lookup() -> Any:
    """A one-hot query selects the mask of its word from a matrix of masks: Q Kᵀ."""
    values: Any = compute_pair_features()
    words = values["attended_words"]
    canvas = Canvas(10.6, 3.9, tr("Q Kᵀ: a one-hot query selects the mask of its word"))
    q = canvas.matrix(0.9, 2.2, values["query"], rows=["ran"], columns=words, decimals=0)
    k = canvas.matrix(4.6, 1.3, values["keys"], rows=words, columns=words, decimals=0)
    both = canvas.matrix(7.9, 2.2, values["scores"], columns=words, decimals=0)
    canvas.frame(canvas.row(k, words.index("ran")))
    canvas.text(3.1, q.y, "×", size=14)
    canvas.text(6.9, q.y, "=", size=14)
    for area, text in (
        (q, tr("Q: the last word")), (k, tr("Kᵀ: row i is the mask of word i")),
        (both, tr("the mask of “ran”")),
    ):  # fmt: skip
        canvas.text(area.x, 3.3, text)
    canvas.text(5.3, 3.65, tr("1: the earlier word matters for what follows"), color=GRAY)
    return canvas.figure


def pairs() -> Any:
    """The network that turns words into pairs of words, and pairs into the next word."""
    values: Any = compute_pair_features()
    words, names = values["attended_words"], values["pairs"]
    attended, sums, features = (values[n][0] for n in ("attended", "sums", "features"))
    canvas = Canvas(13.2, 5.0, tr("a feed-forward layer: pairs of words, then the next word"))
    columns = ((1.2, [*words, "1"], torch.cat((attended, torch.ones(1)))), (3.5, names, sums),
               (5.5, names, features), (7.4, CANDIDATES, values["next_word"][0]))  # fmt: skip
    places: list[list[Point]] = []
    for x, labels, _ in columns:
        places.append([(x, 2.4 + 0.62 * (i - (len(labels) - 1) / 2)) for i in range(len(labels))])
    bias = torch.cat((values["w"], -torch.ones(1, len(names))))
    for start, end, weights in (
        (0, 1, bias), (1, 2, torch.eye(len(names))), (2, 3, values["w_2"]),
    ):  # fmt: skip
        draw_weights(canvas, places[start], places[end], weights, columns[start][2])
    for (_, labels, numbers), points in zip(columns, places, strict=True):
        for (x, y), label, number in zip(points, labels, numbers.tolist(), strict=True):
            text = label if label == "1" else f"{label}: {format_number(number, 1)}"
            width = 0.4 if label == "1" else 1.35
            canvas.box(
                x, y, width, text, colors=LIT if number > 0 and label != "1" else PLAIN, size=8
            )
    for x, text in ((2.4, "W, −1"), (4.5, "ReLU"), (6.5, "W₂")):
        canvas.text(x, 4.35, text, size=10)
    canvas.text(4.3, 4.7, tr("blue: weight 1; red, dashed: weight −1"), color=GRAY)
    w = canvas.matrix(9.5, 1.3, values["w"], rows=words, columns=names, decimals=0)
    w_2 = canvas.matrix(11.5, 1.3, values["w_2"], columns=CANDIDATES, decimals=0)
    canvas.text(w.x, w.bottom + 0.2, "W", size=10)
    canvas.text(w_2.x, w_2.bottom + 0.2, "W₂", size=10)
    canvas.text(10.7, 3.7, "ReLU(x W − 1) W₂", size=11)
    return canvas.figure


def draw_weights(canvas: Canvas, starts: list[Point], ends: list[Point], weights: Tensor,
                 values: Tensor) -> None:  # fmt: skip
    """A line for each weight that is not 0, thicker if it carries a value above 0."""
    for i, j in weights.nonzero().tolist():
        (x, y), (u, v) = starts[i], ends[j]
        is_negative = float(weights[i, j]) < 0
        style = "--" if is_negative else "-"
        width = 2.0 if float(values[i]) > 0 and not is_negative else 0.8
        color = "#c0392b" if is_negative else LINE
        canvas.line((x, y), (u, v), color=color, linewidth=width, linestyle=style, zorder=0)
