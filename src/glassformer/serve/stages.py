"""The stages of a forward pass: one for every value, with what a page shows of it.

Shapes: b batch, t tokens, s source tokens, h heads.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.describe import Description, describe_value, tap_formula
from glassformer.inspection.mathml import to_mathml
from glassformer.inspection.traced_text import is_source_value
from glassformer.inspection.worksheet import BLOCK, LOGITS
from glassformer.models.network import Network
from glassformer.serve.passes import Pass, Visit
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Tap, list_values

HIDDEN_LEAVES = {"dropout"}  # equal to the value before them, in prediction


def attention_layers(network: Network) -> list[str]:
    """The names of all layers that have an attention pattern."""
    return [n.removesuffix(".pattern") for n in list_values(network) if n.endswith(".pattern")]


def token_rows(tokenizer: Tokenizer | None, ids: Tensor | None) -> list[dict[str, Any]]:
    """The tokens of the first sequence, with their ids, as a page shows them."""
    if tokenizer is None or ids is None:
        return []
    return [{"text": show_whitespace(tokenizer.token(i)), "id": i} for i in ids[0].tolist()]


def list_stages(network: Network, found: Pass, outcomes: list[str] | None) -> list[dict[str, Any]]:
    """Every value of a pass, in the order of computation."""
    declared = list_values(network)
    return [
        describe_stage(network, found, name, visit, declared.get(visit.name), outcomes)
        for name, visit in found.visits.items()
        if visit.name.rpartition(".")[2] not in HIDDEN_LEAVES and all(visit.shape)
    ]


def describe_stage(
    network: Network,
    found: Pass,
    name: str,
    visit: Visit,
    declaration: Tap | None,
    outcomes: list[str] | None,
) -> dict[str, Any]:
    description = describe(network, visit.name, declaration)
    axes = declaration.axes if declaration else guess_axes(visit, outcomes)
    block = BLOCK.match(visit.name)
    return {
        "name": name,
        "block": visit.name[: block.end(2)] if block else "",
        "title": description.title,
        "text": description.text,
        "formula": to_mathml(description.formula),
        "axes": axes,
        "shape": list(visit.shape),
        "has_batch": axes.startswith("b") if axes else visit.shape[:1] == (1,),
        "stats": visit.stats,
        "rows": find_rows(found, name, visit),
        "columns": find_columns(found, visit, outcomes),
        "source": asdict(visit.source) if visit.source else None,
    }


def guess_axes(visit: Visit, outcomes: list[str] | None) -> str:
    """The axes of a module's output, which has no declaration; "" if they are not clear."""
    shape = visit.shape
    is_logits = outcomes is not None and shape[-1:] == (len(outcomes),)
    if len(shape) == 3 and shape[0] == 1:
        return "b t v" if is_logits else "b t d"
    if len(shape) == 2:
        return ("b c" if is_logits else "b d") if shape[0] == 1 else "t d"
    return ""


def describe(network: Network, name: str, declaration: Tap | None) -> Description:
    """The description of a value; at least the formula that its module declares."""
    if BLOCK.fullmatch(name):
        return Description(tr("Block"), "", tr("The output of the block."))
    found = describe_value(network, name, 0)
    if not found.formula and declaration:
        path, _, leaf = name.rpartition(".")
        formula = tap_formula(network.get_submodule(path), leaf)
        return Description(found.title, formula, found.text, found.weights)
    return found


def find_rows(found: Pass, name: str, visit: Visit) -> str:
    """Whose tokens label the rows of a value: those of the text, of its source, or nobody's."""
    subject = found.subject
    n_rows = visit.shape[-2] if len(visit.shape) > 1 else 0
    is_target = subject.tokens and n_rows == len(subject.tokens)
    is_source = subject.source and n_rows == len(subject.source)
    if is_source and (is_source_value(name) or not is_target):
        return "source"
    return "tokens" if is_target else ""


def find_columns(found: Pass, visit: Visit, outcomes: list[str] | None) -> str:
    """What labels the columns of a value: tokens of the text or source, outcomes, or nothing."""
    leaf = visit.name.rpartition(".")[2]
    subject = found.subject
    size = visit.shape[-1] if visit.shape else 0
    if leaf in ("scores", "pattern"):
        is_source = bool(subject.source) and (
            "cross" in visit.name or visit.name.startswith("encoder")
        )
        keys = subject.source if is_source else subject.tokens
        if keys and size == len(keys):
            return "source" if is_source else "tokens"
    return "outcomes" if outcomes and leaf in LOGITS and size == len(outcomes) else ""
