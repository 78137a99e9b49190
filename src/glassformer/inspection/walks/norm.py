"""Layer norm against batch norm, as in Hung-yi Lee's lecture."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.walks.printed import matrix
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Trace
from glassformer.words import say

X = matrix("1 2 3 6\n10 20 30 60\n-1 0 1 0")  # three texts, four features
TEXTS, FEATURES = ["text 1", "text 2", "text 3"], ["f0", "f1", "f2", "f3"]


@torch.no_grad()
def walk() -> list[Step]:
    layer, batch = LayerNorm(4).double(), nn.BatchNorm1d(4).double()
    with Trace(layer) as trace:
        by_row = layer(X)
    alone = layer(X[:1])
    return [
        Step(
            say("Layer norm"),
            "(x − mean of the row) / deviation of the row",
            say("Each text by itself: the second, ten times the first, becomes the same."),
            (
                Table("X", X, TEXTS, FEATURES, "given", 0),
                Table(say("mean"), trace["mean"], TEXTS),
                Table(say("deviation"), trace["deviation"], TEXTS),
                Table(say("what comes out"), by_row, TEXTS, FEATURES),
                Table(say("the first text alone"), alone, TEXTS[:1], FEATURES),
            ),
            say("It needs no batch. It makes nothing normally distributed: only the mean and the "
                "deviation change."),
        ),
        Step(
            say("Batch norm"),
            "(x − mean of the column) / deviation of the column",
            say("Each feature over all texts: what a text becomes depends on the others."),
            (
                Table(say("mean"), X.mean(dim=0)[None], (), FEATURES),
                Table(say("deviation"), X.std(dim=0, correction=0)[None], (), FEATURES),
                Table(say("what comes out"), batch(X), TEXTS, FEATURES),
                Table(say("of the first two texts alone"), batch(X[:2]), TEXTS[:2], FEATURES),
            ),
        ),
    ]  # fmt: skip
