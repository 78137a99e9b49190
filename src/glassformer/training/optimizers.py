"""Optimizers, averaged weights, and both as tensors that a file can hold."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.models.network import Network, Trait
from glassformer.training.settings import TrainingSettings


def adamw(network: Network, settings: TrainingSettings, group: str | None) -> torch.optim.AdamW:
    """AdamW; matrices decay, biases and scales do not, and what is frozen is left out."""
    tables = [
        {"params": these, "scale": scale, "weight_decay": decay}
        for (scale, decay), these in trained_parameters(network, settings, group).items()
    ] or [{"params": [], "scale": 1.0}]
    return torch.optim.AdamW(tables, lr=settings.lr, betas=(0.9, settings.beta2), fused=True)


@dataclass(frozen=True)
class OptimizerKind:
    """How an optimizer is made for a group of parameters (a prefix of their names, or None), and
    what it remembers of each parameter: a checkpoint holds exactly that.

    Its tables of parameters have a `scale`, which the learning rate is multiplied with.
    """

    make: Callable[[Network, TrainingSettings, str | None], torch.optim.Optimizer]
    moments: tuple[str, ...] = ()  # tensors with the parameter's shape
    scalars: tuple[str, ...] = ()


OPTIMIZERS = {
    "adamw": OptimizerKind(adamw, moments=("exp_avg", "exp_avg_sq"), scalars=("step",)),
}


def find_optimizer(name: str) -> OptimizerKind:
    if name not in OPTIMIZERS:
        hint = did_you_mean(name, OPTIMIZERS) or f"; there are {', '.join(OPTIMIZERS)}"
        raise GlassError(f"there is no optimizer {name!r}{hint}")
    return OPTIMIZERS[name]


def trained_parameters(
    network: Network, settings: TrainingSettings, group: str | None
) -> dict[tuple[float, float], list[nn.Parameter]]:
    """The parameters of a group (a prefix of their names) that are trained, by the scale of their
    learning rate and by their weight decay."""
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    frozen = dict.fromkeys(settings.freeze, 0)
    for name, parameter in network.named_parameters():
        both = (name, name.removeprefix("body."))  # a classifier's weights, and a body's own
        hits = [pattern for pattern in frozen if any(fnmatchcase(n, pattern) for n in both)]
        for pattern in hits:
            frozen[pattern] += 1
        if hits:
            parameter.requires_grad_(False)
        elif parameter.requires_grad and (group is None or name.startswith(f"{group}.")):
            scale = settings.layer_lr_decay ** layers_after(network, name)
            decay = settings.weight_decay if parameter.ndim >= 2 else 0.0
            found.setdefault((scale, decay), []).append(parameter)
    for pattern, count in frozen.items():
        if not count:
            names = [name for name, _ in network.named_parameters()]
            raise GlassError(f"no weight is called {pattern!r}{did_you_mean(pattern, names)}")
    if not found and not network.has(Trait.FITTED):
        raise GlassError("every weight is frozen: nothing is left to learn")
    return found


def layers_after(network: Network, name: str) -> int:
    """How many layers stand between a weight and the end of the network."""
    depths = []
    for path in network.stacks:
        stack = network.get_submodule(path)
        assert isinstance(stack, nn.ModuleList)
        depths.append(len(stack))
        if name.startswith(f"{path}."):
            layer = name.removeprefix(f"{path}.").split(".")[0]
            return len(stack) - 1 - int(layer)
    before = name.startswith(tuple(f"{table}." for table in network.embeddings))
    return max(depths, default=0) if before else 0


class EMA:
    """Weights averaged over the steps (EMA), which often judge better than the last ones."""

    def __init__(self, network: Network, keep: float) -> None:
        self.keep, self.network = keep, copy.deepcopy(network).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, network: Network, step: int) -> None:
        keep = min(self.keep, (1 + step) / (10 + step))  # early weights are soon forgotten
        for mean, new in zip(self.network.parameters(), network.parameters(), strict=True):
            mean.lerp_(new, 1 - keep)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, values in state.items() for name, value in values.items()}


def restore_optimizer(
    name: str, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Take up the state that `optimizer_tensors` gave; an error where it is not that of an
    optimizer of this name."""
    kind, state = find_optimizer(name), dict[int, dict[str, Tensor]]()
    for key, value in tensors.items():
        i, _, part = key.partition(".")
        state.setdefault(int(i), {})[part] = value
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not state.keys() <= set(range(len(parameters))):  # without a gradient there are none
        raise ValueError(f"moments of {len(state)} tensors where {len(parameters)} learn")
    for number, found in state.items():
        size = tuple(parameters[number].shape)
        shapes = {part: tuple(value.shape) for part, value in found.items()}
        floats = all(value.is_floating_point() for value in found.values())
        wanted = {**dict.fromkeys(kind.moments, size), **dict.fromkeys(kind.scalars, ())}
        if not floats or shapes != wanted:
            raise ValueError(f"the moments of tensor {number} are not those of {name}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
