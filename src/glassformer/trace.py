"""See, and change, the values inside a model while it runs.

    with Trace(network, "*.pattern") as trace:
        network(ids)
    trace["blocks.0.attention.pattern"]  # b h t s

A value is named where it is computed, with `tap`; its full name is the path of the module that is
running plus the tap's own name. What a module returns has the module's path as its name, and what
the whole network returns is `output`. What runs outside of the network is not seen. With no trace
open a tap gives back its argument: no hooks, no copies, nothing for torch.compile to see.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import Tensor, nn

from glassformer.core.config import nearest

Edit = Callable[[Tensor], Tensor] | Tensor  # a function of the value, or what to put in its place

_open: Trace | None = None  # one trace at a time; it looks only at the thread that opened it


def tap(name: str, value: Tensor) -> Tensor:
    """Name an intermediate value. An open trace may record it, or give another in its place."""
    return value if _open is None else _open.visit(name, value)


def watched(*names: str) -> bool:
    """Whether an open trace asks for any of these taps: fast code asks before it hides a value."""
    return _open is not None and any(map(_open.wants, names))


class Trace(Mapping[str, Tensor]):
    """Records the values whose names match a pattern, and passes others through an edit.

    Patterns are those of a shell: `*.pattern`, `blocks.?.attention.*`; without any, everything is
    recorded that fits into `megabytes`.
    """

    def __init__(
        self,
        network: nn.Module,
        *patterns: str,
        edit: Mapping[str, Edit] | None = None,
        megabytes: float = 1000.0,
    ) -> None:
        self.network, self.edits = network, dict(edit or {})
        self.patterns = patterns if patterns or edit else ("*",)
        self.visits: dict[str, list[Tensor]] = {}  # a shared block or a decoding loop visits often
        self.order: list[str] = []  # of all visits, as they came
        self.names: set[str] = set()  # every name that came by, recorded or not
        self.megabytes, self.used, self.full = megabytes, 0, False
        self._path: list[str] = []  # the module that is running behind those that called it
        self._fired: set[str] = set()  # the edits that met a value

    def __enter__(self) -> Trace:
        global _open
        if _open is not None:
            raise RuntimeError("a trace is already open: close it first, or give it both patterns")
        self._thread = threading.get_ident()
        with contextlib.ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # look at the code of a compiled model
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            for name, module in self.network.named_modules():
                enter = module.register_forward_pre_hook(partial(self._enter, name))
                leave = module.register_forward_hook(self._leave, always_call=True)
                stack.callback(enter.remove)
                stack.callback(leave.remove)
            self._closing = stack.pop_all()
        _open = self
        return self

    def __exit__(self, error: object, *_: object) -> None:
        global _open
        _open = None
        self._closing.close()
        idle = [pattern for pattern in self.edits if pattern not in self._fired]
        if idle and error is None:
            near = nearest(idle[0], self.names)
            warnings.warn(f"the edit of {idle[0]!r} met no value{near}", stacklevel=2)

    def __getitem__(self, name: str) -> Tensor:
        """The value of the last visit; `visits` holds them all."""
        if name in self.visits:
            return self.visits[name][-1]
        if name in self.names and self._records(name):
            raise KeyError(f"{name!r} came after the trace was full: raise megabytes=")
        if name in self.names:
            raise KeyError(f"{name!r} was not asked for: give the trace a pattern that matches it")
        raise KeyError(f"no value is named {name!r}{nearest(name, self.names)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.visits)

    def __len__(self) -> int:
        return len(self.visits)

    def wants(self, name: str) -> bool:
        """Whether the value is to be recorded or edited."""
        if not self._here():
            return False
        full = self._full(name)
        return self._records(full) or any(fnmatchcase(full, pattern) for pattern in self.edits)

    def visit(self, name: str, value: Tensor) -> Tensor:
        if not self._here():
            return value
        full = self._full(name)
        self.names.add(full)
        for pattern, edit in self.edits.items():
            if fnmatchcase(full, pattern):
                self._fired.add(pattern)
                value = self._changed(full, value, edit)
        if self._records(full) and not self.full:
            self._record(full, value.detach())
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
        self.visits.setdefault(full, []).append(value)
        self.order.append(full)

    def _changed(self, full: str, value: Tensor, edit: Edit) -> Tensor:
        changed = edit if isinstance(edit, Tensor) else edit(value)
        if not isinstance(changed, Tensor):
            raise ValueError(f"the edit of {full} gives {changed!r}, not a tensor")
        if changed.shape != value.shape:
            shapes = f"{tuple(changed.shape)} in place of {tuple(value.shape)}"
            raise ValueError(f"the edit of {full} gives the shape {shapes}")
        return changed

    def _records(self, full: str) -> bool:
        return any(fnmatchcase(full, pattern) for pattern in self.patterns)

    def _here(self) -> bool:
        """Whether the network is running, in the thread that asked to see it."""
        return bool(self._path) and threading.get_ident() == self._thread

    def _enter(self, name: str, _module: nn.Module, _args: object) -> None:
        if threading.get_ident() == self._thread:
            self._path.append(name)

    def _leave(self, _module: nn.Module, _args: object, output: object) -> object:
        if not self._here():
            return None
        try:
            return self.visit("", output) if isinstance(output, Tensor) else None
        finally:
            self._path.pop()

    def _full(self, name: str) -> str:
        return ".".join(part for part in (self._path[-1], name) if part) or "output"
