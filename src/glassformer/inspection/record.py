"""A pass recorded operation by operation: how every tensor in it was made."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

MOVES = set(
    "view _unsafe_view reshape transpose t permute unsqueeze squeeze expand slice select split "
    "split_with_sizes unsafe_split chunk unbind clone contiguous detach alias cat stack repeat "
    "index_select gather index flip roll embedding masked_fill narrow unfold constant_pad_nd "
    "lift_fresh _to_copy copy where".split()
)
LOOK_UPS = {"embedding", "index_select", "gather", "index"}  # by what a text says


@dataclass(frozen=True)
class Made:
    """One result of one operation."""

    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    number: int  # of several results

    @property
    def name(self) -> str:
        found: str = self.operation._schema.name.removeprefix("aten::")
        return found.removesuffix("_")  # in place or not


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes how every tensor of a pass was made. What is changed in place is kept as it was."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: dict[int, Made] = {}
        self.weights = set(map(id, weights))  # and what are only views of them
        self.learnt = set(self.weights)  # the tensors that weights have a part in
        self.kept: list[Any] = []  # so that no tensor's address is given to another

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, seen = kwargs or {}, args
        if func._schema.is_mutable:
            seen = tree_map(self.as_it_was, args)
        given = [id(one) for one in tree_leaves(args) if isinstance(one, Tensor)]
        learnt = any(one in self.learnt for one in given)
        moved = func._schema.name.removeprefix("aten::") in MOVES - LOOK_UPS
        view = moved and bool(given) and all(one in self.weights for one in given)
        result = func(*args, **kwargs)
        for number, one in enumerate(tree_leaves(result)):
            if isinstance(one, Tensor):
                self.made[id(one)] = Made(func, seen, kwargs, number)
                if learnt:
                    self.learnt.add(id(one))
                if view:
                    self.weights.add(id(one))
        self.kept += [seen, kwargs, result]
        return result

    def as_it_was(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        copy = torch.empty_like(value).copy_(value)
        if id(value) in self.made:
            self.made[id(copy)] = self.made[id(value)]
        if id(value) in self.learnt:
            self.learnt.add(id(copy))
        return copy
