"""How one number inside a model was made: from which numbers, by which operation, down to a table.

A pass is recorded operation by operation. An operation that only moves numbers about (a view, a
look-up, a concatenation) is run once more on places instead of numbers, which tells where a number
came from; one that computes is run once more on the numbers that it used, which must give the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, isfinite, nan, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.displayable import Displayable
from glassformer.inspection.record import MOVES, Made, Recorder
from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.traced_text import of_source
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

EACH = set(
    "add sub rsub mul div neg abs exp log sqrt rsqrt square pow reciprocal sin cos tanh sigmoid "
    "relu gelu silu erf clamp clamp_min clamp_max maximum minimum".split()
)
SIGNS = {"add": "+", "sub": "−", "mul": "×", "div": "÷", "neg": "−", "sqrt": "√", "pow": "^"}
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
ALONG = {"_softmax": "softmax", "_log_softmax": "log softmax", "sum": "sum", "mean": "mean"}
DEEP, FEW = 200, 4  # links of a chain, and terms of each but the first, that are told
Place = tuple[Tensor, tuple[int, ...]]


@dataclass(frozen=True)
class Term:
    """A number that another was made of; in a product, two."""

    entries: tuple[Place, ...]
    share: float | None = None  # of the result, where that is not its own size

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(map(number_at, self.entries))

    @property
    def weight(self) -> float:
        """How much it adds."""
        size = abs(prod(self.values)) if self.share is None else self.share
        return size if isfinite(size) else 0.0


@dataclass(frozen=True, repr=False)
class Why(Displayable):
    """One number, the operation that made it, and its terms."""

    pass_: RecordedPass
    place: Place
    how: str  # what made it; empty for a number that was there from the start
    terms: tuple[Term, ...] = ()
    again: float | None = None  # computed once more from the terms
    in_order: bool = False  # whether the order of the terms says which is which, as in a − b
    own: int | None = None  # in a softmax, the term whose share this is

    @property
    def value(self) -> float:
        return number_at(self.place)

    @property
    def name(self) -> str:
        return self.pass_.name_entry(self.place)

    def heaviest(self) -> list[Term]:
        return sorted(self.terms, key=lambda term: -term.weight)

    def next(self) -> Why | None:
        """How the heaviest of its terms was made, or its own in a softmax, or what is divided.

        Weights are where a chain ends: it goes on with what they were multiplied with; and what
        weights have no part in, such as the angles of a rotation, is passed over.
        """
        order = list(self.terms[:1]) if self.how.startswith("÷") else []
        order += [self.terms[self.own]] if self.own is not None else []
        rest: list[Place] = []
        for term in (*order, *self.heaviest()):
            for place in reversed(term.entries):
                if self.pass_.leads_on(place):
                    return self.pass_.why(place)
                rest.append(place)
        return self.pass_.why(rest[0]) if rest else None

    def steps(self) -> list[Step]:
        """All its terms; then how the heaviest was made, and so on, down to a table."""
        chain: list[Why] = [self]
        while len(chain) < DEEP and chain[-1].how and (following := chain[-1].next()):
            chain.append(following)
        first, *below = (why.step(None if why is self else FEW) for why in chain)
        says = self.pass_.meaning(self.name) + first.says
        if below:
            says += tr(
                "These are all its terms; below stands how the heaviest was made, and so on."
            )
        return [replace(first, says=says), *below]

    def step(self, most: int | None) -> Step:
        """The number with so many of its terms."""
        title = f"{self.name or tr('(no name)')} = {self.value:.6g}"
        if not self.how:
            *_, kept = self.pass_.way(self.place)
            return Step(title, "", tr("kept as {name}", name=self.pass_.name_entry(kept)))
        terms = (self.terms if self.in_order else self.heaviest())[:most]
        rest = self.heaviest()[len(terms) :]
        says = ""
        if rest and not self.in_order:
            total = sum(prod(t.values) if t.share is None else t.share for t in rest)
            total /= len(self.terms) if self.how == "mean" else 1
            says = tr("{n} more terms come to {total:.6g} together.", n=len(rest), total=total)
        off = 0.0 if self.again is None else abs(self.again - self.value)
        if off > 1e-3 * max(abs(self.value), 1):
            again = self.again
            says += tr("Computed again it is {again:.6g}: it was changed later. ", again=again)
        return Step(title, tr(self.how), says, (self.table(terms),) if terms else ())

    def table(self, terms: Sequence[Term]) -> Table:
        """A row for each term: its factors and their product, or its share."""
        wide = max(len(term.values) for term in terms)
        columns, values = [tr("value")], [list(term.values) for term in terms]
        if wide > 1:
            columns = [*(f"{tr('factor')} {i + 1}" for i in range(wide)), tr("product")]
            values = [[*row, *[nan] * (wide - len(row)), prod(row)] for row in values]
        elif terms[0].share is not None:
            columns += [tr("share")]
            values = [[*row, t.share or 0.0] for row, t in zip(values, terms, strict=True)]
        none = tr("(no name)")
        names = [[self.pass_.name_entry(place) or none for place in term.entries] for term in terms]
        rows = [" × ".join(row) for row in names]
        return Table(tr("terms"), torch.tensor(values), rows, columns, "given", 6, gaps=True)


class RecordedPass:
    """A recorded pass of a network, whose numbers can be asked where they come from."""

    def __init__(
        self, network: nn.Module, inputs: dict[str, Tensor], tokenizer: Tokenizer | None = None
    ) -> None:
        self.network, self.inputs, self.tokenizer = network, inputs, tokenizer
        recorder = Recorder(network.parameters())
        with torch.no_grad(), recorder, Trace(network) as trace:
            network(**inputs)
        self.trace, self.made = trace, recorder.made
        self.kept, self.learnt, self.weights = recorder.kept, recorder.learnt, recorder.weights
        self.moves: dict[int, Tensor] = {}

    def leads_on(self, place: Place) -> bool:
        """Whether weights have a part in a number that is not one of them."""
        return id(place[0]) in self.learnt - self.weights

    def meaning(self, called: str) -> str:
        """Which tokens a number is about, as far as its place tells."""
        name, _, place = called.rstrip("]").partition("[")
        if self.tokenizer is None or not place:
            return ""
        shape, at = self.trace[name.split("#")[0]].shape, [int(i) for i in place.split(",")]
        leaf, source = name.rsplit(".", 1)[-1], self.inputs.get("source", self.inputs["ids"])
        rows = source if of_source(name) else self.inputs["ids"]
        if len(shape) < 3 or shape[-2] != rows.shape[1]:
            return ""
        row = repr(self.tokenizer.token(int(rows[at[0], at[-2]])))
        if leaf == "output" and shape[-1] == self.tokenizer.vocab:
            return tr(
                "The score of {answer} at {row}. ",
                row=row,
                answer=repr(self.tokenizer.token(at[-1])),
            )
        if leaf in ("scores", "pattern"):
            read = source if "cross" in name else rows
            column = repr(self.tokenizer.token(int(read[at[0], at[-1]])))
            return tr("What {row} reads of {column}. ", row=row, column=column)
        return tr("At {row}. ", row=row)

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of tensors, by their address: inputs, weights, and what the trace saw."""
        found = {id(value): name for name, value in self.inputs.items()}
        found |= {id(value): name for name, value in self.network.named_parameters()}
        found |= {id(value): name for name, value in self.network.named_buffers()}
        for name, visits in self.trace.visits.items():
            for number, value in enumerate(visits, start=1):
                called = name if number == len(visits) else f"{name}#{number}"  # an earlier visit
                found[id(value)] = called
                if made := self.made.get(id(value)):  # what was noted is a copy of what was made
                    found.setdefault(id(made.args[0]), called)
        return found

    def at(self, text: str) -> Why:
        """Why a number is what it is: named with its place, as `norm[0,2,1]`.

        Of a value that comes by several times this is the last; `name#1` is the first.
        """
        found = re.fullmatch(r"([^#[]+)(?:#(\d+))?\[(-?\d+(?:,-?\d+)*)\]", text.replace(" ", ""))
        if not found:
            raise GlassError(f"name a value and a place in it, as output[0,-1,5], not {text!r}")
        name, at = found[1], tuple(int(i) for i in found[3].split(","))
        if name not in self.trace:
            hint = (
                did_you_mean(name, self.trace) or f"; there are {', '.join(list(self.trace)[:8])} …"
            )
            raise GlassError(f"no value is named {name!r}{hint}")
        visits = self.trace.visits[name]
        number = int(found[2] or len(visits))
        if not 1 <= number <= len(visits):
            raise GlassError(f"{name} comes by {len(visits)} times: there is no #{number}")
        value = visits[number - 1]
        inside = len(at) == value.ndim and all(
            -n <= i < n for i, n in zip(at, value.shape, strict=True)
        )
        if not inside:
            raise GlassError(f"{name} has the shape {list(value.shape)}: there is no {list(at)}")
        at = tuple(i % n for i, n in zip(at, value.shape, strict=True))
        return self.why((value, at))

    @torch.no_grad()
    def why(self, place: Place) -> Why:
        """What made the number at a place; what only moved it there is passed over."""
        *_, last = self.way(place)
        made = self.made.get(id(last[0]))
        return replace(self.computed(made, last), place=place) if made else Why(self, place, "")

    def way(self, place: Place) -> Iterator[Place]:
        """The places that a number was moved through, back to where it was made."""
        yield place
        while (made := self.made.get(id(place[0]))) and (source := self.moved(made, place[1])):
            yield source
            place = source

    def moved(self, made: Made, at: tuple[int, ...]) -> Place | None:
        """The place that a number was moved from, if it was."""
        if made.name not in MOVES:
            return None
        numbers = [
            a for a in tree_leaves(made.args) if isinstance(a, Tensor) and a.is_floating_point()
        ]
        if not numbers or made.name in ("_to_copy", "copy"):
            return (numbers[-1], at) if numbers else None
        ends = torch.tensor([1, *(one.numel() for one in numbers)]).cumsum(0).tolist()
        if id(made) not in self.moves:  # the operation on places instead of numbers, once
            ids = {
                id(one): torch.arange(first, last, dtype=torch.float64).reshape(one.shape)
                for one, first, last in zip(numbers, ends, ends[1:], strict=False)
            }
            args = tree_map(lambda a: ids.get(id(a), a) if isinstance(a, Tensor) else a, made.args)
            if made.name == "masked_fill":
                args = (*args[:2], 0.0)  # as padding is: no number has that place
            self.moves[id(made)] = tree_leaves(made.operation(*args, **made.kwargs))[made.number]
        found = int(self.moves[id(made)][at])
        for one, first, last in zip(numbers, ends, ends[1:], strict=False):
            if first <= found < last:
                return one, unravel(found - first, one.shape)
        return None  # a constant that was filled in

    def computed(self, made: Made, place: Place) -> Why:
        kinds: dict[str, Callable[[Made, Place], Why]] = {
            **dict.fromkeys(PRODUCTS, self.product),
            **dict.fromkeys(EACH, self.each),
            **dict.fromkeys(ALONG, self.along),
            "convolution": self.window,
            "glu": self.gate,
        }
        if made.name in kinds:
            return kinds[made.name](made, place)
        if made.name in MOVES:
            whole = made.name == "_to_copy"
            return Why(self, place, "from whole numbers" if whole else "filled in")
        tensors = [a for a in tree_leaves(made.args) if isinstance(a, Tensor)]
        names = ", ".join(self.names.get(id(t), f"{list(t.shape)}") for t in tensors)
        return Why(self, place, f"made by {made.name} from {names}")

    def product(self, made: Made, place: Place) -> Why:
        """A row times a column, and what was added to it."""
        out, (*batch, i, j) = place
        *added, a, b = (arg for arg in made.args if isinstance(arg, Tensor))
        pairs = (((a, (*batch, i, k)), (b, (*batch, k, j))) for k in range(a.shape[-1]))
        terms = [Term(pair) for pair in pairs]
        terms += [Term(((bias, broadcast(bias, place[1], out.shape)),)) for bias in added]
        how = "row × column" + (" + bias" if added else "")
        return Why(self, place, how, tuple(terms), sum(prod(term.values) for term in terms))

    def window(self, made: Made, place: Place) -> Why:
        """What a window shows, times its weights: a convolution over one dimension."""
        _, (row, out, at) = place
        x, weights, bias, (stride,), (pad,), (dilation,), *_ = made.args
        terms = []
        for channel in range(weights.shape[1]):
            for k in range(weights.shape[2]):
                seen = at * stride + k * dilation - pad
                if 0 <= seen < x.shape[2]:
                    terms.append(Term(((x, (row, channel, seen)), (weights, (out, channel, k)))))
        terms += [Term(((bias, (out,)),))] if bias is not None else []
        return Why(self, place, "window × weights + bias", tuple(terms),
                   sum(prod(term.values) for term in terms))  # fmt: skip

    def gate(self, made: Made, place: Place) -> Why:
        """One half, let through by the other."""
        x, dim = made.args[0], made.args[1] % made.args[0].ndim
        at = list(place[1])
        at[dim] += x.shape[dim] // 2
        value, gate = Term(((x, place[1]),)), Term(((x, tuple(at)),))
        again = value.values[0] / (1 + exp(-gate.values[0]))
        return Why(self, place, "a × sigmoid(b)", (value, gate), again, in_order=True)

    def each(self, made: Made, place: Place) -> Why:
        """The operation on one number of each operand."""
        out, at = place
        terms: list[Term] = []
        constants = [f" {a:.6g}" for a in made.args if type(a) in (int, float)]

        def one(arg: Any) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            where = broadcast(arg, at, out.shape)
            if arg.is_floating_point():
                terms.append(Term(((arg, where),)))
            else:
                constants.append(f" {int(arg[where])}")
            return arg[where].clone()  # an operation may change it in place

        again = made.operation(*tree_map(one, made.args), **made.kwargs)
        sign, alpha = SIGNS.get(made.name, made.name), made.kwargs.get("alpha", 1)
        sign += f" {alpha:g} ×" if alpha != 1 else ""
        before = type(made.args[0]) in (int, float)  # a number first, as in 1 − x
        how = "".join([*constants, " ", sign]).strip() if before else sign + "".join(constants)
        return Why(self, place, how, tuple(terms), float(again), in_order=True)

    def along(self, made: Made, place: Place) -> Why:
        """The operation on the whole row that it reads."""
        _, at = place
        x = made.args[0]
        dims = made.args[1] if len(made.args) > 1 else list(range(x.ndim))
        dims = [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims or range(x.ndim))]
        keeps = made.name.startswith("_") or (len(made.args) > 2 and bool(made.args[2]))
        rest = iter(at)
        where: list[Any] = []
        for dim in range(x.ndim):
            taken = None if dim in dims and not keeps else next(rest)
            where.append(slice(None) if dim in dims else taken)
        entries = torch.arange(x.numel()).reshape(x.shape)[tuple(where)].flatten().tolist()
        row = x[tuple(where)]
        shares = row.flatten().softmax(0).tolist() if made.name.startswith("_") else []
        terms = tuple(
            Term(((x, unravel(place, x.shape)),), shares[i] if shares else None)
            for i, place in enumerate(entries)
        )
        if made.name.startswith("_"):
            whole, own = (
                row.softmax(-1) if made.name == "_softmax" else row.log_softmax(-1),
                at[dims[0]],
            )
            return Why(self, place, ALONG[made.name], terms, float(whole[own]), own=own)
        again = float(row.sum() if made.name == "sum" else row.mean())
        return Why(self, place, ALONG[made.name], terms, again)

    def name_entry(self, place: Place) -> str:
        """The name of a number: of the first place with one, on the way back to its making."""
        for tensor, at in self.way(place):
            if id(tensor) in self.names:
                return f"{self.names[id(tensor)]}[{','.join(map(str, at))}]"
        return ""


def number_at(place: Place) -> float:
    tensor, at = place
    return float(tensor.detach()[at])


def unravel(number: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(number), shape))


def broadcast(arg: Tensor, at: tuple[int, ...], shape: torch.Size) -> tuple[int, ...]:
    """Where an operand has the number that it gives to a place of the result."""
    last = at[len(shape) - arg.ndim :]
    return tuple(0 if n == 1 else i for i, n in zip(last, arg.shape, strict=True))
