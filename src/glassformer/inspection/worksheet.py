"""The worksheet of any model: one text's way through it, step by step, as a walk."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import GlassError
from glassformer.inspection.reading import Reading, asked_at, read
from glassformer.inspection.sheet import Kind, Step, Table
from glassformer.nn.attention import Attention, dot, scaled_dot
from glassformer.nn.feedforward import GatedFeedForward
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import Alibi, Relative, Rotary
from glassformer.text.tokenizer import Tokenizer
from glassformer.words import say

SAME = {"query", "key", "value", "out", "widen", "narrow", "dropout", "gate"}  # told by others
WORKED = {"scores", "pattern", "heads", "mean", "deviation", "normal"}  # from what stands above
BLOCK = re.compile(r"(?:blocks|layers|encoder|decoder)\.(\d+)(?:\.|$)")
TOP = 8  # likeliest tokens that are shown

# by the last part of a value's name: what it is, how it is made, and a word on it
TOLD = {
    "token": ("Embedding", "E[id]", "Each token is looked up in a table that was learnt."),
    "source_token": ("Embedding of the source", "E[id]", "The source has a table of its own."),
    "segment": ("Segment", "S[0 or 1]", "Which of two texts a token belongs to."),
    "position": ("Position", "P[place]", "Where each token stands."),
    "q": ("Queries", "Q = X W_q", "What each token asks for, in this head."),
    "k": ("Keys", "K = X W_k", "What each token offers to be found by."),
    "v": ("Values", "V = X W_v", "What each token has to give."),
    "scores": ("Scores", "", "How well questions meet offers."),
    "pattern": ("Pattern", "softmax(scores)", "Whom each token (row) reads, and how much."),
    "heads": ("Mixture", "pattern V", "Each token becomes a mixture of what it reads."),
    "attention": ("Projection", "concat(heads) W_o", "All heads together, brought back."),
    "cross": ("Projection", "concat(heads) W_o", "What was read of the source."),
    "embedded": ("Embedded", "", "Token and place together: what the first block reads."),
    "residual": ("Residual", "x + what the layer says", "What was there before is kept."),
    "mean": ("Mean", "", "Inside a norm."),
    "deviation": ("Deviation", "", "Inside a norm."),
    "normal": ("Normal", "", "Inside a norm."),
    "hidden": ("Inside the feed-forward layer", "", "Features, on or off."),
    "feedforward": ("Feed-forward", "hidden W₂", "What the features say."),
    "votes": ("Votes", "Σ shares", "What pairs of tokens vote for."),
    "output": ("Scores in the end", "logits", "One for every token or label there is."),
}
CENTRED = {
    "mean": "mean of the row",
    "deviation": "√(mean of (x − mean)² + ε)",
    "normal": "(x − mean) / deviation",
    "norm": "(x − mean) / deviation × scale + shift",
}
ROOT = {
    "deviation": "√(mean of x² + ε)",
    "normal": "x / deviation",
    "norm": "x / deviation × scale",
}
NORM = ("Norm", "", "One size for all.")
BLOCK_SAYS = ("Block", "", "What the block says: it goes to the next.")


def worksheet(
    network: nn.Module,
    tokenizer: Tokenizer,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    target: str | None = None,
    labels: list[str] | None = None,
) -> list[Step]:
    """Every step of a text through one block and one head of a network."""
    reading = read(network, tokenizer, text, target=target)
    steps = [tokens_step(reading)]
    seen: dict[str, int] = {}
    inside = False
    for name in reading.trace.order:
        at = seen[name] = seen.get(name, -1) + 1
        block, leaf = BLOCK.match(name), name.rsplit(".", 1)[-1]
        inside = inside or bool(block and int(block[1]) == layer)
        if leaf in SAME or (block and int(block[1]) != layer):
            continue
        visits = reading.trace.visits[name]
        first = at == 0 and len(visits) > 1  # a translator reads before it writes
        steps.append(step_of(network, reading, name, visits[at], head, first))
    if not inside and any(map(BLOCK.match, reading.trace)):
        raise GlassError(f"there is no block {layer}; {last_block(reading)}")
    return [*steps, chances_step(reading, tokenizer, labels)]


def last_block(reading: Reading) -> str:
    numbers = [int(found[1]) for name in reading.trace if (found := BLOCK.match(name))]
    return f"the last is {max(numbers)}"


def tokens_step(reading: Reading) -> Step:
    rows = [("ids", reading.tokens), ("source", reading.source)]
    tables = [
        Table(say(name), reading.inputs[name].float(), (), tokens, "given", 0)
        for name, tokens in rows
        if tokens
    ]
    return Step(
        say("Tokens and ids"),
        "",
        say("The text is cut into tokens, and each token has a number."),
        tuple(reversed(tables)),
    )


def formula_of(network: nn.Module, name: str, known: str) -> str:
    """How a value is made, asked of the part that makes it."""
    path, _, leaf = name.rpartition(".")
    part: Any = network.get_submodule(name if leaf.endswith("norm") else path)
    if isinstance(part, LayerNorm | RMSNorm):
        ways = ROOT if isinstance(part, RMSNorm) else CENTRED
        return say(ways.get(leaf, ways["norm"]))
    if leaf in ("q", "k", "v") and isinstance(part, Attention):
        layer = {"q": part.query, "k": part.key, "v": part.value}[leaf]
        return known + (" + b" if layer.bias is not None else "")
    if leaf == "scores" and isinstance(part, Attention):
        scores: dict[Any, str] = {scaled_dot: "Q Kᵀ / √e", dot: "Q Kᵀ"}
        product = scores.get(part.score, "vᵀ tanh(q + k)")
        if isinstance(part.position, Rotary):
            product = say("{product} of turned Q and K", product=product)
        if isinstance(part.position, Alibi | Relative):
            product = say("{product} + bias by distance", product=product)
        return say("{product}, −∞ where hidden", product=product)
    if leaf == "scores":
        return say("{product}, −∞ where hidden", product="X Xᵀ")
    if leaf == "hidden" and isinstance(part, GatedFeedForward):
        return say("activation(X W_g) × (X W₁)")
    if leaf == "hidden":
        return say("activation(X W₁ + b₁)")
    return say(known)


def step_of(
    network: nn.Module, reading: Reading, name: str, value: Tensor, head: int, first: bool
) -> Step:
    """What a value is, as far as its name and the part that makes it tell, and its numbers."""
    leaf = name.rsplit(".", 1)[-1]
    title, formula, says = NORM if leaf.endswith("norm") else TOLD.get(leaf, ("", "", ""))
    formula = formula_of(network, name, formula)
    block = BLOCK.search(f"{name}.")
    if not title and block and name.endswith(block[1]):
        title, formula, says = BLOCK_SAYS
    asked = reading.trace.get(f"{name.rpartition('.')[0]}.q", value)  # keys may serve several heads
    grid, many = sheet_of(value, head, name, asked.shape[1])
    rows, columns = names_of(reading, name, grid, first)
    where = f"{say(title)}: {name}" if title else name
    more = say(" Head {head} of {many}.", head=head, many=many) if many else ""
    kind: Kind = "made" if leaf in WORKED else "given"
    table = Table(name, grid, rows, columns, kind, shaded=leaf == "pattern")
    return Step(where, formula, (say(says) if says else "") + more, (table,))


def sheet_of(value: Tensor, head: int, name: str, many: int) -> tuple[Tensor, int]:
    """The first text's numbers, in one of so many heads, if it has heads: r c."""
    value = value.detach().float()
    if value.ndim == 4:
        if not 0 <= head < many:
            raise GlassError(f"{name} has the heads 0 to {many - 1}; there is no head {head}")
        return value[0, head * value.shape[1] // many], many
    value = value[0] if value.ndim == 3 else value
    return (value if value.ndim == 2 else value.reshape(1, -1)), 0


def names_of(reading: Reading, name: str, grid: Tensor, first: bool) -> tuple[list[str], list[str]]:
    """Tokens beside rows, and above columns where these are tokens too."""
    early = first and name in ("token", "position", "embedded")
    source = (name.startswith(("encoder", "source")) or early) and bool(reading.source)
    crosses, leaf = "cross" in name, name.rsplit(".", 1)[-1]
    read_from = reading.source if source or (crosses and reading.source) else reading.tokens
    own = reading.source if source or (crosses and leaf in ("k", "v")) else reading.tokens
    rows = own if len(own) == len(grid) else []
    across = leaf in ("scores", "pattern") and len(read_from) == grid.shape[1]
    return list(rows), list(read_from) if across else []


def likeliest(
    reading: Reading, tokenizer: Tokenizer, top: int, labels: list[str] | None = None
) -> list[tuple[str, float]]:
    """The likeliest tokens after the last place or in that of [MASK], or labels of the text."""
    output = reading.output
    name: Callable[[int], str] = labels.__getitem__ if labels else str
    if output.ndim == 2:
        output, name = output[asked_at(tokenizer, torch.tensor(reading.ids))], tokenizer.token
    chances, best = output.softmax(dim=-1).topk(min(top, len(output)))
    return [(name(int(i)), float(p)) for p, i in zip(chances, best, strict=True)]


def chances_step(reading: Reading, tokenizer: Tokenizer, labels: list[str] | None) -> Step:
    names, chances = zip(*likeliest(reading, tokenizer, TOP, labels), strict=True)
    if labels:
        says = say("The likeliest labels.")
    elif "[MASK]" in reading.tokens:
        says = say("The likeliest in place of [MASK].")
    else:
        says = say("The likeliest after the last token.")
    table = Table(say("probabilities"), torch.tensor([chances]), (), names)
    return Step(say("Probabilities"), "softmax(logits)", says, (table,))
