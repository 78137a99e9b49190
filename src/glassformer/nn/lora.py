"""LoRA: frozen weights plus a trainable low-rank product (Hu et al., 2021)."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALE = 2.0  # factor on the low-rank product (alpha / rank in the paper)


class LoRA(nn.Module):
    """A linear layer W x plus SCALE * up (down x). `up` starts at zero: no change at first."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        weight = linear.weight
        self.linear = linear
        self.down = nn.Parameter(weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        update = F.linear(F.linear(x, self.down), self.up)
        y: Tensor = self.linear(x) + SCALE * update
        return y

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """Add the low-rank product to the linear layer's weight and return the layer."""
        self.linear.weight += SCALE * self.up @ self.down
        return self.linear


def add_lora(network: nn.Module, stacks: Iterable[str], rank: int) -> None:
    """Freeze a network and wrap every linear layer inside the given stacks in a `LoRA`."""
    network.requires_grad_(False)
    modules = [module for path in stacks for module in network.get_submodule(path).modules()]
    for module in modules:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LoRA(child, rank))


def merge_lora(network: nn.Module) -> None:
    """Merge every `LoRA` into its linear layer and make all parameters trainable again."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoRA):
                setattr(module, name, child.merge())
    network.requires_grad_(True)
