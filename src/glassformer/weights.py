"""Tensors in safetensors files: read with every size checked, and written."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors

State = dict[str, Tensor]
FILE = "model.safetensors"
N = TypeVar("N", bound=nn.Module)


def read(path: Path) -> State:
    """All tensors of a file; those of half precision as float32, in which this package computes."""
    try:
        with wrap_read_errors(path), safe_open(path, framework="pt") as file:
            return {name: to_float32(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise GlassError(f"{path} is damaged or no safetensors file: {error}") from None


def to_float32(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() and value.itemsize < 4 else value


def write(state: State, path: Path) -> None:
    """Write a new file, readable by whoever may read its folder."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise GlassError(f"{path} could not be written: {error}") from None
    path.chmod(path.parent.stat().st_mode & 0o666)


def build_with_weights(make: Callable[[], N], state: State, where: object) -> N:
    """A network with these weights. It is built without memory first, to compare the shapes."""
    with torch.device("meta"), SkipInit():
        network = make()
    wanted = network.state_dict()
    absent, surplus = wanted.keys() - state.keys(), state.keys() - wanted.keys()
    if absent:
        raise GlassError(f"{where} lacks {list_some(absent)}")
    if surplus:
        raise GlassError(
            f"{where} holds tensors that the model has no place for: {list_some(surplus)}"
        )
    for name, value in wanted.items():
        counted = not value.is_floating_point() or not value.numel()  # as long as what was counted
        if value.shape != state[name].shape and not counted:
            sizes = f"{tuple(state[name].shape)}, but its config asks for {tuple(value.shape)}"
            raise GlassError(f"{where}: {name} is {sizes}")
        floats = value.is_floating_point()
        if not (state[name].is_floating_point() if floats else state[name].dtype == value.dtype):
            kind = str(state[name].dtype).removeprefix("torch.")
            wanted_kind = "floating-point" if floats else "whole"
            raise GlassError(f"{where}: {name} holds {kind}, not {wanted_kind} numbers")
        if floats and not state[name].isfinite().all():
            raise GlassError(f"{where}: {name} holds numbers that are not finite (NaN or infinite)")
    kinds = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(kinds) > 1:
        state = {n: v.float() if v.is_floating_point() else v for n, v in state.items()}
    network.load_state_dict(state, assign=True)
    try:
        for module in network.modules():
            if callable(check := getattr(module, "check", None)):
                check()
    except GlassError as error:
        raise GlassError(f"{where}: {error}") from None
    return network.eval()


class SkipInit(TorchFunctionMode):
    """Builds modules without their first weights, which take a second of imports to draw."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


def list_some(names: Iterable[str], most: int = 6) -> str:
    """A list for a message that stays one line."""
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more
