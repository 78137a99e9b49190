"""Explain how one number inside a model was computed, down to the embedding table or a weight.

A forward pass is recorded operation by operation. Operations that only move numbers (views,
lookups, concatenations) are run again on indices instead of numbers, to find where each number
came from. Operations that compute are run again for the one number, to check the explanation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import exp, isfinite, nan, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.displayable import Displayable
from glassformer.inspection.record import MOVES, OpResult, Recorder
from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.traced_text import is_source_value
from glassformer.text.bilingual import source_tokenizer
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

ELEMENTWISE = set(
    "add sub rsub mul div neg abs exp log sqrt rsqrt square pow reciprocal sin cos tanh sigmoid "
    "relu gelu silu erf clamp clamp_min clamp_max maximum minimum".split()
)
SYMBOLS = {"add": "+", "sub": "−", "mul": "×", "div": "÷", "neg": "−", "sqrt": "√", "pow": "^"}
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
REDUCTIONS = {"_softmax": "softmax", "_log_softmax": "log softmax", "sum": "sum", "mean": "mean"}
MAX_CHAIN = 200  # maximum number of steps in an explanation
MAX_TERMS = 4  # terms shown per step, after the first step
Entry = tuple[Tensor, tuple[int, ...]]  # one number: a tensor and an index into it


@dataclass(frozen=True)
class Term:
    """One term in the computation of a number; in a matrix product, a pair of factors."""

    entries: tuple[Entry, ...]
    probability: float | None = None  # in a softmax

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(map(entry_value, self.entries))

    @property
    def magnitude(self) -> float:
        """The size of its contribution to the result."""
        size = abs(prod(self.values)) if self.probability is None else self.probability
        return size if isfinite(size) else 0.0


@dataclass(frozen=True, repr=False)
class Explanation(Displayable):
    """One number, the operation that computed it, and its terms."""

    recorded: RecordedPass
    entry: Entry
    operation: str  # empty for a weight or an input
    terms: tuple[Term, ...] = ()
    recomputed: float | None = None  # the number recomputed from its terms
    is_ordered: bool = False  # whether the order of the terms matters, as in a − b
    own_term: int | None = None  # in a softmax, the index of the term for its own logit

    @property
    def value(self) -> float:
        return entry_value(self.entry)

    @property
    def name(self) -> str:
        return self.recorded.name_entry(self.entry)

    def sorted_terms(self) -> list[Term]:
        """The terms, the largest contribution first."""
        return sorted(self.terms, key=lambda term: -term.magnitude)

    def explain_next(self) -> Explanation | None:
        """Explain the largest term; for a quotient, the dividend; for a softmax, its own logit.

        Terms that are activations come first; weights and constants (such as rotation angles) are
        explained only if there are no activations.
        """
        order = list(self.terms[:1]) if self.operation.startswith("÷") else []
        order += [self.terms[self.own_term]] if self.own_term is not None else []
        skipped: list[Entry] = []
        for term in (*order, *self.sorted_terms()):
            for entry in reversed(term.entries):
                if self.recorded.is_activation(entry):
                    return self.recorded.explain(entry)
                skipped.append(entry)
        return self.recorded.explain(skipped[0]) if skipped else None

    def steps(self) -> list[Step]:
        """The number with all its terms, then the largest of them, and so on, down to a weight."""
        chain: list[Explanation] = [self]
        while (
            len(chain) < MAX_CHAIN
            and chain[-1].operation
            and (following := chain[-1].explain_next())
        ):
            chain.append(following)
        first, *below = (
            explanation.step(None if explanation is self else MAX_TERMS) for explanation in chain
        )
        text = self.recorded.describe_position(self.name) + first.text
        if below:
            text += " " if first.text else ""
            text += tr(
                "All its terms are listed; each step below explains the largest term of the step "
                "above it."
            )
        return [replace(first, text=text), *below]

    def step(self, max_terms: int | None) -> Step:
        """The number with its largest terms."""
        title = f"{self.name or tr('(unnamed)')} = {self.value:.6g}"
        if not self.operation:
            *_, origin = self.recorded.path(self.entry)
            return Step(title, "", tr("read from {name}", name=self.recorded.name_entry(origin)))
        terms = (self.terms if self.is_ordered else self.sorted_terms())[:max_terms]
        rest = self.sorted_terms()[len(terms) :]
        text = ""
        if rest and not self.is_ordered:
            total = sum(prod(t.values) if t.probability is None else t.probability for t in rest)
            total /= len(self.terms) if self.operation == "mean" else 1
            text = tr("The other {n} terms add up to {total:.6g}.", n=len(rest), total=total)
        error = 0.0 if self.recomputed is None else abs(self.recomputed - self.value)
        if error > 1e-3 * max(abs(self.value), 1):
            text += tr(
                " Recomputed from its terms, it is {recomputed:.6g}: the value was later modified "
                "in place.",
                recomputed=self.recomputed,
            )
        tables = (self.terms_table(terms),) if terms else ()
        return Step(title, tr(self.operation), text.strip(), tables)

    def terms_table(self, terms: Sequence[Term]) -> Table:
        """A row for each term: its factors and their product, or its value and probability."""
        n_factors = max(len(term.values) for term in terms)
        columns = [tr("value")]
        values = [list(term.values) for term in terms]
        if n_factors > 1:
            columns = [*(f"{tr('factor')} {i + 1}" for i in range(n_factors)), tr("product")]
            values = [[*row, *[nan] * (n_factors - len(row)), prod(row)] for row in values]
        elif terms[0].probability is not None:
            columns += [tr("probability")]
            values = [[*row, t.probability or 0.0] for row, t in zip(values, terms, strict=True)]
        unnamed = tr("(unnamed)")
        rows = [
            " × ".join(self.recorded.name_entry(entry) or unnamed for entry in term.entries)
            for term in terms
        ]
        return Table(
            tr("terms"), torch.tensor(values), rows, columns, "given", 6, dash_for_nan=True
        )


class RecordedPass:
    """A recorded forward pass of a network; `explain_named` explains any number in it."""

    def __init__(
        self, network: nn.Module, inputs: dict[str, Tensor], tokenizer: Tokenizer | None = None
    ) -> None:
        self.network = network
        self.inputs = inputs
        self.tokenizer = tokenizer
        self.recorder = Recorder(network.parameters())
        with torch.no_grad(), self.recorder, Trace(network) as trace:
            network(**inputs)
        self.trace, self.results = trace, self.recorder.results
        self.moved_indices: dict[int, Tensor] = {}  # by the id of an OpResult

    def is_activation(self, entry: Entry) -> bool:
        """Whether a number depends on weights without being one."""
        return id(entry[0]) in self.recorder.computed_from_weights - self.recorder.weights

    def describe_position(self, entry_name: str) -> str:
        """The tokens that a number belongs to, if its index refers to tokens."""
        name, _, numbers = entry_name.rstrip("]").partition("[")
        if self.tokenizer is None or not numbers:
            return ""
        shape = self.trace[name.split("#")[0]].shape
        index = [int(i) for i in numbers.split(",")]
        leaf = name.rsplit(".", 1)[-1]
        source = self.inputs.get("source", self.inputs["ids"])
        is_source = "source" in self.inputs and is_source_value(name)
        ids = source if is_source else self.inputs["ids"]
        if len(shape) < 3 or shape[-2] != ids.shape[1]:
            return ""
        source_language = source_tokenizer(self.tokenizer)
        language = source_language if is_source else self.tokenizer
        row = repr(language.token(int(ids[index[0], index[-2]])))
        if leaf == "output" and shape[-1] == self.tokenizer.vocab:
            token = repr(self.tokenizer.token(index[-1]))
            return tr("The logit of {token} at token {row}. ", row=row, token=token)
        if leaf in ("scores", "pattern"):
            if "cross" in name:
                ids, language = source, source_language
            column = repr(language.token(int(ids[index[0], index[-1]])))
            return tr("Query {row}, key {column}. ", row=row, column=column)
        return tr("Token {row}. ", row=row)

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of inputs, weights and traced values, by the id of the tensor."""
        names = {id(value): name for name, value in self.inputs.items()}
        names |= {id(value): name for name, value in self.network.named_parameters()}
        names |= {id(value): name for name, value in self.network.named_buffers()}
        for name, visits in self.trace.visits.items():
            for visit, value in enumerate(visits, start=1):
                visit_name = name if visit == len(visits) else f"{name}#{visit}"
                names[id(value)] = visit_name
                if result := self.results.get(id(value)):  # a trace stores a copy of the value
                    names.setdefault(id(result.args[0]), visit_name)
        return names

    def explain_named(self, text: str) -> Explanation:
        """Explain the number with this name and index, such as `norm[0,2,1]`; `[]` for a scalar.

        If the value is computed several times, this is the last one; `name#1` is the first.
        """
        match = re.fullmatch(r"([^#[]+)(?:#(\d+))?\[(-?\d+(?:,-?\d+)*|)\]", text.replace(" ", ""))
        if not match:
            raise GlassError(
                f"expected a value and an index into it, such as output[0,-1,5], got {text!r}"
            )
        name = match[1]
        index = tuple(int(i) for i in match[3].split(",") if i)
        if name not in self.trace:
            hint = (
                did_you_mean(name, self.trace)
                or f"; available: {', '.join(list(self.trace)[:8])} …"
            )
            raise GlassError(f"no value is named {name!r}{hint}")
        visits = self.trace.visits[name]
        visit = int(match[2] or len(visits))
        if not 1 <= visit <= len(visits):
            raise GlassError(f"{name} is computed {len(visits)} times; there is no #{visit}")
        value = visits[visit - 1]
        is_inside = len(index) == value.ndim and all(
            -n <= i < n for i, n in zip(index, value.shape, strict=True)
        )
        if not is_inside:
            raise GlassError(
                f"{name} has the shape {list(value.shape)}; {list(index)} is not an index into it"
            )
        index = tuple(i % n for i, n in zip(index, value.shape, strict=True))
        return self.explain((value, index))

    @torch.no_grad()
    def explain(self, entry: Entry) -> Explanation:
        """Explain a number by the operation that computed it, before it was moved."""
        *_, origin = self.path(entry)
        result = self.results.get(id(origin[0]))
        if result is None:
            return Explanation(self, entry, "")
        return replace(self.explain_result(result, origin), entry=entry)

    def path(self, entry: Entry) -> Iterator[Entry]:
        """The entries that a number was moved through, back to where it was computed."""
        yield entry
        while (result := self.results.get(id(entry[0]))) and (
            origin := self.moved_from(result, entry[1])
        ):
            yield origin
            entry = origin

    def moved_from(self, result: OpResult, index: tuple[int, ...]) -> Entry | None:
        """The entry that an operation moved to this index; None if it computed the number."""
        if result.name not in MOVES:
            return None
        tensors = [
            a for a in tree_leaves(result.args) if isinstance(a, Tensor) and a.is_floating_point()
        ]
        if not tensors or result.name in ("_to_copy", "copy"):
            return (tensors[-1], index) if tensors else None
        ends = torch.tensor([1, *(tensor.numel() for tensor in tensors)]).cumsum(0).tolist()
        if id(result) not in self.moved_indices:  # repeat the operation on indices, once
            indices = {
                id(tensor): torch.arange(first, last, dtype=torch.float64).reshape(tensor.shape)
                for tensor, first, last in zip(tensors, ends, ends[1:], strict=False)
            }
            args = tree_map(
                lambda a: indices.get(id(a), a) if isinstance(a, Tensor) else a, result.args
            )
            if result.name == "masked_fill":
                args = (*args[:2], 0.0)  # indices start at 1, so 0 marks a filled or padded entry
            outputs = tree_leaves(result.operation(*args, **result.kwargs))
            self.moved_indices[id(result)] = outputs[result.index]
        flat_index = int(self.moved_indices[id(result)][index])
        for tensor, first, last in zip(tensors, ends, ends[1:], strict=False):
            if first <= flat_index < last:
                return tensor, unravel(flat_index - first, tensor.shape)
        return None  # a constant

    def explain_result(self, result: OpResult, entry: Entry) -> Explanation:
        explainers: dict[str, Callable[[OpResult, Entry], Explanation]] = {
            **dict.fromkeys(PRODUCTS, self.explain_product),
            **dict.fromkeys(ELEMENTWISE, self.explain_elementwise),
            **dict.fromkeys(REDUCTIONS, self.explain_reduction),
            "convolution": self.explain_convolution,
            "glu": self.explain_glu,
            "scatter_add": self.explain_scatter_add,
        }
        if result.name in explainers:
            return explainers[result.name](result, entry)
        if result.name in MOVES:
            is_cast = result.name == "_to_copy"
            return Explanation(self, entry, "converted from integers" if is_cast else "constant")
        tensors = [a for a in tree_leaves(result.args) if isinstance(a, Tensor)]
        names = ", ".join(self.names.get(id(t), f"{list(t.shape)}") for t in tensors)
        return Explanation(self, entry, f"computed by {result.name} from {names}")

    def explain_product(self, result: OpResult, entry: Entry) -> Explanation:
        """A row times a column, plus a bias."""
        out, (*batch, i, j) = entry
        *biases, a, b = (arg for arg in result.args if isinstance(arg, Tensor))
        pairs = (((a, (*batch, i, k)), (b, (*batch, k, j))) for k in range(a.shape[-1]))
        terms = [Term(pair) for pair in pairs]
        terms += [Term(((bias, broadcast_index(bias, entry[1], out.shape)),)) for bias in biases]
        operation = "row × column" + (" + bias" if biases else "")
        return Explanation(
            self, entry, operation, tuple(terms), sum(prod(term.values) for term in terms)
        )

    def explain_convolution(self, result: OpResult, entry: Entry) -> Explanation:
        """A window of the input times the weights, plus a bias, in one or two dimensions."""
        _, (row, out, *outer) = entry
        x, weights, bias, *geometry = result.args
        # position, stride, padding, dilation
        axes = list(zip(outer, *geometry[:3], strict=True))
        terms = []
        for channel, *ks in product(*map(range, weights.shape[1:])):
            positions = tuple(i * s + k * d - p for (i, s, p, d), k in zip(axes, ks, strict=True))
            if all(0 <= i < n for i, n in zip(positions, x.shape[2:], strict=True)):
                pair = (x, (row, channel, *positions)), (weights, (out, channel, *ks))
                terms.append(Term(pair))
        terms += [Term(((bias, (out,)),))] if bias is not None else []
        return Explanation(self, entry, "window × weights + bias", tuple(terms),
                   sum(prod(term.values) for term in terms))  # fmt: skip

    def explain_glu(self, result: OpResult, entry: Entry) -> Explanation:
        """The first half of a row, gated by the second."""
        x = result.args[0]
        dim = result.args[1] % result.args[0].ndim
        gate_index = list(entry[1])
        gate_index[dim] += x.shape[dim] // 2
        value = Term(((x, entry[1]),))
        gate = Term(((x, tuple(gate_index)),))
        recomputed = value.values[0] / (1 + exp(-gate.values[0]))
        return Explanation(
            self, entry, "a × sigmoid(b)", (value, gate), recomputed, is_ordered=True
        )

    def explain_scatter_add(self, result: OpResult, entry: Entry) -> Explanation:
        """A number, plus all values that were added at its index."""
        x, dim, targets, values = result.args
        index, dim = entry[1], dim % x.ndim
        line = (*index[:dim], slice(None), *index[dim + 1 :])  # whose targets may be the number
        added = (targets[line] == index[dim]).nonzero()[:, 0].tolist()
        terms = [Term(((x, index),))]
        terms += [Term(((values, (*index[:dim], i, *index[dim + 1 :])),)) for i in added]
        return Explanation(self, entry, "sum", tuple(terms), sum(term.values[0] for term in terms))

    def explain_elementwise(self, result: OpResult, entry: Entry) -> Explanation:
        out, out_index = entry
        terms: list[Term] = []
        constants = [f" {a:.6g}" for a in result.args if type(a) in (int, float)]

        def select(arg: Any) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            index = broadcast_index(arg, out_index, out.shape)
            if arg.is_floating_point():
                terms.append(Term(((arg, index),)))
            else:
                constants.append(f" {int(arg[index])}")
            return arg[index].clone()  # the operation may be in place

        recomputed = result.operation(*tree_map(select, result.args), **result.kwargs)
        symbol = SYMBOLS.get(result.name, result.name)
        alpha = result.kwargs.get("alpha", 1)
        symbol += f" {alpha:g} ×" if alpha != 1 else ""
        is_prefixed = type(result.args[0]) in (int, float)  # the constant is first, as in 1 − x
        operation = (
            "".join([*constants, " ", symbol]).strip()
            if is_prefixed
            else symbol + "".join(constants)
        )
        return Explanation(self, entry, operation, tuple(terms), float(recomputed), is_ordered=True)

    def explain_reduction(self, result: OpResult, entry: Entry) -> Explanation:
        """A sum, mean or softmax over one or more dimensions."""
        _, out_index = entry
        x = result.args[0]
        dims = result.args[1] if len(result.args) > 1 else list(range(x.ndim))
        dims = [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims or range(x.ndim))]
        is_softmax = result.name.startswith("_")
        keeps_dims = is_softmax or (len(result.args) > 2 and bool(result.args[2]))
        rest = iter(out_index)
        index: list[Any] = []
        for dim in range(x.ndim):
            i = None if dim in dims and not keeps_dims else next(rest)
            index.append(slice(None) if dim in dims else i)
        flat_indices = torch.arange(x.numel()).reshape(x.shape)[tuple(index)].flatten().tolist()
        row = x[tuple(index)]
        probs = row.flatten().softmax(0).tolist() if is_softmax else []
        terms = tuple(
            Term(((x, unravel(flat_index, x.shape)),), probs[i] if probs else None)
            for i, flat_index in enumerate(flat_indices)
        )
        operation = REDUCTIONS[result.name]
        if is_softmax:
            outputs = row.softmax(-1) if result.name == "_softmax" else row.log_softmax(-1)
            own = out_index[dims[0]]
            return Explanation(self, entry, operation, terms, float(outputs[own]), own_term=own)
        recomputed = float(row.sum() if result.name == "sum" else row.mean())
        return Explanation(self, entry, operation, terms, recomputed)

    def name_entry(self, entry: Entry) -> str:
        """The name and index of a number, or of the first named entry that it was moved from."""
        for tensor, index in self.path(entry):
            if id(tensor) in self.names:
                return f"{self.names[id(tensor)]}[{','.join(map(str, index))}]"
        return ""


def entry_value(entry: Entry) -> float:
    tensor, index = entry
    return float(tensor.detach()[index])


def unravel(flat_index: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat_index), shape))


def broadcast_index(arg: Tensor, index: tuple[int, ...], shape: torch.Size) -> tuple[int, ...]:
    """The index into an operand that is broadcast to an index into a result of this shape."""
    last = index[len(shape) - arg.ndim :]
    return tuple(0 if n == 1 else i for i, n in zip(last, arg.shape, strict=True))
