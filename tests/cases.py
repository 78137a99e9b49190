"""Small models of every kind, with the traits that laws ask for."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from glassformer import MODELS

VOCAB, LENGTH = 50, 12


@dataclass
class Case:
    """A model and how to feed it: a translator reads the same source in every law."""

    name: str
    settings: dict = field(default_factory=dict)
    traits: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        torch.manual_seed(1)
        kind = MODELS[self.name]
        self.network: nn.Module = kind(kind.Config(**self.settings)).eval()
        for parameter in self.network.parameters():  # so that no weight is 0 or hides another
            with torch.no_grad():
                parameter.add_(torch.randn_like(parameter) * 0.05)

    def __call__(self, ids: Tensor, **more) -> Tensor:
        if self.name == "translator" and not (more.get("cache") and more["cache"].length):
            more.setdefault("source", source(len(ids)))
        return self.network(ids, **more)

    def has(self, *traits: str) -> bool:
        return self.traits.issuperset(traits)

    def __str__(self) -> str:
        return self.name


def source(batch: int) -> Tensor:
    return (torch.arange(batch * 7).reshape(batch, 7) * 11 + 3) % VOCAB


def ids(batch: int = 3, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length))


SIZES = {"vocab": VOCAB, "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0}
WITH_CONTEXT = {**SIZES, "context": 32}
WRITES = frozenset({"causal", "cached", "padded", "learns"})
READS = frozenset({"padded", "positionless", "learns"})

CASES = {
    "classifier": Case("classifier", {**WITH_CONTEXT, "classes": 3}, READS | {"pooled"}),
    "generator": Case("generator", WITH_CONTEXT, WRITES),
    "translator": Case("translator", {**SIZES, "hidden": 64}, WRITES | {"source"}),
    "two vocabularies": Case(
        "translator", {**SIZES, "hidden": 64, "source_vocab": 60}, WRITES | {"source"}
    ),
    "bert": Case("bert", WITH_CONTEXT, READS),
    "sorting bert": Case(
        "bert", {**WITH_CONTEXT, "masked": False, "classes": 3}, READS | {"pooled", "first"}
    ),
    "gpt2": Case("gpt2", WITH_CONTEXT, WRITES),
    "gpt2_classifier": Case(
        "gpt2_classifier", {**WITH_CONTEXT, "classes": 3}, frozenset({"padded", "pooled", "learns"})
    ),
    "llama": Case("llama", {**WITH_CONTEXT, "key_heads": 2, "hidden": 48}, WRITES),
    "wide llama": Case("llama", {**WITH_CONTEXT, "width": 16, "hidden": 48, "tied": True}, WRITES),
}


def with_traits(*traits: str) -> list[str]:
    return [name for name, case in CASES.items() if case.has(*traits)]
