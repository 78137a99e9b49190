"""One text's way through a model, as numbers to read: tokens, shapes, a pattern, the next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.config import nearest
from glassformer.errors import GlassError
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace


@dataclass(frozen=True)
class Worksheet:
    tokens: list[str]
    ids: list[int]
    shapes: dict[str, tuple[int, ...]]  # of every value, in the order in which they are made
    pattern: Tensor  # t s: what each token reads from which, in the head that was asked for
    next: list[tuple[str, float]]  # the likeliest next tokens, with their probabilities


@torch.inference_mode()
def worksheet(
    network: nn.Module,
    tokenizer: Tokenizer,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    top: int = 5,
) -> Worksheet:
    """Run a text through a model that predicts the next token, and note what happens."""
    ids = tokenizer.encode(text)
    if not ids:
        raise GlassError("the text is empty: give at least one word")
    device = next(network.parameters()).device
    with Trace(network) as trace:
        logits = network(torch.tensor([ids], device=device))
    probabilities, best = logits[0, -1].softmax(dim=-1).topk(min(top, tokenizer.vocab))
    return Worksheet(
        tokens=[tokenizer.token(i) for i in ids],
        ids=ids,
        shapes={name: tuple(trace[name].shape) for name in trace},
        pattern=pattern_of(trace, layer, head),
        next=[
            (tokenizer.token(int(i)), float(p)) for p, i in zip(probabilities, best, strict=True)
        ],
    )


def pattern_of(trace: Trace, layer: int, head: int) -> Tensor:
    name = f"blocks.{layer}.attention.pattern"
    if name not in trace:
        patterns = [other for other in trace if other.endswith(".pattern")]
        raise GlassError(f"there is no {name}{nearest(name, patterns)}")
    heads = trace[name][0]
    if not 0 <= head < len(heads):
        raise GlassError(f"{name} has the heads 0 to {len(heads) - 1}; there is no head {head}")
    return heads[head]
