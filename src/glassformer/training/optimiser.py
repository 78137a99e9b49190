"""The optimiser, averaged weights, and both as tensors that a file can hold."""

from __future__ import annotations

import copy
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from glassformer.config import nearest
from glassformer.errors import GlassError
from glassformer.models import counts
from glassformer.training.settings import Training


def make_optimiser(network: nn.Module, settings: Training) -> torch.optim.AdamW:
    """AdamW; matrices decay, biases and scales do not, and what is frozen is left out."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    frozen = dict.fromkeys(settings.freeze, 0)
    for name, parameter in network.named_parameters():
        hits = [pattern for pattern in frozen if fnmatchcase(name, pattern)]
        for pattern in hits:
            frozen[pattern] += 1
        if hits:
            parameter.requires_grad_(False)
        elif parameter.requires_grad:
            scale = settings.layer_rate ** blocks_behind(network, name)
            decay = settings.decay if parameter.ndim >= 2 else 0.0
            groups.setdefault((scale, decay), []).append(parameter)
    for pattern, count in frozen.items():
        if not count:
            names = [name for name, _ in network.named_parameters()]
            raise GlassError(f"no weight is called {pattern!r}{nearest(pattern, names)}")
    if not groups and not counts(network):  # what learns in one go has learnt already
        raise GlassError("every weight is frozen: nothing is left to learn")
    tables = [
        {"params": these, "scale": scale, "weight_decay": decay}
        for (scale, decay), these in groups.items()
    ] or [{"params": [], "scale": 1.0}]
    return torch.optim.AdamW(tables, lr=settings.rate, betas=(0.9, settings.beta2), fused=True)


def blocks_behind(network: nn.Module, name: str) -> int:
    """How many blocks stand between a weight and the end of the network."""
    first, _, rest = name.partition(".")
    stack = getattr(network, first, None)
    if isinstance(stack, nn.ModuleList):
        return len(stack) - 1 - int(rest.split(".")[0])
    deepest = [len(m) for m in network.children() if isinstance(m, nn.ModuleList)]
    before = ("token", "source_token", "position", "segment")
    return max(deepest, default=0) if first in before else 0


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
    """Take up the moments that `optimiser_tensors` gave; an error where they are not its own."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        i, _, name = key.partition(".")
        state.setdefault(int(i), {})[name] = value
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    if not state.keys() <= set(range(len(parameters))):  # without a gradient there are none
        raise ValueError(f"moments of {len(state)} tensors where {len(parameters)} learn")
    for number, found in state.items():
        size = tuple(parameters[number].shape)
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        floats = all(value.is_floating_point() for value in found.values())
        if not floats or shapes != {"step": (), "exp_avg": size, "exp_avg_sq": size}:
            raise ValueError(f"the moments of tensor {number} are not those of AdamW")
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
