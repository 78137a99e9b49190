"""Optimizers by name, averaged weights (EMA), and the optimizer state as tensors to save."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.models.network import Network, Trait
from glassformer.training.muon import Muon
from glassformer.training.settings import TrainingSettings

MUON_ADAMW_LR_RATIO = 0.25  # lr of vectors, output layers and a prior's gates over that of matrices


def adamw(network: Network, settings: TrainingSettings, prefix: str | None) -> torch.optim.AdamW:
    """Return AdamW for the trained parameters, without weight decay for biases and scales."""
    param_groups = [
        {"params": parameters, "scale": scale, "weight_decay": decay}
        for (scale, decay), parameters in group_parameters(network, settings, prefix).items()
    ] or [{"params": [], "scale": 1.0}]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(param_groups, lr=settings.lr, betas=betas, fused=True)


def muon(network: Network, settings: TrainingSettings, prefix: str | None) -> Muon:
    """Return Muon for the matrices inside the layers; other parameters get AdamW's update."""
    stacks = tuple(f"{stack}." for stack in network.stacks)
    embeddings = tuple(f"{name}." for name in network.embeddings)
    names = {id(p): name for name, p in network.named_parameters()}
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for (scale, decay), parameters in group_parameters(network, settings, prefix).items():
        for parameter in parameters:
            name = names[id(parameter)]
            is_matrix = name.startswith(stacks) and parameter.ndim == 2
            factor = 1.0 if is_matrix or name.startswith(embeddings) else MUON_ADAMW_LR_RATIO
            key = (scale * factor, decay if is_matrix else 0.0, is_matrix)
            groups.setdefault(key, []).append(parameter)
    matrix_state = {"moments": ("exp_avg",), "scalars": ()}
    param_groups = [
        {
            "params": parameters,
            "scale": scale,
            "weight_decay": decay,
            "is_matrix": is_matrix,
            **(matrix_state if is_matrix else {}),
        }
        for (scale, decay, is_matrix), parameters in groups.items()
    ] or [{"params": [], "scale": 1.0, "weight_decay": 0.0, "is_matrix": False}]
    return Muon(param_groups, lr=settings.lr, betas=(settings.beta1, settings.beta2))


@dataclass(frozen=True)
class OptimizerKind:
    """How to make an optimizer, and the state that it keeps for each parameter.

    `make` takes the network, the settings and a prefix of parameter names (None for all).
    Each of the optimizer's param_groups must have a `scale`, which multiplies the learning rate. A
    checkpoint must contain exactly `moments` and `scalars` for each parameter; a group with
    different state lists its own names under the same keys.
    """

    make: Callable[[Network, TrainingSettings, str | None], torch.optim.Optimizer]
    moments: tuple[str, ...] = ()  # names of tensors with the parameter's shape
    scalars: tuple[str, ...] = ()  # names of tensors without dimensions
    settings: Mapping[str, Any] = field(default_factory=dict)  # replace the task's defaults


OPTIMIZERS = {
    "adamw": OptimizerKind(adamw, moments=("exp_avg", "exp_avg_sq"), scalars=("step",)),
    "muon": OptimizerKind(
        muon,
        moments=("exp_avg", "exp_avg_sq"),
        scalars=("step",),
        settings={"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1},
    ),
}


def find_optimizer(name: str) -> OptimizerKind:
    if name not in OPTIMIZERS:
        hint = did_you_mean(name, OPTIMIZERS) or f"; available: {', '.join(OPTIMIZERS)}"
        raise GlassError(f"unknown optimizer {name!r}{hint}")
    return OPTIMIZERS[name]


def group_parameters(
    network: Network, settings: TrainingSettings, prefix: str | None
) -> dict[tuple[float, float], list[nn.Parameter]]:
    """Return the trained parameters, grouped by learning-rate scale and weight decay.

    Only parameters whose names start with `prefix`, unless it is None.
    """
    selected: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and (prefix is None or name.startswith(f"{prefix}.")):
            scale = settings.layer_lr_decay ** layers_after(network, name)
            scale *= network.lr_scales.get(name.partition(".")[0], 1.0)
            decay = settings.weight_decay if parameter.ndim >= 2 else 0.0
            selected.setdefault((scale, decay), []).append(parameter)
    if not selected and not network.has(Trait.FITTED):
        raise GlassError("all parameters are frozen: there is nothing to train")
    return selected


def freeze_parameters(network: Network, patterns: Sequence[str]) -> None:
    """Exclude the parameters whose names match one of the patterns from training."""
    names = [name for name, _ in network.named_parameters()]
    for pattern in patterns:
        # patterns for the names of a model also fit a classifier that has it as its body
        matches = {n for n in names if fnmatchcase(n, pattern)}
        matches |= {n for n in names if fnmatchcase(n.removeprefix("body."), pattern)}
        if not matches:
            raise GlassError(
                f"freeze: no parameter matches {pattern!r}{did_you_mean(pattern, names)}"
            )
        for name in matches:
            network.get_parameter(name).requires_grad_(False)


def layers_after(network: Network, name: str) -> int:
    """Return the number of layers between a parameter and the output of the network."""
    depths = []
    for path in network.stacks:
        stack = network.get_submodule(path)
        assert isinstance(stack, nn.ModuleList)
        depths.append(len(stack))
        if name.startswith(f"{path}."):
            layer = name.removeprefix(f"{path}.").split(".")[0]
            return len(stack) - 1 - int(layer)
    is_embedding = name.startswith(tuple(f"{table}." for table in network.embeddings))
    return max(depths, default=0) if is_embedding else 0


class EMA:
    """An exponential moving average of the weights, which often generalizes better."""

    def __init__(self, network: Network, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, network: Network, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))  # drop the initial weights quickly
        for mean, new in zip(self.network.parameters(), network.parameters(), strict=True):
            mean.lerp_(new, 1 - decay)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, values in state.items() for name, value in values.items()}


def restore_optimizer(
    name: str, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Restore the tensors that `optimizer_tensors` returned.

    Raises ValueError if the tensors are not the state of the optimizer `name` for these parameters.
    """
    kind = find_optimizer(name)
    state = dict[int, dict[str, Tensor]]()
    for key, value in tensors.items():
        index, _, entry = key.partition(".")
        state.setdefault(int(index), {})[entry] = value
    groups = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    parameters = [p for p, _ in groups]
    if not state.keys() <= set(range(len(parameters))):  # may be fewer: some never had a gradient
        raise ValueError(f"state for {len(state)} tensors, but {len(parameters)} are trained")
    for i, values in state.items():
        shape = tuple(parameters[i].shape)
        shapes = {key: tuple(value.shape) for key, value in values.items()}
        are_floats = all(value.is_floating_point() for value in values.values())
        moments = groups[i][1].get("moments", kind.moments)
        scalars = groups[i][1].get("scalars", kind.scalars)
        expected = {**dict.fromkeys(moments, shape), **dict.fromkeys(scalars, ())}
        if not are_floats or shapes != expected:
            raise ValueError(f"the state of tensor {i} does not match the optimizer {name}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
