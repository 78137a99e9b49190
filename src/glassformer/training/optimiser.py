"""The optimiser, averaged weights, and both as tensors that a file can hold."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from glassformer.training.settings import Training


def make_optimiser(network: nn.Module, settings: Training) -> torch.optim.AdamW:
    """AdamW; matrices decay, biases and scales do not."""
    matrices = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, settings.beta2), fused=True)


class Average:
    """Weights averaged over the steps (EMA), which often judge better than the last ones."""

    def __init__(self, network: nn.Module, keep: float) -> None:
        self.keep, self.network = keep, copy.deepcopy(network).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        keep = min(self.keep, (1 + step) / (10 + step))  # early weights are soon forgotten
        for mean, new in zip(self.network.parameters(), network.parameters(), strict=True):
            mean.lerp_(new, 1 - keep)


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {f"{i}.{name}": value for i, values in state.items() for name, value in values.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        i, _, name = key.partition(".")
        state.setdefault(int(i), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
