"""See, and change, the values inside a model while it runs.

    with Trace(network, "*.pattern") as trace:
        network(ids)
    trace["blocks.0.attention.pattern"]  # b h t s

A value is named where it is computed, with `tap`; its full name is the path of the module that is
running plus the tap's own name. What a module returns has the module's path as its name, and what
the whole network returns is `output`. What runs outside of the network is not seen. A module
declares its taps, with their axes and formulas, as `taps`: `list_values` names all of them before
anything runs.

With no trace open a tap gives back its argument: no hooks, no copies, nothing for torch.compile to
see. Several traces may be open, in one thread or in many; each sees what runs in its own thread.
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

_open = 0  # traces, in all threads: a closed tap looks at nothing else
_thread = threading.local()  # its `traces` are those that were opened in this thread
_lock = threading.Lock()
_hooks: dict[int, tuple[int, list[Any]]] = {}  # how many traces look at a module, and its hooks


def tap(name: str, value: Tensor) -> Tensor:
    """Name an intermediate value. An open trace may record it, or give another in its place."""
    if _open:
        for trace in _traces_here():
            value = trace.visit(name, value)
    return value


def watched(*names: str) -> bool:
    """Whether an open trace asks for any of these taps: fast code asks before it hides a value."""
    return bool(_open) and any(trace.wants(name) for trace in _traces_here() for name in names)


def _traces_here() -> "list[Trace]":
    found: list[Trace] = getattr(_thread, "traces", [])
    return found


@dataclass(frozen=True)
class Tap:
    """What a module says of a value that it names."""

    axes: str  # a letter for each: "b h t s"
    formula: str = ""


def list_values(network: nn.Module) -> dict[str, Tap | None]:
    """Every value that a trace of a network can record, by its name; of what a module returns
    nothing more is known."""
    found: dict[str, Tap | None] = {}
    for path, module in network.named_modules():
        taps: Mapping[str, Tap] = getattr(module, "taps", {})
        found |= {f"{path}.{name}" if path else name: tap for name, tap in taps.items()}
        if not isinstance(module, nn.ModuleList):
            found[path or "output"] = None
    return found


# --- edits ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zero:
    """Nothing in place of a value, or of one head or one token of it."""

    head: int | None = None
    token: int | None = None

    def __call__(self, value: Tensor, axes: str) -> Tensor:
        return Replace(0.0, self.head, self.token)(value, axes)


@dataclass(frozen=True)
class Scale:
    """A multiple of a value, or of one head or one token of it."""

    factor: float
    head: int | None = None
    token: int | None = None

    def __call__(self, value: Tensor, axes: str) -> Tensor:
        part = select(value, axes, self.head, self.token)
        return Replace(value[part] * self.factor, self.head, self.token)(value, axes)


@dataclass(frozen=True)
class Replace:
    """Another value, or a number, in place of a value, or of one head or one token of it."""

    value: Tensor | float
    head: int | None = None
    token: int | None = None

    def __call__(self, value: Tensor, axes: str) -> Tensor:
        part, changed = select(value, axes, self.head, self.token), value.clone()
        if isinstance(self.value, Tensor) and self.value.shape != changed[part].shape:
            shapes = f"{tuple(self.value.shape)} in place of {tuple(changed[part].shape)}"
            raise ValueError(f"the edit gives the shape {shapes}")
        changed[part] = self.value
        return changed


EDITS: dict[str, type] = {"zero": Zero, "scale": Scale, "replace": Replace}
Edit = Callable[[Tensor], Tensor] | Tensor | Zero | Scale | Replace


def select(value: Tensor, axes: str, head: int | None, token: int | None) -> tuple[Any, ...]:
    """The part of a value that belongs to a head and a token; the axes say where these are."""
    names = axes.split() or [""] * value.ndim
    part: list[Any] = [slice(None)] * value.ndim
    for axis, at in (("h", head), ("t", token)):
        if at is None:
            continue
        if axis not in names:
            what = {"h": "heads", "t": "tokens"}[axis]
            raise ValueError(f"there are no {what} in a value whose axes are {axes or 'unknown'!r}")
        size = value.shape[names.index(axis)]
        if not -size <= at < size:
            raise ValueError(f"there is no {axis} {at} among {size}")
        part[names.index(axis)] = at
    return tuple(part)


def parse_edit(data: Mapping[str, Any]) -> Zero | Scale | Replace:
    """An edit as a page or a file gives it: {"kind": "zero", "head": 2}."""
    values = dict(data)
    kind = values.pop("kind", None)
    if kind not in EDITS:
        raise GlassError(f"an edit is one of {', '.join(EDITS)}, not {kind!r}")
    if kind != "replace":
        edit: Zero | Scale = from_dict(EDITS[kind], values, "edit.")
        return edit
    if not values.keys() <= {field.name for field in fields(Replace)} or "value" not in values:
        raise GlassError(f"replace takes a value, a head and a token, not {sorted(values)}")
    try:
        value = torch.tensor(values.pop("value"), dtype=torch.float32)
    except (TypeError, ValueError) as error:
        raise GlassError(f"the value of an edit must be numbers: {error}") from None
    place = from_dict(Zero, values, "edit.")
    return Replace(value if value.ndim else float(value), place.head, place.token)


# --- the trace ------------------------------------------------------------------------------------


class Trace(Mapping[str, Tensor]):
    """Records the values whose names match a pattern, and passes others through an edit.

    Patterns are those of a shell: `*.pattern`, `blocks.?.attention.*`; without any, everything is
    recorded that fits into `megabytes`. An edit is a function of the value, a tensor to put in its
    place, or data: `Zero(head=2)`. With `gradients`, `gradient(name)` is the gradient that a
    backward pass brings to a recorded value. A pattern that meets no value is warned of, unless
    `allow_missing`.
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
        self.network, self.edits = network, dict(edit or {})
        self.patterns = patterns if patterns or edit else ("*",)
        self.gradients, self.allow_missing = gradients, allow_missing
        self.visits: dict[str, list[Tensor]] = {}  # a shared block or a decoding loop visits often
        self.order: list[str] = []  # of all visits, as they came
        self.names: set[str] = set()  # every name that came by, recorded or not
        self.megabytes, self.used, self.full = megabytes, 0, False
        self._gradients: dict[str, list[Tensor]] = {}  # of all visits, as they came back
        self._paths: dict[int, str] = {}  # of modules, by their identity
        self._path: list[str] = []  # the module that is running behind those that called it
        self._fired: set[str] = set()  # the edits that met a value
        self._axes: dict[str, Tap | None] | None = None

    def __enter__(self) -> "Trace":
        self._paths = {id(module): name for name, module in self.network.named_modules()}
        with contextlib.ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # look at the code of a compiled model
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            _hook(self.network)
            stack.callback(_unhook, self.network)
            self._closing = stack.pop_all()
        _thread.traces = [*_traces_here(), self]
        return self

    def __exit__(self, error: object, *_: object) -> None:
        _thread.traces = [trace for trace in _traces_here() if trace is not self]
        self._closing.close()
        self._path.clear()
        if error is not None:
            return
        idle = [pattern for pattern in self.edits if pattern not in self._fired]
        if idle:
            near = did_you_mean(idle[0], self.names)
            warnings.warn(f"the edit of {idle[0]!r} met no value{near}", stacklevel=2)
        silent = idle or self.allow_missing or not self.names
        for pattern in () if silent else self.patterns:
            if not any(fnmatchcase(name, pattern) for name in self.names):
                leaves = sorted({name.rpartition(".")[2] for name in self.names})
                near = did_you_mean(pattern.rpartition(".")[2], leaves)
                warnings.warn(f"the pattern {pattern!r} met no value{near}", stacklevel=2)

    def __getitem__(self, name: str) -> Tensor:
        """The value of the last visit; `visits` holds them all."""
        if name in self.visits:
            return self.visits[name][-1]
        if name in self.names and self._records(name):
            raise KeyError(f"{name!r} came after the trace was full: raise megabytes=")
        if name in self.names:
            raise KeyError(f"{name!r} was not asked for: give the trace a pattern that matches it")
        raise KeyError(f"no value is named {name!r}{did_you_mean(name, self.names)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.visits)

    def __len__(self) -> int:
        return len(self.visits)

    def gradient(self, name: str) -> Tensor:
        """What the backward pass brought to the last visit of a recorded value."""
        if self._gradients.get(name):
            return self._gradients[name][0]
        value = self[name]  # an error where there is no such value
        if not self.gradients:
            raise KeyError(f"no gradients were asked for: Trace(..., {name!r}, gradients=True)")
        raise KeyError(f"no gradient came to {name!r} {tuple(value.shape)}: call backward first")

    def axes(self, name: str) -> str:
        """The letters of a value's axes, as its module declares them; nothing if it does not."""
        if self._axes is None:
            self._axes = list_values(self.network)
        found = self._axes.get(name)
        return found.axes if found else ""

    def wants(self, name: str) -> bool:
        """Whether the value is to be recorded or edited."""
        if not self._path:
            return False
        full = self._full(name)
        return self._records(full) or any(fnmatchcase(full, pattern) for pattern in self.edits)

    def visit(self, name: str, value: Tensor) -> Tensor:
        if not self._path:
            return value
        full = self._full(name)
        self.names.add(full)
        for pattern, edit in self.edits.items():
            if fnmatchcase(full, pattern):
                self._fired.add(pattern)
                value = self._changed(full, value, edit)
        if self._records(full) and not self.full:
            self._record(full, value)
        return value

    def _record(self, full: str, value: Tensor) -> None:
        if self.used + value.nbytes > self.megabytes * 1e6:
            self.full = True
            warnings.warn(
                f"the trace is full: {full} ({value.nbytes / 1e6:.1f} MB) and what follows is not "
                f"recorded; ask for fewer names or give it more than megabytes={self.megabytes:g}",
                stacklevel=2,
            )
            return
        self.used += value.nbytes
        self.visits.setdefault(full, []).append(value.detach())
        self.order.append(full)
        if self.gradients and value.requires_grad:
            keep = self._gradients.setdefault(full, []).append
            value.register_hook(lambda gradient: keep(gradient.detach()))  # type: ignore[no-untyped-call]

    def _changed(self, full: str, value: Tensor, edit: Edit) -> Tensor:
        if isinstance(edit, Zero | Scale | Replace):
            try:
                return edit(value, self.axes(full))
            except ValueError as error:
                raise ValueError(f"the edit of {full}: {error}") from None
        changed = edit if isinstance(edit, Tensor) else edit(value)
        if not isinstance(changed, Tensor):
            raise ValueError(f"the edit of {full} gives {changed!r}, not a tensor")
        if changed.shape != value.shape:
            shapes = f"{tuple(changed.shape)} in place of {tuple(value.shape)}"
            raise ValueError(f"the edit of {full} gives the shape {shapes}")
        return changed

    def _records(self, full: str) -> bool:
        return any(fnmatchcase(full, pattern) for pattern in self.patterns)

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

    def _full(self, name: str) -> str:
        return ".".join(part for part in (self._path[-1], name) if part) or "output"


def _hook(network: nn.Module) -> None:
    """Let every module of a network tell when it runs, as long as a trace looks at it.

    Hooks stand once on a module that several traces look at; each call goes to the traces of the
    thread in which it happens.
    """
    global _open
    with _lock:
        _open += 1
        for module in network.modules():
            count, hooks = _hooks.get(id(module), (0, []))
            if not count:
                leave = module.register_forward_hook(_module_leaves, always_call=True)
                hooks = [module.register_forward_pre_hook(_module_enters), leave]
            _hooks[id(module)] = (count + 1, hooks)


def _unhook(network: nn.Module) -> None:
    global _open
    with _lock:
        _open -= 1
        for module in network.modules():
            count, hooks = _hooks.pop(id(module))
            if count > 1:
                _hooks[id(module)] = (count - 1, hooks)
                continue
            for hook in hooks:
                hook.remove()


def _module_enters(module: nn.Module, _args: object) -> None:
    for trace in _traces_here():
        trace._enter(module)


def _module_leaves(module: nn.Module, _args: object, output: object) -> object:
    for trace in _traces_here():
        output = trace._leave(module, output)
    return output
