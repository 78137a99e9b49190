"""Two small examples that go with the walk: two masked heads, and why scores are divided."""

from __future__ import annotations

import math

import torch

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.walks.printed import matrix
from glassformer.nn.attention import PlainAttention
from glassformer.nn.masks import causal
from glassformer.nn.span import Span
from glassformer.trace import Trace
from glassformer.core.i18n import say

X = matrix("1 2 3\n4 5 6\n7 8 9")
HEADS = {  # what the tutorial prints as Q Kᵀ, and what it makes of it with a mask
    1: (X.T, matrix("1 0 0\n4 5 0\n7 8 9")),
    2: (X, matrix("1 2 3\n0 5 6\n0 0 9")),
}
THINKING = torch.tensor([[112.0, 96.0]], dtype=torch.float64)  # q1 k1 and q1 k2, of width 64


@torch.no_grad()
def walk() -> list[Step]:
    """Attention without parameters under the causal mask: queries, keys and values are X."""
    layer = PlainAttention(mask=causal)
    with Trace(layer) as trace:
        mixed = layer(X[None], Span(3, 3))[0]
    steps = [
        Step(
            say("Masked attention, three words"),
            "Q = K = V = X",
            say("Two heads whose matrices are the identity, so that both read X itself."),
            (Table("X", X, kind="given", places=0),),
        )
    ]
    for head, (printed, masked) in HEADS.items():
        steps += [
            Step(
                say("Head {head}: products", head=head),
                "A = Q Kᵀ",
                "",
                (
                    Table(say("as printed"), printed, kind="printed", places=0),
                    Table(say("as it should be"), X @ X.T, kind="right", places=0),
                ),
                say("What is printed is X itself, or X turned over: no product was made."),
            ),
            Step(
                say("Head {head}: mask", head=head),
                say("A[i, j] = −∞ for j > i"),
                say("What is to come gets a score of minus infinity, so that its share is 0."),
                (
                    Table(say("as printed"), masked, kind="printed", places=0),
                    Table(say("as it should be"), trace["scores"][0, 0], kind="right", places=0),
                    Table(
                        say("shares from the printed scores"), masked.softmax(dim=-1), places=3
                    ),
                ),
                say("A score of 0 hides nothing: the first word reads {first:.3f} of itself and "
                    "{leak:.3f} of each word to come.",
                    first=float(masked.softmax(dim=-1)[0, 0]),
                    leak=float(masked.softmax(dim=-1)[0, 1]))
                if head == 1
                else say("This head hides the past and shows the future, with a score of 0."),
            ),
        ]  # fmt: skip
    return [
        *steps,
        Step(
            say("Pattern and mixture"),
            "softmax(A) V",
            say("The scores differ so much that each word reads almost only itself."),
            (
                Table(say("pattern, as it should be"), trace["pattern"][0, 0], kind="right"),
                Table(say("what both heads say, side by side"), torch.cat((mixed, mixed), dim=1)),
            ),
            say("The heads stand side by side, and one more matrix brings them together."),
        ),
        scaling(),
    ]


def scaling() -> Step:
    """Two scores of another tutorial, 112 and 96, with a head of 64."""
    gradient = THINKING.softmax(-1).prod()
    scaled = THINKING / math.sqrt(64)
    return Step(
        say("Why scores are divided"),
        "softmax(q kᵀ / √64)",
        say("Two products of a head of 64: 112 and 96. Undivided, one share is nearly all."),
        (
            Table(say("softmax of 112 and 96"), THINKING.softmax(-1), kind="made", places=7),
            Table(say("divided by 8: 14 and 12"), scaled.softmax(-1), kind="made"),
            Table(
                say("slope of the softmax, p (1 − p), undivided and divided"),
                torch.stack((gradient, scaled.softmax(-1).prod()))[None],
                places=7,
            ),
        ),
        say("Where a share is nearly all, the slope is nearly nothing and little is learnt."),
    )
