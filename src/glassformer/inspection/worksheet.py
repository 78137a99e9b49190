"""The worksheet of any model: one text's way through it, step by step, as a walk."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.describe import Description, describe_value
from glassformer.inspection.sheet import Kind, Step, Table
from glassformer.inspection.traced_text import (
    TracedText,
    answer_position,
    list_names,
    of_source,
    trace_inputs,
)
from glassformer.models.network import Network, Trait
from glassformer.predict import inputs_for
from glassformer.registry import model_name
from glassformer.text.tokenizer import Tokenizer

SAME = set("query key value out up down dropout gate dense score".split())  # told by others
WORKED = {"scores", "pattern", "head_outputs", "mean", "std", "normalized", "embedded", "pooled"}
ANSWERS = {"output", "votes", "head", "masked"}  # whose columns are the answers
LAST = {"head", "masked"}  # parts whose answer may be that of the whole network
BLOCK = re.compile(r"((?:body\.)?(?:blocks|layers|encoder|decoder)\.)(\d+)(\.|$)")
TOP = 8  # likeliest tokens that are shown


def worksheet(
    network: Network,
    tokenizer: Tokenizer,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    target: str | None = None,
    labels: list[str] | None = None,
    weights: bool = False,
) -> list[Step]:
    """Every step of a text through one block and one head of a network, with weights if asked."""
    inputs = inputs_for(network, tokenizer, text, target)
    names = list_names(network, inputs)
    deep = [int(found[2]) for name in names if (found := BLOCK.match(name))]
    if deep and not 0 <= layer <= max(deep):
        raise GlassError(f"there is no block {layer}; the last is {max(deep)}")
    wanted = {name for name in names if is_shown(name, layer, max(deep, default=0))}
    around = {stack.split(".")[0] for stack in network.stacks}
    inside = {f"{n}.*" for n in wanted - around if not BLOCK.fullmatch(n)}  # what kernels hide
    traced = trace_inputs(network, tokenizer, inputs, *wanted, *inside, strict=False)
    answers = labels or [tokenizer.token(i) for i in range(tokenizer.vocab)]
    steps = [tokens_step(network, traced, tokenizer, layer if deep else None)]
    for name, at in shown(traced):
        value, leaf = traced.trace.visits[name][at], name.rsplit(".", 1)[-1]
        told = told_of(network, traced, name, at, layer, head)
        first = at == 0 and len(traced.trace.visits[name]) > 1
        step = step_of(traced, name, value, told, head, source=first and bool(traced.source))
        if (leaf in ANSWERS or leaf.startswith("order")) and len(answers) == value.shape[-1]:
            step = replace(step, tables=tuple(replace(t, columns=answers) for t in step.tables))
        if weights:
            extra = (Table(n, w.detach().float(), kind="given") for n, w in told.weights)
            step = replace(step, tables=(*extra, *step.tables))
        steps.append(step)
    return [*steps, chances_step(network, traced, tokenizer, labels)]


def told_of(
    network: Network, traced: TracedText, name: str, at: int, layer: int, head: int
) -> Description:
    """What a value is, where it depends on more than the part that makes it."""
    block = BLOCK.fullmatch(name)
    if block:
        return block_told(int(block[2]), layer)
    told = describe_value(network, name, head)
    if name == "output":
        made = answer_of(network, traced)
        return replace(told, formula=made.formula, weights=made.weights)
    return told


def is_shown(name: str, layer: int, last: int) -> bool:
    """Whether a value is outside of blocks, or in this one; of the others, what goes into it and
    what the last one says."""
    block = BLOCK.match(name)
    if block is None or int(block[2]) == layer:
        return True
    return not block[3] and int(block[2]) in (layer - 1, last)


def shown(traced: TracedText) -> Iterator[tuple[str, int]]:
    """The names of values in the order in which they came, with the number of the visit."""
    seen: dict[str, int] = {}
    for name in traced.trace.order:
        at = seen[name] = seen.get(name, -1) + 1
        leaf = name.rsplit(".", 1)[-1]
        if leaf not in SAME and not (leaf in LAST and is_answer(traced, name)):
            yield name, at


def is_answer(traced: TracedText, name: str) -> bool:
    value = traced.trace[name][0]
    return value.shape == traced.output.shape and bool((value.float() == traced.output).all())


def answer_of(network: Network, traced: TracedText) -> Description:
    """How the scores in the end are made: by a part, or by comparing with every embedding."""
    for name in LAST & traced.trace.keys():
        if is_answer(traced, name):
            return describe_value(network, name, 0)
    last = [value for name, value in traced.trace.items() if name != "output"][-1:]
    for name, formula, mark in (("token.weight", "X Eᵀ", "Eᵀ"), ("head.weight", "X W", "W")):
        table = dict(network.named_parameters()).get(name)
        if table is None or not last or last[0].shape[-1] != table.shape[1]:
            continue
        if close(last[0][0] @ table.T, traced.output):
            return Description(formula=formula, weights=((mark, table.T),))
    return Description()


def close(a: Tensor, b: Tensor) -> bool:
    """Whether two ways came to the same, as far as their precision tells."""
    exact = a.dtype in (torch.float32, torch.float64)
    return torch.allclose(a.float(), b.float(), atol=1e-4 if exact else 0.05)


def block_told(number: int, layer: int) -> Description:
    if number == layer:
        says = tr("What the block says: it goes on.")
    elif number < layer:
        says = tr("Blocks before block {layer} are left out: this goes into it.", layer=layer)
    else:
        says = tr("Blocks after block {layer} are left out: the last one says this.", layer=layer)
    return Description(tr("Block"), "", says)


def tokens_step(
    network: Network, traced: TracedText, tokenizer: Tokenizer, layer: int | None
) -> Step:
    rows = [("ids", traced.tokens), ("source", traced.source)]
    tables = [
        Table(tr(name), traced.inputs[name].float(), (), tokens, "given", 0)
        for name, tokens in rows
        if tokens
    ]
    says = tr("The text is cut into tokens, and each token has a number.")
    says += tr(" It is read by a {name}.", name=model_name(network))
    if layer is not None:
        says += tr(" Block {layer} is shown whole.", layer=layer)
    unknown = {tokenizer.special_tokens.get(mark) for mark in ("<unk>", "[UNK]")}
    lost = sum(int(i) in unknown for ids in traced.inputs.values() for i in ids.flatten())
    if lost:
        says += tr(" {n} of the tokens are unknown to its tokenizer.", n=lost)
    return Step(tr("Tokens and ids"), "", says, tuple(reversed(tables)))


def step_of(
    traced: TracedText, name: str, value: Tensor, told: Description, head: int, *, source: bool
) -> Step:
    """A value with its meaning, and its numbers."""
    leaf = name.rsplit(".", 1)[-1]
    queries = traced.trace.get(
        f"{name.rpartition('.')[0]}.q", value
    )  # keys may serve several heads
    grid, many = sheet_of(value, head, name, queries.shape[1])
    rows, columns = names_of(traced, name, grid, source)
    title = told.title or name
    if source and "." not in name:
        title = tr("{title}, of the source", title=title)
    if "." in name and told.title:
        title = tr("{title} ({name})", title=title, name=name)
    more = tr(" Head {head} of 0 to {last}.", head=head, last=many - 1) if many else ""
    kind: Kind = "made" if leaf in WORKED and told.formula and not told.partly else "given"
    table = Table(name, grid, rows, columns, kind, shaded=leaf == "pattern")
    return Step(title, told.formula, told.says + more, (table,))


def sheet_of(value: Tensor, head: int, name: str, many: int) -> tuple[Tensor, int]:
    """The first text's numbers, in one of so many heads, if it has heads: r c."""
    value = value.detach().float()
    if value.ndim == 4:
        if not 0 <= head < many:
            raise GlassError(f"{name} has the heads 0 to {many - 1}; there is no head {head}")
        return value[0, head * value.shape[1] // many], many
    value = value[0] if value.ndim == 3 else value
    return (value if value.ndim == 2 else value.reshape(1, -1)), 0


def names_of(
    traced: TracedText, name: str, grid: Tensor, source: bool
) -> tuple[list[str], list[str]]:
    """Tokens beside rows, and above columns where these are tokens too."""
    crosses, leaf = "cross" in name, name.rsplit(".", 1)[-1]
    source = bool(traced.source) and (source or of_source(name))
    read_from = traced.source if source or (crosses and traced.source) else traced.tokens
    own = traced.source if source else traced.tokens
    rows = own if len(own) == len(grid) else []
    across = leaf in ("scores", "pattern") and len(read_from) == grid.shape[1]
    return list(rows), list(read_from) if across else []


def top_tokens(
    traced: TracedText, tokenizer: Tokenizer, top: int, labels: list[str] | None = None
) -> list[tuple[str, float]]:
    """The likeliest tokens after the last place or in that of [MASK], or labels of the text."""
    output = traced.output
    name: Callable[[int], str] = labels.__getitem__ if labels else str
    if output.ndim == 2:
        output, name = output[answer_position(tokenizer, torch.tensor(traced.ids))], tokenizer.token
    probs, best = output.softmax(dim=-1).topk(min(top, len(output)))
    return [(name(int(i)), float(p)) for p, i in zip(probs, best, strict=True)]


def chances_step(
    network: Network, traced: TracedText, tokenizer: Tokenizer, labels: list[str] | None
) -> Step:
    names, probs = zip(*top_tokens(traced, tokenizer, TOP, labels), strict=True)
    if traced.output.ndim == 1:
        says = tr("The likeliest labels.") if labels else tr("The likeliest classes.")
    elif "[MASK]" in traced.tokens:
        says = tr("The likeliest in place of [MASK].")
    elif network.has(Trait.CACHED):
        says = tr("The likeliest after the last token.")
    else:
        says = tr("The likeliest in the last place; write [MASK] where a token is to be guessed.")
    table = Table(tr("probabilities"), torch.tensor([probs]), (), names)
    return Step(tr("Probabilities"), "softmax(logits)", says, (table,))
