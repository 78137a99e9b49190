"""Forward passes that a page asks about: where each value is computed, its statistics, its numbers.

A pass keeps the values that fit into `KEPT_MEGABYTES`; any other is computed again when a page asks
for it. The numbers of a pass never depend on this.
"""

from __future__ import annotations

import copy
import linecache
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import glassformer
from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.inspection.why import RecordedPass
from glassformer.models.network import Network
from glassformer.nn.attention import Attention
from glassformer.nn.masks import Mask, full
from glassformer.nn.positions import Learned, Position, Sinusoidal
from glassformer.serve.subject import Subject
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Replace, Scale, Trace, Zero, list_values, parse_edit

KEPT_MEGABYTES = 200.0  # of values, for each pass
KEPT_PASSES = 4
PACKAGE = Path(glassformer.__file__).parent
OWN_FILES = {str(PACKAGE / "trace.py"), __file__}
REMOVABLE_PARTS = ("positions", "mask")
SNIPPET = 3  # lines of code before and after the line that computes a value


@dataclass(frozen=True)
class SourceLine:
    """A line of Glassformer's code, with a few lines around it."""

    file: str
    line: int
    code: str  # several lines
    first: int  # number of the first of them


@dataclass
class Visit:
    """One computation of a value."""

    name: str
    shape: tuple[int, ...]
    stats: dict[str, float | None]
    source: SourceLine | None
    value: Tensor | None = None


class ExplorerTrace(Trace):
    """A trace of everything, with the statistics and the source line of each value.

    It keeps the numbers of the values that fit into the budget, or those of one value, `only`.
    """

    def __init__(
        self, network: nn.Module, edit: Mapping[str, Edit], only: str | None = None
    ) -> None:
        super().__init__(network, "*", edit=edit, allow_missing=True, megabytes=KEPT_MEGABYTES)
        self.only, self.found = only, list[Visit]()

    def _record(self, name: str, value: Tensor) -> None:
        visit = Visit(name, tuple(value.shape), measure(value), find_source_line())
        fits = self.used_bytes + value.nbytes <= self.megabytes * 1e6
        if fits if self.only is None else name == self.only:
            self.used_bytes += value.nbytes
            visit.value = value.detach().clone()
        self.found.append(visit)
        kept = value.new_empty(0) if visit.value is None else visit.value
        self.visits.setdefault(name, []).append(kept)
        self.order.append(name)


def measure(value: Tensor) -> dict[str, float | None]:
    """Minimum, maximum, mean and standard deviation of the finite numbers."""
    finite = value[value.isfinite()].float()
    if not finite.numel():
        return dict.fromkeys(("min", "max", "mean", "std"))
    return {
        "min": float(finite.min()),
        "max": float(finite.max()),
        "mean": float(finite.mean()),
        "std": float(finite.std(unbiased=False)),
    }


def find_source_line() -> SourceLine | None:
    """The line of Glassformer's code that is computing a value: the innermost outside the trace."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(str(PACKAGE)) and file not in OWN_FILES:
            return read_source_line(file, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def read_source_line(file: str, line: int) -> SourceLine | None:
    if Path(file).parent.name == "serve":  # the call of the whole network
        return None
    first = max(line - SNIPPET, 1)
    lines = [linecache.getline(file, n) for n in range(first, line + SNIPPET + 1)]
    return SourceLine(Path(file).relative_to(PACKAGE).as_posix(), line, "".join(lines), first)


@dataclass
class Pass:
    """A forward pass of a network on a subject, with edits."""

    network: Network
    subject: Subject
    tokenizer: Tokenizer | None = None
    edits: Mapping[str, Edit] = field(default_factory=dict)

    @torch.no_grad()
    def run(self, only: str | None = None) -> tuple[ExplorerTrace, Tensor]:
        trace = ExplorerTrace(self.network, self.edits, only)
        try:
            with trace:
                output: Tensor = self.network(**self.subject.inputs)
        except ValueError as error:
            if not self.edits:
                raise
            raise GlassError(f"the edit does not fit: {error}") from None
        return trace, output

    @cached_property
    def result(self) -> tuple[ExplorerTrace, Tensor]:
        return self.run()

    @property
    def trace(self) -> ExplorerTrace:
        return self.result[0]

    @property
    def output(self) -> Tensor:
        return self.result[1]

    @cached_property
    def visits(self) -> dict[str, Visit]:
        """Every computation of a value; the last of several is `name`, the first is `name#1`."""
        totals = {name: len(visits) for name, visits in self.trace.visits.items()}
        counts, visits = dict.fromkeys(totals, 0), {}
        for visit in self.trace.found:
            counts[visit.name] += 1
            is_last = counts[visit.name] == totals[visit.name]
            visits[visit.name if is_last else f"{visit.name}#{counts[visit.name]}"] = visit
        return visits

    def value(self, name: str) -> Tensor:
        """A value by its name; a value that was not kept is computed again."""
        if name not in self.visits:
            raise GlassError(f"no value is named {name!r} in this model")
        visit = self.visits[name]
        if visit.value is not None:
            return visit.value
        trace, _ = self.run(only=visit.name)
        return trace.visits[visit.name][int(name.partition("#")[2] or 0) - 1]

    @cached_property
    def recorded(self) -> RecordedPass:
        """The same pass operation by operation, to explain single numbers."""
        return RecordedPass(self.network, self.subject.inputs, self.tokenizer)


class PassCache:
    """The passes that were asked about most recently, shared by all threads."""

    def __init__(self) -> None:
        self.passes: OrderedDict[str, Pass] = OrderedDict()
        self.lock = threading.Lock()

    def find(self, key: str, make: Callable[[], Pass]) -> Pass:
        with self.lock:
            if key in self.passes:
                self.passes.move_to_end(key)
                return self.passes[key]
        found = make()
        with self.lock:
            found = self.passes.setdefault(key, found)  # another thread may have made it meanwhile
            while len(self.passes) > KEPT_PASSES:
                self.passes.popitem(last=False)
        return found


# --- changes to a network -------------------------------------------------------------------------


def parse_edits(network: Network, edits: Any, without: Any) -> dict[str, Edit]:
    """The edits for a list of {"name": ..., "kind": ...}, and for "positions" in `without`."""
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise GlassError("edits must be a list of objects")
    if not isinstance(without, list) or not all(part in REMOVABLE_PARTS for part in without):
        raise GlassError(f"without must be a list of: {', '.join(REMOVABLE_PARTS)}")
    parsed: dict[str, list[Zero | Scale | Replace]] = {}
    known = list_values(network)
    for edit in edits:
        values = dict(edit)
        name = values.pop("name", None)
        if not isinstance(name, str):
            raise GlassError(f"an edit needs the name of a value, got {edit}")
        if name not in known:
            raise GlassError(f"no value is named {name!r} in this model{did_you_mean(name, known)}")
        if None in values.values():
            raise GlassError(f"an edit needs numbers, got {edit}")
        parsed.setdefault(name, []).append(parse_edit(values))
    if "positions" in without:
        parsed |= {name: [Zero()] for name in position_modules(network)}
    trace = Trace(network)
    return {name: combine(found, trace.axes(name)) for name, found in parsed.items()}


def combine(edits: Sequence[Zero | Scale | Replace], axes: str) -> Callable[[Tensor], Tensor]:
    """Several edits of one value, one after the other."""

    def apply(value: Tensor) -> Tensor:
        for edit in edits:
            value = edit(value, axes)
        return value

    return apply


def removable_parts(network: Network) -> list[str]:
    """What can be switched off in a network: those of its positions and its mask that it has."""
    modules = list(network.modules())
    acts = any(isinstance(m, Attention) and type(m.position) is not Position for m in modules)
    found = {
        "positions": acts or bool(position_modules(network)),
        "mask": any(map(has_mask, modules)),
    }
    return [part for part in REMOVABLE_PARTS if found[part]]


def position_modules(network: Network) -> list[str]:
    """The names of the modules whose output is added to the embedding for each position."""
    modules = network.named_modules()
    return [name for name, module in modules if isinstance(module, Learned | Sinusoidal)]


def has_mask(module: nn.Module) -> bool:
    mask = getattr(module, "mask", None)
    return isinstance(mask, Mask) and mask != full


def without_parts(network: Network, parts: Sequence[str]) -> Network:
    """A copy of a network that shares its weights and whose attention has no mask or positions."""
    memo = {id(tensor): tensor for tensor in chain(network.parameters(), network.buffers())}
    twin = copy.deepcopy(network, memo)
    for module in twin.modules():
        if "mask" in parts and has_mask(module):
            setattr(module, "mask", full)  # noqa: B010, mypy takes it for a submodule
        if "positions" in parts and isinstance(module, Attention):
            module.position = Position()
    return twin
