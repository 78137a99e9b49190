"""Read and write safetensors files, and build networks from checked weights."""

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
    """Return all tensors in a file; half-precision tensors are converted to float32."""
    try:
        with wrap_read_errors(path), safe_open(path, framework="pt") as file:
            return {name: to_float32(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise GlassError(f"{path} is corrupted or not a safetensors file: {error}") from None


def to_float32(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() and value.itemsize < 4 else value


def write(state: State, path: Path) -> None:
    """Write a new file with the read and write permissions of its folder."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise GlassError(f"cannot write {path}: {error}") from None
    path.chmod(path.parent.stat().st_mode & 0o666)


def build_with_weights(build: Callable[[], N], state: State, source: object) -> N:
    """Return the network with these weights, in eval mode.

    It is first built without allocating memory, to check names, shapes and types before any tensor
    is used. `source` is the file or folder to report in errors.
    """
    with torch.device("meta"), SkipInit():
        network = build()
    expected = network.state_dict()
    missing = expected.keys() - state.keys()
    unexpected = state.keys() - expected.keys()
    if missing:
        raise GlassError(f"{source} is missing the tensors {list_some(missing)}")
    if unexpected:
        raise GlassError(f"{source} has unexpected tensors: {list_some(unexpected)}")
    for name, value in expected.items():
        is_float = value.is_floating_point()
        # The size of a count table depends on the data that it was fitted to.
        has_free_size = not is_float or not value.numel()
        if value.shape != state[name].shape and not has_free_size:
            shapes = f"{tuple(value.shape)} from the config, got {tuple(state[name].shape)}"
            raise GlassError(f"{source}: {name}: expected shape {shapes}")
        integers = (torch.int32, torch.int64)
        if not (state[name].is_floating_point() if is_float else state[name].dtype in integers):
            dtype = str(state[name].dtype).removeprefix("torch.")
            expected_type = "floating point" if is_float else "integers"
            raise GlassError(f"{source}: {name}: expected {expected_type}, got {dtype}")
        if is_float and not state[name].isfinite().all():
            raise GlassError(f"{source}: {name} has values that are not finite (NaN or infinity)")
    dtypes = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(dtypes) > 1:
        state = {n: v.float() if v.is_floating_point() else v for n, v in state.items()}
    network.load_state_dict(state, assign=True)
    try:
        for module in network.modules():
            if callable(check := getattr(module, "check", None)):
                check()
    except GlassError as error:
        raise GlassError(f"{source}: {error}") from None
    return network.eval()


class SkipInit(TorchFunctionMode):
    """Skips weight initialization, whose imports would take a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


def list_some(names: Iterable[str], limit: int = 6) -> str:
    """Return the first names as text for a one-line message."""
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more
