"""A text's forward pass through a model, with every value by name.

Shapes: t tokens, s source tokens, v vocabulary, c classes, h heads.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.models.network import Network
from glassformer.predict import inputs_for
from glassformer.text.bilingual import source_tokenizer
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace


@dataclass(frozen=True)
class TracedText:
    tokens: list[str]  # of the text; in a translation model, of the target
    source: list[str]  # tokens of the source, if the model has one
    inputs: dict[str, Tensor]  # network inputs
    trace: Trace
    output: Tensor  # logits: t v for each token, or c for the text

    def tokens_of(self, name: str) -> list[str]:
        """The tokens that the rows of the value with this name belong to."""
        return self.source if self.source and is_source_value(name) else self.tokens

    @property
    def aligned_tokens(self) -> list[str]:
        """The tokens with which the prior of a translator aligns the target: the source's, and its
        end."""
        return [*self.source, "<end>"]

    @property
    def ids(self) -> list[int]:
        ids: list[int] = self.inputs["ids"][0].tolist()
        return ids


def is_source_value(name: str) -> bool:
    """Whether the rows of a translation model's value are source tokens.

    An embedding shared by source and target is computed for the source first, as name#1.
    """
    name, _, visit = name.partition("#")
    is_first = visit == "1" and name in ("token", "position", "embedded", "dropout")
    is_key = "cross" in name and name.rsplit(".", 1)[-1] in ("k", "v", "key", "value")
    return name.startswith(("encoder", "source", "prior.key")) or is_first or is_key


def prediction_position(tokenizer: Tokenizer, ids: Tensor) -> int:
    """The index of the first [MASK] among the ids (t), or of the last token if there is none."""
    mask = tokenizer.special_tokens.get("[MASK]", -1)
    positions = (ids == mask).nonzero()
    return int(positions[0]) if len(positions) else len(ids) - 1


@torch.no_grad()
def list_names(network: Network, inputs: dict[str, Tensor]) -> set[str]:
    """The names of all values of a forward pass."""
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
    """Run a text through a network and keep the values whose names match a pattern, or all."""
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
    """Run inputs through a network and keep the values whose names match a pattern, or all.

    If strict, raise an error for a pattern that matches no name.
    """
    with Trace(network, *patterns, allow_missing=True, **options) as trace:
        output = network(**inputs)
    for pattern in patterns if strict else ():
        if not any(fnmatchcase(name, pattern) for name in trace):
            leaves = sorted({name.rpartition(".")[2] for name in trace.names})
            hint = did_you_mean(pattern.rpartition(".")[2], leaves)
            raise GlassError(f"no value matches {pattern!r}{hint}")
    languages = {"ids": tokenizer, "source": source_tokenizer(tokenizer)}
    tokens, source = (
        [language.token(int(i)) for i in inputs[name][0]] if name in inputs else []
        for name, language in languages.items()
    )
    return TracedText(tokens, source, inputs, trace, output[0].float())


def attention_patterns(traced: TracedText) -> dict[str, Tensor]:
    """The attention weights of every attention layer, by its name: h t s."""
    patterns = {
        n.removesuffix(".pattern"): v[0] for n, v in traced.trace.items() if n.endswith(".pattern")
    }
    if not patterns:
        raise GlassError("this model has no attention layers")
    return patterns


@dataclass(frozen=True)
class Head:
    """The attention weights of one head."""

    name: str  # name of its layer
    pattern: Tensor  # t s
    rows: list[str]  # query tokens
    columns: list[str]  # key tokens


def find_head(traced: TracedText, layer: int | str | None, head: int) -> Head:
    """Find a head of a layer, given by name or by block number (its first attention layer)."""
    name, pattern = find_layer(attention_patterns(traced), layer, head)
    rows = traced.tokens_of(name)
    columns = traced.source if name.endswith("cross") and traced.source else rows
    return Head(name, pattern, rows, columns)


def find_layer(
    patterns: dict[str, Tensor], layer: int | str | None, head: int
) -> tuple[str, Tensor]:
    """The name of a layer, given by name or block number, and the pattern of one head: t s."""
    names = [n for n in patterns if layer is None or n == layer or f".{layer}." in f".{n}."]
    if not names:
        raise GlassError(f"there is no attention layer {layer!r}; available: {', '.join(patterns)}")
    name = names[0]
    if not 0 <= head < (count := len(patterns[name])):
        raise GlassError(f"{name} has heads 0 to {count - 1}; there is no head {head}")
    return name, patterns[name][head]
