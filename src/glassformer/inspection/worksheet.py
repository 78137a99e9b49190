"""The worksheet of any model: a text's forward pass, step by step."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.describe import Description, describe_value
from glassformer.inspection.sheet import Kind, Step, Table
from glassformer.inspection.traced_text import (
    TracedText,
    is_source_value,
    list_names,
    prediction_position,
    trace_inputs,
)
from glassformer.models.network import Network, Trait
from glassformer.nn.labels import label_probs
from glassformer.predict import inputs_for
from glassformer.registry import model_name
from glassformer.text.bilingual import source_tokenizer
from glassformer.text.tokenizer import Tokenizer, unknown_ids

REDUNDANT = set(  # shown elsewhere
    "query key value out up down dropout gate dense score gate_in gate_out evidence prior "
    "unaligned".split()
)
# values that a reader can compute from the tables before them, so exercises may leave them blank
COMPUTED = {"scores", "pattern", "head_outputs", "mean", "std", "normalized", "embedded", "pooled"}
LOGITS = set(  # values with a column for each token or label
    "output votes head masked network_logits count_logits lexical_logits".split()
)
OUTPUT_MODULES = {"head", "masked"}  # their output may be the network's output
BLOCK = re.compile(r"((?:body\.)?(?:blocks|layers|encoder|decoder)\.)(\d+)(\.|$)")
TOP = 8  # number of most likely tokens shown


def worksheet(
    network: Network,
    tokenizer: Tokenizer,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    target: str | None = None,
    labels: list[str] | None = None,
    temperature: float = 1.0,
    multi_label: bool = False,
    weights: bool = False,
) -> list[Step]:
    """Return the steps of a text's forward pass, in detail for one block and one head.

    `target` is the translation to condition on, `labels` are the classes of a classifier
    whose logits are divided by `temperature`, and
    `weights` adds the weights of each step.
    """
    inputs = inputs_for(network, tokenizer, text, target)
    names = list_names(network, inputs)
    blocks = [int(match[2]) for name in names if (match := BLOCK.match(name))]
    if blocks and not 0 <= layer <= max(blocks):
        raise GlassError(f"there is no block {layer}; the last is {max(blocks)}")
    if layer and not blocks:
        raise GlassError(f"there is no block {layer}: this model has no blocks to choose from")
    if head and not any(name.endswith((".head_outputs", ".pattern")) for name in names):
        raise GlassError(f"there is no head {head}: this model has no attention heads")
    selected = {name for name in names if is_shown(name, layer, max(blocks, default=0))}
    stacks = {stack.split(".")[0] for stack in network.stacks}
    # values that a fused kernel computes only if they are traced
    inside = {f"{n}.*" for n in selected - stacks if not BLOCK.fullmatch(n)}
    traced = trace_inputs(network, tokenizer, inputs, *selected, *inside, strict=False)
    outcomes = labels or [tokenizer.token(i) for i in range(tokenizer.vocab)]
    steps = [tokens_step(network, traced, tokenizer, layer if blocks else None)]
    visits = [
        (name, visit, traced.trace.visits[name][visit]) for name, visit in shown_visits(traced)
    ]
    max_heads = max((count_heads(traced, name, value) for name, _, value in visits), default=0)
    if head >= max(max_heads, 1):
        raise GlassError(f"there is no head {head}; the last is {max(max_heads, 1) - 1}")
    for name, visit, value in visits:
        leaf = name.rsplit(".", 1)[-1]
        shown_head = head if count_heads(traced, name, value) > 1 else 0  # some have only one
        description = describe_visit(network, traced, name, layer, shown_head)
        is_first = visit == 0 and len(traced.trace.visits[name]) > 1
        is_source = is_first and bool(traced.source)
        step = make_step(traced, name, value, description, shown_head, is_source=is_source)
        if (leaf in LOGITS or leaf.startswith("order")) and len(outcomes) == value.shape[-1]:
            step = replace(step, tables=tuple(replace(t, columns=outcomes) for t in step.tables))
        if weights:
            extra = (Table(n, w.detach().float(), kind="given") for n, w in description.weights)
            step = replace(step, tables=(*extra, *step.tables))
        steps.append(step)
    scale = OutputScale(temperature, multi_label)
    return [*steps, probabilities_step(network, traced, tokenizer, labels, scale)]


def describe_visit(
    network: Network, traced: TracedText, name: str, layer: int, head: int
) -> Description:
    """Describe a value, including blocks and the output, which depend on the entire pass."""
    block = BLOCK.fullmatch(name)
    if block:
        return describe_block(int(block[2]), layer)
    description = describe_value(network, name, head)
    if name == "output":
        output = describe_output(network, traced)
        return replace(description, formula=output.formula, weights=output.weights)
    return description


def is_shown(name: str, layer: int, last: int) -> bool:
    """Whether to show a value: those outside blocks, those inside this block, the block's input,
    and the output of the last block."""
    block = BLOCK.match(name)
    if block is None or int(block[2]) == layer:
        return True
    return not block[3] and int(block[2]) in (layer - 1, last)


def shown_visits(traced: TracedText) -> Iterator[tuple[str, int]]:
    """The names of the values to show, in order, each with the index of the visit."""
    visits: dict[str, int] = {}
    for name in traced.trace.order:
        visit = visits[name] = visits.get(name, -1) + 1
        leaf = name.rsplit(".", 1)[-1]
        if leaf not in REDUNDANT and not (leaf in OUTPUT_MODULES and is_output(traced, name)):
            yield name, visit


def is_output(traced: TracedText, name: str) -> bool:
    """Whether a value equals the output of the network."""
    value = traced.trace[name][0]
    return value.shape == traced.output.shape and bool((value.float() == traced.output).all())


def describe_output(network: Network, traced: TracedText) -> Description:
    """Describe how the logits are computed: by a module, or from the embedding table."""
    for name in OUTPUT_MODULES & traced.trace.keys():
        if is_output(traced, name):
            return describe_value(network, name, 0)
    last = [value for name, value in traced.trace.items() if name != "output"][-1:]
    for name, formula, symbol in (("token.weight", "X Eᵀ", "Eᵀ"), ("head.weight", "X W", "W")):
        table = dict(network.named_parameters()).get(name)
        if table is None or not last or last[0].shape[-1] != table.shape[1]:
            continue
        if is_close(last[0][0] @ table.T, traced.output):
            return Description(formula=formula, weights=((symbol, table.T),))
    return Description()


def is_close(a: Tensor, b: Tensor) -> bool:
    """Whether two results are equal within the precision of the first."""
    is_full_precision = a.dtype in (torch.float32, torch.float64)
    return torch.allclose(a.float(), b.float(), atol=1e-4 if is_full_precision else 0.05)


def describe_block(block: int, layer: int) -> Description:
    if block == layer:
        text = tr("The output of the block.")
    elif block < layer:
        text = tr("Blocks before block {layer} are omitted; this is its input.", layer=layer)
    else:
        text = tr(
            "Blocks after block {layer} are omitted; this is the output of the last one.",
            layer=layer,
        )
    return Description(tr("Block"), "", text)


def tokens_step(
    network: Network, traced: TracedText, tokenizer: Tokenizer, layer: int | None
) -> Step:
    rows = [("ids", traced.tokens), ("source", traced.source)]
    tables = [
        Table(tr(name), traced.inputs[name].float(), (), tokens, "given", 0)
        for name, tokens in rows
        if tokens
    ]
    text = tr("The text is split into tokens, and each token has an id.")
    text += tr(" The model is a {name}.", name=model_name(network))
    if layer is not None:
        text += tr(" Every step of block {layer} is shown.", layer=layer)
    n_unknown = sum(
        int(i) in unknown_ids(source_tokenizer(tokenizer) if name == "source" else tokenizer)
        for name, ids in traced.inputs.items()
        for i in ids.flatten()
    )
    if n_unknown == 1:
        text += tr(" 1 of the tokens is not in the vocabulary.")
    elif n_unknown:
        text += tr(" {n} of the tokens are not in the vocabulary.", n=n_unknown)
    return Step(tr("Tokens and ids"), "", text, tuple(reversed(tables)))


def make_step(
    traced: TracedText,
    name: str,
    value: Tensor,
    description: Description,
    head: int,
    *,
    is_source: bool,
) -> Step:
    leaf = name.rsplit(".", 1)[-1]
    n_heads = count_heads(traced, name, value)
    grid = select_head(value, head, name, n_heads)
    rows, columns = axis_labels(traced, name, grid, is_source)
    title = description.title or name
    if is_source and "." not in name:
        title = tr("{title}, source", title=title)
    if "." in name and description.title:
        title = tr("{title} ({name})", title=title, name=name)
    more = (
        tr(" Head {head}; heads are numbered 0 to {last}.", head=head, last=n_heads - 1)
        if n_heads
        else ""
    )
    is_computed = leaf in COMPUTED and description.formula and not description.has_unshown_inputs
    kind: Kind = "computed" if is_computed else "given"
    table = Table(name, grid, rows, columns, kind, shaded=leaf in ("pattern", "alignment"))
    return Step(title, description.formula, description.text + more, (table,))


def count_heads(traced: TracedText, name: str, value: Tensor) -> int:
    """The number of heads of a value, or 0 if it has no axis of heads."""
    if value.ndim != 4:
        return 0
    queries = traced.trace.get(f"{name.rpartition('.')[0]}.q", value)  # heads may share keys
    return queries.shape[1]


def select_head(value: Tensor, head: int, name: str, n_heads: int) -> Tensor:
    """The matrix for the first sequence and, if there are heads, for one of them."""
    value = value.detach().float()
    if n_heads:
        if not 0 <= head < n_heads:
            raise GlassError(f"{name} has heads 0 to {n_heads - 1}; there is no head {head}")
        return value[0, head * value.shape[1] // n_heads]
    value = value[0] if value.ndim == 3 else value
    return value if value.ndim == 2 else value.reshape(1, -1)


def axis_labels(
    traced: TracedText, name: str, grid: Tensor, is_source: bool
) -> tuple[list[str], list[str]]:
    """The tokens of the rows, and of the columns of attention scores and weights."""
    is_cross = "cross" in name
    leaf = name.rsplit(".", 1)[-1]
    is_source = bool(traced.source) and (is_source or is_source_value(name))
    keys = traced.source if is_source or (is_cross and traced.source) else traced.tokens
    queries = traced.source if is_source else traced.tokens
    rows = queries if len(queries) == len(grid) else []
    if leaf == "alignment":
        return list(rows), traced.aligned_tokens
    has_keys = leaf in ("scores", "pattern") and len(keys) == grid.shape[1]
    return list(rows), list(keys) if has_keys else []


@dataclass(frozen=True)
class OutputScale:
    """How logits become probabilities; the defaults are those of every model but classifiers."""

    temperature: float = 1.0
    multi_label: bool = False  # whether each label has a probability of its own

    def probs(self, logits: Tensor) -> Tensor:
        return label_probs(logits / self.temperature, multi_label=self.multi_label)

    @property
    def formula(self) -> str:
        logits = "logits" if self.temperature == 1 else f"logits / {self.temperature:g}"
        return f"{'sigmoid' if self.multi_label else 'softmax'}({logits})"


def top_tokens(
    traced: TracedText,
    tokenizer: Tokenizer,
    top: int,
    labels: list[str] | None = None,
    scale: OutputScale | None = None,
) -> list[tuple[str, float]]:
    """The most likely tokens and their probabilities, at the last position or at the first [MASK];
    for a classifier, the most likely labels."""
    output = traced.output
    name: Callable[[int], str] = labels.__getitem__ if labels else str
    if output.ndim == 2:
        output = output[prediction_position(tokenizer, torch.tensor(traced.ids))]
        name = tokenizer.token
    probs, best = (scale or OutputScale()).probs(output).topk(min(top, len(output)))
    return [(name(int(i)), float(p)) for p, i in zip(probs, best, strict=True)]


def probabilities_step(
    network: Network,
    traced: TracedText,
    tokenizer: Tokenizer,
    labels: list[str] | None,
    scale: OutputScale,
) -> Step:
    names, probs = zip(*top_tokens(traced, tokenizer, TOP, labels, scale), strict=True)
    if traced.output.ndim == 1:
        text = tr("The most likely labels.") if labels else tr("The most likely classes.")
    elif "[MASK]" in traced.tokens:
        text = tr("The most likely tokens at [MASK].")
    elif network.has(Trait.CACHED):
        text = tr("The most likely tokens after the last token.")
    else:
        text = tr("The most likely tokens at the last position; write [MASK] to predict a token.")
    table = Table(tr("probabilities"), torch.tensor([probs]), (), names)
    return Step(tr("Probabilities"), scale.formula, text, (table,))
