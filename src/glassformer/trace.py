"""Record and edit intermediate values of a network while it runs.

    with Trace(network, "*.pattern") as trace:
        network(ids)
    trace["blocks.0.attention.pattern"]  # b h t s

A module names a value where it computes it, with `tap`; the value's full name is the module's path
plus the tap's name. A module's output is named by the module's path, and the network's output is
`output`. Code that runs outside the network is not traced. A module declares its taps, with their
axes and formulas, in its attribute `taps`; `list_values` lists all of them before anything runs.

With no open trace, a tap returns its argument: no hooks, no copies, and nothing that torch.compile
could see. Several traces may be open at once; each traces only its own thread.
"""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.config import did_you_mean, from_dict
from glassformer.core.errors import GlassError
from glassformer.core.i18n import localize

_open_traces = 0  # in all threads; while it is 0, a tap checks nothing else
_thread = threading.local()  # its attribute `traces` lists the open traces of this thread
_lock = threading.Lock()
_hooks: dict[int, tuple[int, list[Any]]] = {}  # id(module): number of traces, and its hooks


def tap(name: str, value: Tensor) -> Tensor:
    """Name an intermediate value. An open trace may record or replace it."""
    if _open_traces:
        for trace in _thread_traces():
            value = trace.visit(name, value)
    return value


def watched(*names: str) -> bool:
    """Whether an open trace records or edits any of these taps.

    Fused kernels, which do not compute such values, check this first.
    """
    traces = _thread_traces() if _open_traces else []
    return any(trace.watches(name) for trace in traces for name in names)


def _thread_traces() -> "list[Trace]":
    traces: list[Trace] = getattr(_thread, "traces", [])
    return traces


@dataclass(frozen=True)
class Tap:
    """The axes and formula that a module declares for one of its taps."""

    axes: str  # one letter per axis: "b h t s"
    formula: str = ""


def list_values(network: nn.Module) -> dict[str, Tap | None]:
    """The name of every value that a trace can record, with its declaration.

    Outputs of modules have no declaration (None).
    """
    values: dict[str, Tap | None] = {}
    for path, module in network.named_modules():
        taps: Mapping[str, Tap] = getattr(module, "taps", {})
        values |= {f"{path}.{name}" if path else name: tap for name, tap in taps.items()}
        if not isinstance(module, nn.ModuleList):
            values[path or "output"] = None
    return values


# --- edits ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zero:
    """Set a value, or its part for one head or one token, to zero."""

    head: int | None = None
    token: int | None = None

    def __call__(self, value: Tensor, axes: str) -> Tensor:
        return Replace(0.0, self.head, self.token)(value, axes)


@dataclass(frozen=True)
class Scale:
    """Multiply a value, or its part for one head or one token, by a factor."""

    factor: float
    head: int | None = None
    token: int | None = None

    def __call__(self, value: Tensor, axes: str) -> Tensor:
        part = select(value, axes, self.head, self.token)
        return Replace(value[part] * self.factor, self.head, self.token)(value, axes)


@dataclass(frozen=True)
class Replace:
    """Replace a value, or its part for one head or one token, with a tensor or a number."""

    value: Tensor | float
    head: int | None = None
    token: int | None = None

    def __call__(self, value: Tensor, axes: str) -> Tensor:
        part = select(value, axes, self.head, self.token)
        changed = value.clone()
        if isinstance(self.value, Tensor) and self.value.shape != changed[part].shape:
            expected = tuple(changed[part].shape)
            actual = tuple(self.value.shape)
            raise ValueError(f"expected the shape {expected}, got {actual}")
        changed[part] = self.value
        return changed


EDITS: dict[str, type] = {"zero": Zero, "scale": Scale, "replace": Replace}
Edit = Callable[[Tensor], Tensor] | Tensor | Zero | Scale | Replace


def select(value: Tensor, axes: str, head: int | None, token: int | None) -> tuple[Any, ...]:
    """The index of the part of a value that belongs to a head, a token, or both.

    `axes` names the axes of the value; the axis of heads is h and the axis of tokens is t.
    """
    names = axes.split() or [""] * value.ndim
    part: list[Any] = [slice(None)] * value.ndim
    for axis, what, index in (("h", "head", head), ("t", "token", token)):
        if index is None:
            continue
        if axis not in names:
            raise ValueError(f"the value has no {what} axis; its axes are {axes or 'unknown'!r}")
        size = value.shape[names.index(axis)]
        if not -size <= index < size:
            raise ValueError(f"{what} {index} is out of range: the {what} axis has size {size}")
        part[names.index(axis)] = index
    return tuple(part)


def parse_edit(data: Mapping[str, Any]) -> Zero | Scale | Replace:
    """Build an edit from JSON-like data: {"kind": "zero", "head": 2}."""
    values = dict(data)
    kind = values.pop("kind", None)
    if kind not in EDITS:
        raise GlassError(f"the kind of an edit must be one of {', '.join(EDITS)}, got {kind!r}")
    if kind != "replace":
        edit: Zero | Scale = from_dict(EDITS[kind], values, "edit.")
        return edit
    if not values.keys() <= {field.name for field in fields(Replace)} or "value" not in values:
        raise GlassError(
            f"replace needs a value, and optionally a head and a token; got {sorted(values)}"
        )
    try:
        value = torch.tensor(values.pop("value"), dtype=torch.float32)
    except (TypeError, ValueError) as error:
        raise GlassError(f"the value of an edit must consist of numbers: {error}") from None
    part = from_dict(Zero, values, "edit.")  # checks the head and the token
    return Replace(value if value.ndim else float(value), part.head, part.token)


# --- the trace ------------------------------------------------------------------------------------


class Trace(Mapping[str, Tensor]):
    """A context manager that records and edits values; a mapping from name to recorded value.

    Args:
        patterns: names to record, with shell wildcards: `*.pattern`, `blocks.?.attention.*`.
            Without patterns and edits, everything is recorded.
        edit: an edit for each name or pattern: a function of the value, a tensor that replaces it,
            or `Zero`, `Scale` or `Replace`.
        megabytes: the size limit for recorded values; later ones are dropped with a warning.
            Values are not copied: code that changes one in place changes the record, too.
        gradients: also record gradients, for `gradient(name)`.
        allow_missing: do not warn about patterns that match no value.
    """

    def __init__(
        self,
        network: nn.Module,
        *patterns: str,
        edit: Mapping[str, Edit] | None = None,
        megabytes: float = 1000.0,
        gradients: bool = False,
        allow_missing: bool = False,
    ) -> None:
        self.network = network
        self.edits = dict(edit or {})
        self.patterns = patterns if patterns or edit else ("*",)
        self.gradients = gradients
        self.allow_missing = allow_missing
        self.visits: dict[str, list[Tensor]] = {}  # several for a shared block or a decoding loop
        self.order: list[str] = []  # the names of all recorded visits, in order
        self.names: set[str] = set()  # every name seen, recorded or not
        self.megabytes = megabytes
        self.used_bytes = 0
        self.is_full = False
        self._gradients: dict[str, list[Tensor]] = {}  # in the order of the backward pass
        self._paths: dict[int, str] = {}  # id(module): its path
        self._path: list[str] = []  # the stack of running modules, innermost last
        self._applied: set[str] = set()  # the patterns of edits that matched a value
        self._values: dict[str, Tap | None] | None = None

    def __enter__(self) -> "Trace":
        self._paths = {id(module): name for name, module in self.network.named_modules()}
        with contextlib.ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # run a compiled network's original code
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.callback(_unhook, _hook(self.network))
            self._exit_stack = stack.pop_all()
        _thread.traces = [*_thread_traces(), self]
        return self

    def __exit__(self, error: object, *_: object) -> None:
        _thread.traces = [trace for trace in _thread_traces() if trace is not self]
        self._exit_stack.close()
        self._path.clear()
        if error is not None:
            return
        unused = [pattern for pattern in self.edits if pattern not in self._applied]
        if unused:
            hint = did_you_mean(unused[0], self.names)
            message = f"the edit of {unused[0]!r} matched no value{hint}"
            warnings.warn(localize(message), stacklevel=2)
        if unused or self.allow_missing or not self.names:
            return
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in self.names):
                leaves = sorted({name.rpartition(".")[2] for name in self.names})
                hint = did_you_mean(pattern.rpartition(".")[2], leaves)
                message = f"the pattern {pattern!r} matched no value{hint}"
                warnings.warn(localize(message), stacklevel=2)

    def __getitem__(self, name: str) -> Tensor:
        """The value of the last visit; `visits` has all of them."""
        if name in self.visits:
            return self.visits[name][-1]
        if name in self.names and self._should_record(name):
            raise KeyError(f"{name!r} was computed after the trace was full: increase megabytes=")
        if name in self.names:
            raise KeyError(f"{name!r} was not recorded: pass a pattern that matches it to Trace")
        raise KeyError(f"no value is named {name!r}{did_you_mean(name, self.names)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.visits)

    def __len__(self) -> int:
        return len(self.visits)

    def gradient(self, name: str) -> Tensor:
        """The gradient of a recorded value, at its last visit, from the backward pass."""
        if self._gradients.get(name):
            return self._gradients[name][0]
        value = self[name]  # raises if there is no such value
        if not self.gradients:
            raise KeyError(f"no gradients were recorded: use Trace(..., {name!r}, gradients=True)")
        raise KeyError(f"{name!r} {tuple(value.shape)} has no gradient: call backward first")

    def axes(self, name: str) -> str:
        """The axes of a value as its module declares them, such as "b t d"; "" if unknown."""
        if self._values is None:
            self._values = list_values(self.network)
        declaration = self._values.get(name)
        return declaration.axes if declaration else ""

    def watches(self, name: str) -> bool:
        """Whether the tap `name` of the running module is recorded or edited."""
        if not self._path:
            return False
        name = self._full_name(name)
        return self._should_record(name) or any(
            fnmatchcase(name, pattern) for pattern in self.edits
        )

    def visit(self, name: str, value: Tensor) -> Tensor:
        """Edit and record a value of the running module; return it, edited or not."""
        if not self._path:
            return value
        name = self._full_name(name)
        self.names.add(name)
        for pattern, edit in self.edits.items():
            if fnmatchcase(name, pattern):
                self._applied.add(pattern)
                value = self._apply_edit(name, value, edit)
        if self._should_record(name) and not self.is_full:
            self._record(name, value)
        return value

    def _record(self, name: str, value: Tensor) -> None:
        if self.used_bytes + value.nbytes > self.megabytes * 1e6:
            self.is_full = True
            message = (
                f"the trace is full: {name} ({value.nbytes / 1e6:.1f} MB) and later values are not "
                f"recorded; record fewer names, or increase megabytes={self.megabytes:g}"
            )
            warnings.warn(localize(message), stacklevel=2)
            return
        self.used_bytes += value.nbytes
        self.visits.setdefault(name, []).append(value.detach())
        self.order.append(name)
        if self.gradients and value.requires_grad:
            append = self._gradients.setdefault(name, []).append
            value.register_hook(lambda gradient: append(gradient.detach()))  # type: ignore[no-untyped-call]

    def _apply_edit(self, name: str, value: Tensor, edit: Edit) -> Tensor:
        if isinstance(edit, Zero | Scale | Replace):
            try:
                return edit(value, self.axes(name))
            except ValueError as error:
                raise ValueError(f"the edit of {name}: {error}") from None
        changed = edit if isinstance(edit, Tensor) else edit(value)
        if not isinstance(changed, Tensor):
            raise ValueError(f"the edit of {name}: expected a tensor, got {changed!r}")
        if changed.shape != value.shape:
            expected = tuple(value.shape)
            actual = tuple(changed.shape)
            raise ValueError(f"the edit of {name}: expected the shape {expected}, got {actual}")
        return changed

    def _should_record(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def _enter(self, module: nn.Module) -> None:
        if (path := self._paths.get(id(module))) is not None:
            self._path.append(path)

    def _leave(self, module: nn.Module, output: object) -> object:
        if id(module) not in self._paths or not self._path:
            return output
        try:
            return self.visit("", output) if isinstance(output, Tensor) else output
        finally:
            self._path.pop()

    def _full_name(self, name: str) -> str:
        return ".".join(part for part in (self._path[-1], name) if part) or "output"


def _hook(network: nn.Module) -> list[nn.Module]:
    """Add hooks to every module of a network, so that traces know which module is running.

    A module has one pair of hooks, however many traces are open; its hooks call the traces of the
    current thread. Returns the modules, because the network may change while a trace is open.
    """
    global _open_traces
    with _lock:
        _open_traces += 1
        modules = list(network.modules())
        for module in modules:
            count, hooks = _hooks.get(id(module), (0, []))
            if not count:
                leave = module.register_forward_hook(_leave_module, always_call=True)
                hooks = [module.register_forward_pre_hook(_enter_module), leave]
            _hooks[id(module)] = (count + 1, hooks)
    return modules


def _unhook(modules: list[nn.Module]) -> None:
    global _open_traces
    with _lock:
        _open_traces -= 1
        for module in modules:
            count, hooks = _hooks.pop(id(module))
            if count > 1:
                _hooks[id(module)] = (count - 1, hooks)
                continue
            for hook in hooks:
                hook.remove()


def _enter_module(module: nn.Module, _args: object) -> None:
    for trace in _thread_traces():
        trace._enter(module)


def _leave_module(module: nn.Module, _args: object, output: object) -> object:
    for trace in _thread_traces():
        output = trace._leave(module, output)
    return output
