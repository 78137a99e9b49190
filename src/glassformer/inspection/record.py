"""Record a forward pass operation by operation: how every tensor in it was computed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

MOVES = set(  # operations that only rearrange, copy or select numbers
    "view _unsafe_view reshape transpose t permute unsqueeze squeeze expand slice select split "
    "split_with_sizes unsafe_split chunk unbind clone contiguous detach alias cat stack repeat "
    "index_select gather index flip roll embedding masked_fill narrow unfold constant_pad_nd "
    "lift_fresh _to_copy copy where".split()
)
LOOKUPS = {"embedding", "index_select", "gather", "index"}  # select by input ids


@dataclass(frozen=True)
class OpResult:
    """A tensor that an operation returned, and the call that returned it."""

    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int  # position among the tensors that the operation returned

    @property
    def name(self) -> str:
        name: str = self.operation._schema.name.removeprefix("aten::")
        return name.removesuffix("_")  # drop the suffix of in-place operations


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records how every tensor is computed; arguments changed in place are copied beforehand.

    Tensors are identified by `id`.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.results: dict[int, OpResult] = {}
        self.weights = set(map(id, weights))  # including views of weights
        self.computed_from_weights = set(self.weights)
        self.references: list[Any] = []  # keeps tensors alive, so that no id is reused

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, recorded_args = kwargs or {}, args
        if func._schema.is_mutable:
            recorded_args = tree_map(self.copy_tensor, args)
        inputs = [id(arg) for arg in tree_leaves(args) if isinstance(arg, Tensor)]
        uses_weights = any(tensor in self.computed_from_weights for tensor in inputs)
        is_move = func._schema.name.removeprefix("aten::") in MOVES - LOOKUPS
        is_view = is_move and bool(inputs) and all(tensor in self.weights for tensor in inputs)
        result = func(*args, **kwargs)
        for index, tensor in enumerate(tree_leaves(result)):
            if isinstance(tensor, Tensor):
                self.results[id(tensor)] = OpResult(func, recorded_args, kwargs, index)
                if uses_weights:
                    self.computed_from_weights.add(id(tensor))
                if is_view:
                    self.weights.add(id(tensor))
        self.references += [recorded_args, kwargs, result]
        return result

    def copy_tensor(self, value: Any) -> Any:
        """Copy a tensor together with its record; return anything else unchanged."""
        if not isinstance(value, Tensor):
            return value
        copy = torch.empty_like(value).copy_(value)
        if id(value) in self.results:
            self.results[id(copy)] = self.results[id(value)]
        if id(value) in self.computed_from_weights:
            self.computed_from_weights.add(id(copy))
        return copy
