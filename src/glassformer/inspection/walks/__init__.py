"""The tutorials' worked examples, each a list of steps, computed by the parts that train models.

Thrones: Khan's Transformer by hand (AI大模型世界, 2024). Markov: B. Rohrer's Transformers from
Scratch (e2eml.school). Attention: P. Bloem's Transformers from scratch (peterbloem.nl). Position
and norm: Hung-yi Lee's lectures.
"""

from __future__ import annotations

from collections.abc import Callable

from glassformer.inspection.sheet import Step
from glassformer.inspection.walks import (
    attention,
    decoding,
    markov,
    masked,
    norm,
    position,
    thrones,
)  # fmt: skip
from glassformer.core.i18n import say

WALKS: dict[str, Callable[[], list[Step]]] = {
    "thrones": lambda: [*thrones.walk(), *decoding.walk(), *masked.walk(), thrones.rest()],
    "markov": markov.walk,
    "attention": attention.walk,
    "position": position.walk,
    "norm": norm.walk,
}


def title_of(name: str) -> str:
    return {
        "thrones": say("A Transformer by hand, after Khan"),
        "markov": say("From counting to attention, after B. Rohrer"),
        "attention": say("Attention from nothing, after P. Bloem"),
        "position": say("Why places must be told, after Hung-yi Lee"),
        "norm": say("Layer norm and batch norm, after Hung-yi Lee"),
    }[name]
