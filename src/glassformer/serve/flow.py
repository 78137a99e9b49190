"""A forward pass stage by stage, the numbers of its values, and where a number came from."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.core.bounds import MAX_SIZE
from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.why import Explanation, Term
from glassformer.serve.passes import Pass, removable_parts
from glassformer.serve.prediction import find_outcomes, predict
from glassformer.serve.session import Request, Response, Session
from glassformer.serve.stages import attention_layers, list_stages, token_rows
from glassformer.text.tokenizer import unknown_ids

MAX_TERMS = 400  # of one number
MAX_NUMBERS = 40_000_000  # of one value


def run_pass(session: Session, request: Request) -> Response:
    """The stages of a forward pass with shapes, statistics, formulas and source lines."""
    found = session.find_pass(request)
    unknown = count_unknown(session, found)
    return {
        "tokens": token_rows(session.model.tokenizer, found.subject.inputs.get("ids")),
        "source": token_rows(session.model.tokenizer, found.subject.inputs.get("source")),
        "names": {"tokens": found.subject.tokens, "source": found.subject.source},
        "stages": list_stages(session.model.network, found, find_outcomes(session)),
        "layers": found_layers(session, found),
        "prediction": predict(session, found),
        "unknown": unknown,
        "image": found.subject.image,
        "removable": removable_parts(session.model.network),
    }


def found_layers(session: Session, found: Pass) -> list[Response]:
    """The attention layers of a pass."""
    layers = []
    for name in attention_layers(session.model.network):
        for visit_name, visit in found.visits.items():
            if visit_name.partition("#")[0] == f"{name}.pattern" and len(visit.shape) == 4:
                _, heads, queries, keys = visit.shape
                layers.append(
                    {"name": name, "value": visit_name, "heads": heads, "queries": queries,
                     "keys": keys, "is_cross": "cross" in name}
                )  # fmt: skip
    return layers


def count_unknown(session: Session, found: Pass) -> int:
    if session.model.tokenizer is None:
        return 0
    unknown = unknown_ids(session.model.tokenizer)
    inputs = (found.subject.inputs.get(name) for name in ("ids", "source"))
    return sum(int(i) in unknown for ids in inputs if ids is not None for i in ids.flatten())


def read_values(session: Session, request: Request) -> Response:
    """The numbers of one value, or of a part: `index` has a number or null for each axis.

    With `pool`, the last two axes are reduced to at most this many cells, each the maximum of what
    it covers.
    """
    found = session.find_pass(request)
    name = request.get("name")
    value = found.value(str(name))
    part = value[parse_index(request.get("index"), value)]
    pool = request.get("pool")
    if type(pool) is int and part.ndim >= 2 and max(part.shape[-2:]) > pool > 0:
        part = shrink(part, pool)
    if part.numel() > MAX_NUMBERS:
        raise GlassError(f"{name} has {part.numel():,} numbers: ask for a part of it")
    return {"values": part, "shape": list(value.shape)}


def parse_index(index: Any, value: Tensor) -> tuple[Any, ...]:
    entries = [] if index is None else index
    if not isinstance(entries, list) or len(entries) > value.ndim:
        raise GlassError(f"an index needs at most {value.ndim} numbers, got {index!r}")
    parts: list[Any] = []
    for entry, size in zip(entries, value.shape, strict=False):
        if entry is None:
            parts.append(slice(None))
        elif type(entry) is int and -size <= entry < size:
            parts.append(entry)
        else:
            raise GlassError(f"{entry!r} is not an index into an axis of size {size}")
    return tuple(parts)


def shrink(value: Tensor, size: int) -> Tensor:
    """The maximum in each cell of a grid of at most size x size over the last two axes."""
    sides = [min(n, size) for n in value.shape[-2:]]
    grid = value.float().flatten(0, -3)[None] if value.ndim > 2 else value.float()[None, None]
    return F.adaptive_max_pool2d(grid, sides)[0].reshape(*value.shape[:-2], *sides)


def explain(session: Session, request: Request) -> Response:
    """Where one number came from: `entry` is a name and an index, as for `glass walk --why`.

    `path` leads on from there: pairs of a term and one of its factors, for numbers without a name.
    """
    if request.get("edits"):
        raise GlassError("where a number comes from is shown for passes without edits only")
    recorded = session.find_pass(request).recorded
    explanation = recorded.explain_named(str(request.get("entry")))
    path = request.get("path") or []
    if not isinstance(path, list):
        raise GlassError(f"a path must be a list of terms and factors, got {path!r}")
    for step in path:
        try:
            term, factor = map(range(MAX_SIZE).index, step)
            explanation = recorded.explain(order_terms(explanation)[term].entries[factor])
        except (TypeError, ValueError, IndexError):
            raise GlassError(
                f"{step!r} is not a term and a factor of {explanation.name!r}"
            ) from None
    operations = [explanation.operation]
    while (following := only_unnamed(explanation)) is not None:
        operations.append(following.operation)
        path, explanation = [*path, [0, 0]], following
    names = [tr(operation) for operation in operations if operation != "× 1"]
    return {"operations": names, "path": path, **explain_entry(explanation)}


def order_terms(explanation: Explanation) -> list[Term]:
    return list(explanation.terms) if explanation.is_ordered else explanation.sorted_terms()


def only_unnamed(explanation: Explanation) -> Explanation | None:
    """The explanation of the only term of a number, if that has no name."""
    if len(explanation.terms) != 1 or len(explanation.terms[0].entries) != 1:
        return None
    (entry,) = explanation.terms[0].entries
    recorded = explanation.recorded
    if recorded.name_entry(entry) or not recorded.is_activation(entry):
        return None
    return recorded.explain(entry)


def explain_entry(explanation: Explanation) -> Response:
    """One number with its largest terms; `can_follow` marks factors that were computed."""
    recorded = explanation.recorded
    terms = order_terms(explanation)[:MAX_TERMS]
    value = explanation.value
    recomputed = explanation.recomputed
    width = max((len(term.entries) for term in terms), default=0)
    values = torch.full((len(terms), width + 1), float("nan"))
    for row, term in enumerate(terms):
        values[row, : len(term.values)] = torch.tensor(term.values)
        values[row, width] = prod(term.values) if term.probability is None else term.probability
    return {
        "name": explanation.name,
        "position": recorded.describe_position(explanation.name),
        "value": torch.tensor([value, value if recomputed is None else recomputed]),
        "is_source": not explanation.operation,
        "terms": [[recorded.name_entry(entry) for entry in term.entries] for term in terms],
        "can_follow": [[recorded.is_activation(e) for e in term.entries] for term in terms],
        "values": values,
        "total": len(explanation.terms),
        "has_probabilities": any(term.probability is not None for term in terms),
    }
