"""Why places must be told, and why adding them is enough, after Hung-yi Lee."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.walks.printed import matrix
from glassformer.nn.attention import PlainAttention
from glassformer.nn.positions import sinusoid
from glassformer.nn.span import Span
from glassformer.core.i18n import say

EATS, EATEN = "我吃饭了", "饭吃我了"
SIGNS = {"我": "1 0 0 0.5", "吃": "0 1 0.5 0", "饭": "0 0.5 1 0", "了": "0.2 0 0 1"}  # by hand
SPAN = Span(4, 4)


@torch.no_grad()
def walk() -> list[Step]:
    layer = PlainAttention()
    first, second = (matrix("\n".join(SIGNS[sign] for sign in text)) for text in (EATS, EATEN))
    places = sinusoid(torch.arange(4), 4).double()
    plain = [layer(x[None], SPAN)[0] for x in (first, second)]
    placed = [layer((x + places)[None], SPAN)[0] for x in (first, second)]
    return [
        Step(
            say("Without places"),
            "attend(X) = softmax(X Xᵀ) X",
            say("“I ate the meal” and “the meal ate me” have the same characters: each says the "
                "same in both, only elsewhere."),
            (Table(f"X: {EATS}", first, list(EATS), (), "given", 1),
             Table(f"attend(X): {EATS}", plain[0], list(EATS)),
             Table(f"attend(X): {EATEN}", plain[1], list(EATEN)),
             Table(say("largest difference of a character to itself"),
                   (plain[0] - plain[1][[2, 1, 0, 3]]).abs().max()[None, None], places=12)),
        ),
        Step(
            say("With places"),
            "attend(X + PE)",
            say("A wave for each place is added, and the two sentences come apart."),
            (Table("PE", places, ["0", "1", "2", "3"]),
             Table(f"attend(X + PE): {EATS}", placed[0], list(EATS)),
             Table(f"attend(X + PE): {EATEN}", placed[1], list(EATEN)),
             Table(say("largest difference of a character to itself"),
                   (placed[0] - placed[1][[2, 1, 0, 3]]).abs().max()[None, None])),
        ),
        adding(first),
    ]  # fmt: skip


def adding(x: torch.Tensor) -> Step:
    """W [x; p] = W^I x + W^P p."""
    layer, random = nn.Linear(8, 4, bias=False).double(), torch.Generator().manual_seed(0)
    drawn = torch.randn(4, 8, dtype=torch.float64, generator=random)
    layer.weight.copy_(drawn.round(decimals=1))
    one_hot = torch.eye(4, dtype=torch.float64)
    inside, outside = layer.weight[:, :4], layer.weight[:, 4:]
    together, apart = layer(torch.cat((x, one_hot), dim=1)), x @ inside.T + one_hot @ outside.T
    return Step(
        say("Adding does what concatenating does"),
        "W [x; p] = Wᴵ x + Wᴾ p",
        say("A one-hot place behind each word, times one matrix, is the word times its left half "
            "plus a column of its right half: a vector for each place, added."),
        (
            Table("[x; p]", torch.cat((x, one_hot), dim=1), list(EATS), (), "given", 1),
            Table("Wᴵ", inside, kind="given", places=1),
            Table("Wᴾ", outside, kind="given", places=1),
            Table("Wᴾ p", one_hot @ outside.T, ["0", "1", "2", "3"]),
            Table("W [x; p]", together, list(EATS)),
            Table("Wᴵ x + Wᴾ p", apart, list(EATS)),
        ),
    )  # fmt: skip
