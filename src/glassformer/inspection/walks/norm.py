"""Layer norm against batch norm, as in Hung-yi Lee's lecture."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.walks.printed import matrix
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Trace
from glassformer.core.i18n import say

X = matrix("1 2 3 6\n10 20 30 60\n-1 0 1 0")  # three texts, four features
FEATURES = ["f0", "f1", "f2", "f3"]
SCALE, SHIFT = matrix("2 1 1 0.5"), matrix("0 0 1 -1")  # by hand; learnt in a model


@torch.no_grad()
def walk() -> list[Step]:
    layer, batch = LayerNorm(4).double(), nn.BatchNorm1d(4).double()
    with Trace(layer) as trace:
        by_row = layer(X)
    alone, flat = layer(X[:1]), layer(torch.full((1, 4), 5.0, dtype=torch.float64))
    texts = [say("text {number}", number=i + 1) for i in range(3)]
    return [
        Step(
            say("Layer norm"),
            say("(x − mean of the row) / deviation of the row"),
            say("Each text by itself: the second, ten times the first, becomes the same."),
            (
                Table("X", X, texts, FEATURES, "given", 0),
                Table(say("mean"), trace["mean"], texts),
                Table(say("deviation"), trace["deviation"], texts),
                Table(say("what comes out"), by_row, texts, FEATURES),
                Table(say("the first text alone"), alone, texts[:1], FEATURES),
            ),
            say("It needs no batch. It makes nothing normally distributed: only the mean and the "
                "deviation change."),
        ),
        Step(
            say("Batch norm"),
            say("(x − mean of the column) / deviation of the column"),
            say("Each feature over all texts: what a text becomes depends on the others."),
            (
                Table(say("mean"), X.mean(dim=0)[None], (), FEATURES),
                Table(say("deviation"), X.std(dim=0, correction=0)[None], (), FEATURES),
                Table(say("what comes out"), batch(X), texts, FEATURES),
                Table(say("of the first two texts alone"), batch(X[:2]), texts[:2], FEATURES),
            ),
        ),
        Step(
            say("Scale and shift"),
            say("normal × scale + shift,  deviation = √(variance + ε)"),
            say("Two rows are learnt, so that a model can take back what the norm took away. A "
                "little number under the root keeps a row of equal numbers from a division by 0."),
            (
                Table(say("scale"), SCALE, (), FEATURES, "given", 1),
                Table(say("shift"), SHIFT, (), FEATURES, "given", 1),
                Table(say("what comes out"), by_row * SCALE + SHIFT, texts, FEATURES),
                Table(say("of 5 5 5 5, by the norm alone"), flat, (), FEATURES),
            ),
            say("A tutorial leaves both out, and adds ε to the deviation."),
        ),
    ]  # fmt: skip
