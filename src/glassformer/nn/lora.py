"""LoRA: weights that stay, and a thin product beside them that learns (Hu et al., 2021)."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALE = 2.0  # how much the product counts


class LoRA(nn.Module):
    """A linear layer W x that becomes W x + scale * up (down x); at first the addition is zero."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        weight = linear.weight
        self.linear = linear
        self.down = nn.Parameter(weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        added = F.linear(F.linear(x, self.down), self.up)
        y: Tensor = self.linear(x) + SCALE * added
        return y

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One plain layer that gives the same."""
        self.linear.weight += SCALE * self.up @ self.down
        return self.linear


def add_lora(network: nn.Module, stacks: Iterable[str], rank: int) -> None:
    """Freeze a network; put the product beside every linear layer inside these lists of layers."""
    network.requires_grad_(False)
    inside = [module for path in stacks for module in network.get_submodule(path).modules()]
    for module in inside:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LoRA(child, rank))


def merge_lora(network: nn.Module) -> None:
    """Put plain layers back, which hold what was learnt beside them."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoRA):
                setattr(module, name, child.merged())
    network.requires_grad_(True)
