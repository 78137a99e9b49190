"""One update: from a batch to gradients, and from there to better weights."""

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
from glassformer.nn.block import checkpointed
from glassformer.tasks.task import Batch, Objective
from glassformer.training.optimizers import EMA, find_optimizer
from glassformer.training.settings import TrainingSettings

ALONE = World()
Losses = Generator[Tensor, None, None]


@dataclass
class State:
    """What a run must remember, beside weights, to go on as if it had not stopped."""

    step: int = 0
    best: float | None = None
    evals: int = 0
    evals_since_best: int = 0
    evaluated_at: int = -1  # the step of the last evaluation
    evaluated: float = 0.0  # seconds of evaluations
    setup: float = 0.0  # seconds before the first step
    seconds: float = 0.0  # since then
    predictions: int = 0  # that it was trained on
    skipped: int = 0  # steps in a row that were not taken: their gradient was not finite
    scale: float = 1.0  # of the learning rate
    changed: dict[str, Any] = field(default_factory=dict)  # settings that changed on the way

    def __post_init__(self) -> None:
        counts = "step evals evals_since_best evaluated setup seconds predictions skipped"
        for name in counts.split():
            if not 0 <= getattr(self, name) < math.inf:
                raise GlassError(f"{name} must not be below 0, not {getattr(self, name)}")
        if not 0 < self.scale <= 1:
            raise GlassError(f"scale must be above 0 and at most 1, not {self.scale}")


@dataclass(frozen=True)
class StepResult:
    loss: float
    norm: float  # of the gradient
    count: int  # predictions
    lr: float
    non_finite: str | None = None  # what is not finite: then the weights stay as they are


class Step:
    """A network, its objective and its optimizers: calling it takes one step."""

    def __init__(
        self,
        network: Network,
        objective: Objective,
        settings: TrainingSettings,
        world: World = ALONE,
    ) -> None:
        self.device = torch.device(settings.device)
        self.network, self.objective = network.to(self.device), objective
        self.settings, self.world = settings, world
        if settings.checkpointing:
            checkpointed(self.network)
        make = find_optimizer(settings.optimizer).make
        self.optimizers = {group: make(network, settings, group) for group in objective.groups}
        self.ema = EMA(self.network, settings.ema_decay) if settings.ema_decay else None
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=settings.precision == "float16"
        )  # type: ignore[no-untyped-call,unused-ignore]

    def __call__(self, batch: Batch, lr: float, step: int) -> StepResult:
        """Update the weights by the gradient of a batch, at a learning rate.

        Nothing is updated where the loss or the gradient is not finite.
        """
        losses, norms, count = [], [], 0
        pieces = self.pieces(batch)
        for optimizer in self.optimizers.values():
            for table in optimizer.param_groups:
                table["lr"] = lr * table["scale"]
            loss, norm, count = self.backward(batch, pieces, optimizer)
            while has_overflow(loss, norm) and self.lower_loss_scale(optimizer):
                pieces = self.pieces(batch)
                loss, norm, count = self.backward(batch, pieces, optimizer)
            if wrong := self.non_finite(loss, norm):
                self.scaler.update()
                self.network.zero_grad(set_to_none=True)
                return StepResult(loss, norm, count, lr, wrong)
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

    def pieces(self, batch: Batch, pieces: int | None = None) -> list[Losses]:
        """The losses of each piece of a batch, for one group of parameters after the other.

        The batch is read in pieces, each weighted by its predictions, so that the result is that
        of the whole.
        """
        parts = split_batch(self.world.shard(batch), pieces or self.settings.accumulate)
        return [self.losses(part) for part in parts]

    def losses(self, batch: Batch) -> Losses:
        batch = {name: value.to(self.device) for name, value in batch.items()}
        half = self.settings.precision in ("bfloat16", "float16")
        dtype = getattr(torch, self.settings.precision) if half else None
        losses = self.objective.losses(
            self.network, batch, label_smoothing=self.settings.label_smoothing
        )
        while True:
            with torch.autocast(self.device.type, dtype=dtype, enabled=half):
                loss = next(losses, None)
            if loss is None:
                return
            yield loss

    def backward(
        self,
        batch: Batch,
        pieces: list[Losses],
        optimizer: torch.optim.Optimizer,
    ) -> tuple[float, float, int]:
        """The mean loss of a batch, the norm of its gradient, and how many predictions it has."""
        count, total = self.world.add(self.objective.count(batch)), 0.0
        for piece in pieces:
            loss = next(piece)
            self.scaler.scale(loss / count).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            if optimizer is [*self.optimizers.values()][-1]:
                piece.close()  # and with it lets go of what it computed
        self.scaler.unscale_(optimizer)
        gradients = [p.grad for p in self.parameters_with_gradients(optimizer) if p.grad is not None]
        return total / count, float(nn.utils.get_total_norm(gradients)), count

    def parameters_with_gradients(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        """The parameters of an optimizer that have a gradient, in the order of the network."""
        ours = {id(p) for table in optimizer.param_groups for p in table["params"]}
        return [p for p in self.network.parameters() if id(p) in ours and p.grad is not None]

    def lower_loss_scale(self, optimizer: torch.optim.Optimizer) -> bool:
        """Halve what a loss in float16 is multiplied with, after a gradient did not fit; false
        where that cannot be the reason, because there is no such scale or it is 1 already, or
        where the batch cannot be read again because a group was updated on it."""
        if not self.scaler.is_enabled() or self.scaler.get_scale() <= 1:
            return False
        if optimizer is not next(iter(self.optimizers.values())):
            return False
        self.scaler.update(max(self.scaler.get_scale() / 2, 1.0))
        self.network.zero_grad(set_to_none=True)
        return True

    def non_finite(self, loss: float, norm: float) -> str | None:
        """What is infinite or not a number, if anything is: where it began."""
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

    def fits(self, batch: Batch, pieces: int) -> bool:
        """Whether the gradients of a batch in so many pieces fit into memory."""
        self.network.zero_grad(set_to_none=True)
        try:
            for piece in self.pieces(batch, pieces):
                for loss in piece:
                    loss.backward()  # type: ignore[no-untyped-call]
        except (RuntimeError, MemoryError) as error:
            if not is_memory_error(error):
                raise
            return False
        finally:
            self.network.zero_grad(set_to_none=True)
        return True


def has_overflow(loss: float, norm: float) -> bool:
    return math.isfinite(loss) and not math.isfinite(norm)
