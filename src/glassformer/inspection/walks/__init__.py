"""The seeds' worked examples, each a list of steps, computed by the parts that train models."""

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

WALKS: dict[str, Callable[[], list[Step]]] = {
    "thrones": lambda: [*thrones.walk(), *decoding.walk(), *masked.walk()],
    "markov": markov.walk,
    "attention": attention.walk,
    "position": position.walk,
    "norm": norm.walk,
}
