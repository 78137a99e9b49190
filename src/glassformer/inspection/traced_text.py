"""A text on its way through a model, with every value on the way by its name."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.models.network import Network
from glassformer.predict import inputs_for
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace


@dataclass(frozen=True)
class TracedText:
    tokens: list[str]  # a row each; of a translator, those that it writes
    source: list[str]  # those that a translator reads
    inputs: dict[str, Tensor]  # what the network is called with
    trace: Trace
    output: Tensor  # t v of a writer, or c of a sorter: scores

    def tokens_of(self, name: str) -> list[str]:
        """The tokens that the rows of a value stand for, by its name."""
        return self.source if self.source and of_source(name) else self.tokens

    @property
    def ids(self) -> list[int]:
        found: list[int] = self.inputs["ids"][0].tolist()
        return found


def of_source(name: str) -> bool:
    """Whether the rows of a value of a translator are tokens of its source; name#1 is the first of
    several visits, when a table or a wave serves both sides."""
    name, _, visit = name.partition("#")
    first = visit == "1" and name in ("token", "position", "embedded", "dropout")
    read = "cross" in name and name.rsplit(".", 1)[-1] in ("k", "v", "key", "value")
    return name.startswith(("encoder", "source")) or first or read


def answer_position(tokenizer: Tokenizer, ids: Tensor) -> int:
    """The place that is asked for an answer: that of the first [MASK], or else the last. t -> 1"""
    mask = tokenizer.special_tokens.get("[MASK]", -1)
    there = (ids == mask).nonzero()
    return int(there[0]) if len(there) else len(ids) - 1


@torch.no_grad()
def list_names(network: Network, inputs: dict[str, Tensor]) -> set[str]:
    """The names of all values that come by."""
    with Trace(network, "-", allow_missing=True) as trace:
        network(**inputs)
    return trace.names


def trace_text(
    network: Network,
    tokenizer: Tokenizer,
    text: str,
    *patterns: str,
    target: str | None = None,
    **options: Any,
) -> TracedText:
    """Run a text through a network and note the values that the patterns name, or all."""
    inputs = inputs_for(network, tokenizer, text, target)
    return trace_inputs(network, tokenizer, inputs, *patterns, **options)


@torch.no_grad()
def trace_inputs(
    network: Network,
    tokenizer: Tokenizer,
    inputs: dict[str, Tensor],
    *patterns: str,
    strict: bool = True,
    **options: Any,
) -> TracedText:
    """The same of ids; strict refuses a pattern that no name matches."""
    with Trace(network, *patterns, allow_missing=True, **options) as trace:
        output = network(**inputs)
    for pattern in patterns if strict else ():
        if not any(fnmatchcase(name, pattern) for name in trace):
            leaves = (sorted({name.rpartition(".")[2] for name in trace.names}),)
            hint = did_you_mean(pattern.rpartition(".")[2], *leaves)
            raise GlassError(f"no value is named {pattern!r}{hint}")
    tokens, source = (
        [tokenizer.token(int(i)) for i in inputs[name][0]] if name in inputs else []
        for name in ("ids", "source")
    )
    return TracedText(tokens, source, inputs, trace, output[0].float())


def attention_patterns(traced: TracedText) -> dict[str, Tensor]:
    """What every layer of attention reads, by its name: h t s."""
    found = {
        n.removesuffix(".pattern"): v[0] for n, v in traced.trace.items() if n.endswith(".pattern")
    }
    if not found:
        raise GlassError("this model has no attention to look at")
    return found


@dataclass(frozen=True)
class Head:
    """What one head reads."""

    name: str  # of its layer
    pattern: Tensor  # t s
    rows: list[str]  # tokens that read
    columns: list[str]  # tokens that are read


def find_head(traced: TracedText, layer: int | str | None, head: int) -> Head:
    """A head of a layer, by its name or by the number of its block: of the first layer there."""
    found = attention_patterns(traced)
    here = [n for n in found if layer is None or n == layer or f".{layer}." in f".{n}."]
    if not here:
        raise GlassError(f"there is no attention {layer!r}; there are {', '.join(found)}")
    name = here[0]
    if not 0 <= head < (many := len(found[name])):
        raise GlassError(f"{name} has the heads 0 to {many - 1}; there is no head {head}")
    rows = traced.tokens_of(name)
    columns = traced.source if name.endswith("cross") and traced.source else rows
    return Head(name, found[name][head], rows, columns)
