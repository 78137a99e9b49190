"""One optimizer step: from a batch to gradients to updated weights."""

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError, is_memory_error
from glassformer.core.world import World
from glassformer.data.batches import split_batch
from glassformer.models.network import Network
from glassformer.nn.block import enable_checkpointing
from glassformer.tasks.task import Batch, Objective
from glassformer.training.optimizers import EMA, find_optimizer, freeze_parameters
from glassformer.training.settings import TrainingSettings

SINGLE_PROCESS = World()
LossGenerator = Generator[Tensor, None, None]


@dataclass
class State:
    """The state, besides tensors, that a run needs to resume exactly; saved in training.json."""

    step: int = 0  # steps taken, including skipped ones
    best: float | None = None  # value of the metric that decides which weights are the best
    best_step: int = 0
    evals: int = 0
    evals_since_best: int = 0
    evaluated_at: int = -1  # step of the last evaluation
    eval_seconds: float = 0.0  # total time of all evaluations
    setup_seconds: float = 0.0  # before the first step
    seconds: float = 0.0  # since the first step
    predictions: int = 0  # number of predictions in the training batches
    consecutive_skips: int = 0  # steps skipped in a row, because a value was not finite
    lr_scale: float = 1.0  # multiplies the learning rate
    changed: dict[str, Any] = field(default_factory=dict)  # settings that changed during training
    is_finished: bool = False  # whether the budget is spent; extending it sets this to False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_number = type(value) in (int, float) and name not in ("best", "evaluated_at")
            if is_number and not 0 <= value < math.inf:
                raise GlassError(f"{name} must be at least 0 and finite, got {value}")
        if not 0 < self.lr_scale <= 1:
            raise GlassError(f"lr_scale must be above 0 and at most 1, got {self.lr_scale}")


@dataclass(frozen=True)
class StepResult:
    loss: float  # mean over the predictions
    grad_norm: float  # before clipping
    count: int  # number of predictions
    lr: float
    non_finite: str | None = None  # what is not finite; if set, the weights were not updated


class Step:
    """A network, its objective and its optimizers; calling it takes one step."""

    def __init__(
        self,
        network: Network,
        objective: Objective,
        settings: TrainingSettings,
        world: World = SINGLE_PROCESS,
    ) -> None:
        self.device = torch.device(settings.device)
        self.network = network.to(self.device)
        self.objective = objective
        self.settings, self.world = settings, world
        if settings.checkpointing:
            enable_checkpointing(self.network)
        freeze_parameters(self.network, settings.freeze)
        make = find_optimizer(settings.optimizer).make
        self.optimizers = {group: make(network, settings, group) for group in objective.groups}
        self.ema = EMA(self.network, settings.ema_decay) if settings.ema_decay else None
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=settings.precision == "float16"
        )  # type: ignore[no-untyped-call,unused-ignore]

    def __call__(self, batch: Batch, lr: float, step: int) -> StepResult:
        """Update the weights with the gradient of a batch, one group of parameters at a time.

        A group whose loss or gradient is not finite is not updated, nor are those after it.
        """
        losses, norms, count = [], [], 0
        batch = self.world.shard(batch)
        generators = self.make_loss_generators(batch)
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = lr * group["scale"]
            loss, norm, count = self.backward(batch, generators, optimizer)
            while has_overflow(loss, norm) and self.lower_loss_scale(optimizer):
                generators = self.make_loss_generators(batch)
                loss, norm, count = self.backward(batch, generators, optimizer)
            if cause := self.find_non_finite(loss, norm):
                self.scaler.update()
                self.network.zero_grad(set_to_none=True)
                return StepResult(loss, norm, count, lr, cause)
            trained = self.parameters_with_gradients(optimizer)
            nn.utils.clip_grads_with_norm_(trained, self.settings.clip, torch.tensor(norm))
            self.scaler.step(optimizer)
            self.scaler.update()
            self.network.zero_grad(set_to_none=True)
            losses.append(loss)
            norms.append(norm)
        if self.ema:
            self.ema.update(self.network, step + 1)
        return StepResult(sum(losses), max(norms), count, lr)

    def make_loss_generators(self, batch: Batch, count: int | None = None) -> list[LossGenerator]:
        """Split a batch into micro-batches; return a generator of losses for each.

        Each generator yields one summed loss per group of parameters, computed when it is asked
        for, so that a group's loss sees the updates of the groups before it. Because losses are
        summed, not averaged, the gradient does not depend on the number of micro-batches.
        """
        micro_batches = split_batch(batch, count or self.settings.accumulate)
        return [self.losses(micro_batch) for micro_batch in micro_batches]

    def losses(self, batch: Batch) -> LossGenerator:
        """Yield the summed loss of a micro-batch for each group of parameters."""
        batch = {name: value.to(self.device) for name, value in batch.items()}
        is_half = self.settings.precision in ("bfloat16", "float16")
        dtype = getattr(torch, self.settings.precision) if is_half else None
        losses = self.objective.losses(
            self.network, batch, label_smoothing=self.settings.label_smoothing
        )
        while True:
            with torch.autocast(self.device.type, dtype=dtype, enabled=is_half):
                loss = next(losses, None)
            if loss is None:
                return
            extra_loss = self.network.extra_loss()
            if extra_loss is not None:
                loss = loss + extra_loss * self.objective.count(batch)
            yield loss

    def backward(
        self,
        batch: Batch,
        generators: list[LossGenerator],
        optimizer: torch.optim.Optimizer,
    ) -> tuple[float, float, int]:
        """Compute the gradient of one group of parameters, summed over all processes.

        Takes the next loss of each generator. Returns the mean loss of the batch, the norm of the
        gradient and the number of predictions.
        """
        count = self.world.all_reduce(self.objective.count(batch))
        total = 0.0
        *_, last_optimizer = self.optimizers.values()
        for generator in generators:
            loss = next(generator)
            self.scaler.scale(loss / count).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            if optimizer is last_optimizer:
                generator.close()  # frees the tensors of the micro-batch
        gradients = []
        for parameter in self.parameters_with_gradients(optimizer):
            parameter.grad = self.world.all_reduce(parameter.grad)
            gradients.append(parameter.grad)
        self.scaler.unscale_(optimizer)
        norm = nn.utils.get_total_norm(g for g in gradients if g is not None)
        return self.world.all_reduce(total) / count, float(norm), count

    def parameters_with_gradients(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        """Return the parameters of an optimizer that have a gradient, in the network's order."""
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [p for p in self.network.parameters() if id(p) in own and p.grad is not None]

    def lower_loss_scale(self, optimizer: torch.optim.Optimizer) -> bool:
        """Halve the loss scale for float16 after a gradient overflowed.

        Returns false if that cannot help because there is no loss scale or it is already 1, or if
        the batch cannot be repeated because a group of parameters has already been updated on it.
        """
        if not self.scaler.is_enabled() or self.scaler.get_scale() <= 1:
            return False
        if optimizer is not next(iter(self.optimizers.values())):
            return False
        self.scaler.update(max(self.scaler.get_scale() / 2, 1.0))
        self.network.zero_grad(set_to_none=True)
        return True

    def find_non_finite(self, loss: float, norm: float) -> str | None:
        """Describe the source of an infinity or NaN (a weight, the loss or a gradient).

        Returns None if the loss and the norm of the gradient are finite.
        """
        if math.isfinite(loss) and math.isfinite(norm):
            return None
        for name, parameter in self.network.named_parameters():
            if not parameter.isfinite().all():
                return f"the weight {name}"
        if not math.isfinite(loss):
            return "the loss"
        for name, parameter in self.network.named_parameters():
            if parameter.grad is not None and not parameter.grad.isfinite().all():
                return f"the gradient of {name}"
        return "the norm of the gradient"

    def fits_in_memory(self, batch: Batch, count: int) -> bool:
        """Check whether a batch fits in memory when split into `count` micro-batches."""
        self.network.zero_grad(set_to_none=True)
        try:
            for generator in self.make_loss_generators(batch, count):
                for loss in generator:
                    loss.backward()  # type: ignore[no-untyped-call]
        except (RuntimeError, MemoryError) as error:
            if not is_memory_error(error):
                raise
            return False
        finally:
            self.network.zero_grad(set_to_none=True)
        return True


def has_overflow(loss: float, norm: float) -> bool:
    """Whether the gradient overflowed although the loss is finite."""
    return math.isfinite(loss) and not math.isfinite(norm)
