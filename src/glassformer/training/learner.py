"""One update: from a batch to a gradient, and from there to better weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.batches import pieces_of
from glassformer.errors import GlassError, is_memory_error
from glassformer.nn.block import checkpointed
from glassformer.tasks.task import Batch, Task
from glassformer.training.optimiser import Average, make_optimiser
from glassformer.training.settings import Training, rate_at


@dataclass
class State:
    """What a run must remember, beside weights, to go on as if it had not stopped."""

    step: int = 0
    steps: int = 1  # to go through; with a budget in minutes the clock may change it
    best: float | None = None
    waited: int = 0  # evaluations since the best
    seconds: float = 0.0
    predictions: int = 0  # that it learnt from
    before: float = 0.0  # seconds that counting took, before the first step
    skipped: int = 0  # steps in a row that were not taken: their gradient was not finite
    scale: float = 1.0  # of the rate
    changed: dict[str, Any] = field(default_factory=dict)  # settings that changed on the way

    def __post_init__(self) -> None:
        for name in ("step", "steps", "waited", "seconds", "predictions", "before", "skipped"):
            if not 0 <= getattr(self, name) < math.inf:
                raise GlassError(f"{name} must not be below 0, not {getattr(self, name)}")
        if not 0 < self.scale <= 1:
            raise GlassError(f"scale must be above 0 and at most 1, not {self.scale}")


class Learner:
    """A network, a task, and how the one learns the other."""

    def __init__(self, network: nn.Module, task: Task, settings: Training) -> None:
        self.device = torch.device(settings.device)
        self.network, self.task, self.settings = network.to(self.device), task, settings
        self.state = State()
        if settings.checkpointing:
            checkpointed(self.network)
        self.optimiser = make_optimiser(self.network, settings)
        self.average = Average(self.network, settings.average) if settings.average else None
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=settings.precision == "float16"
        )  # type: ignore[no-untyped-call,unused-ignore]

    def step(self) -> tuple[float, float, int]:
        """One update; its loss, the norm of its gradient and how many predictions it learnt from.

        It is not taken where the loss or the gradient is not finite.
        """
        settings, at = self.settings, self.state.step
        rate = rate_at(at, self.state.steps, settings) * self.state.scale
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["scale"]
        batch = self.task.batch(at)
        loss, norm, count = self.backward(batch)
        while math.isfinite(loss) and not math.isfinite(norm) and self.lower_loss_scale():
            loss, norm, count = self.backward(batch)
        wrong = self.not_finite(loss, norm)
        if wrong is None:
            learning = [p for p in self.network.parameters() if p.grad is not None]
            nn.utils.clip_grads_with_norm_(learning, settings.clip, torch.tensor(norm))
            self.scaler.step(self.optimiser)
            self.state.skipped = 0
            self.state.predictions += count
        else:
            self.skip(wrong)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        self.state.step += 1
        if self.average and wrong is None:
            self.average.update(self.network, self.state.step)
        return loss, norm, count

    def backward(self, batch: Batch) -> tuple[float, float, int]:
        """The loss of a batch, the norm of its gradient and how many predictions it asks for."""
        loss, count = self.gradients(batch, self.settings.accumulate)
        self.scaler.unscale_(self.optimiser)
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        return loss, float(nn.utils.get_total_norm(gradients)), count

    def lower_loss_scale(self) -> bool:
        """Halve what a loss in float16 is multiplied with, after a gradient did not fit; false
        where that cannot be the reason, because there is no such scale or it is 1 already."""
        if not self.scaler.is_enabled() or self.scaler.get_scale() <= 1:
            return False
        self.scaler.update(max(self.scaler.get_scale() / 2, 1.0))
        self.optimiser.zero_grad(set_to_none=True)
        return True

    def skip(self, wrong: str) -> None:
        """Do not take a step, because something is not finite."""
        self.state.skipped += 1

    def gradients(self, batch: Batch, pieces: int) -> tuple[float, int]:
        """The mean loss of a batch and its number of predictions, the gradient being added up.

        The batch is read in pieces, each weighed by its predictions, so that the result is that of
        the whole.
        """
        count, total = self.task.count(batch), 0.0
        for piece in pieces_of(batch, pieces):
            loss = self.loss(piece)
            self.scaler.scale(loss / count).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total / count, count

    def loss(self, batch: Batch) -> Tensor:
        there = {name: value.to(self.device) for name, value in batch.items()}
        half = self.settings.precision in ("bfloat16", "float16")
        dtype = getattr(torch, self.settings.precision) if half else None
        with torch.autocast(self.device.type, dtype=dtype, enabled=half):
            return self.task.loss(self.network, there, self.settings.smoothing)

    def not_finite(self, loss: float, norm: float) -> str | None:
        """What is infinite or no number, if anything is: where it began."""
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
        self.optimiser.zero_grad(set_to_none=True)
        try:
            self.gradients(batch, pieces)
        except (RuntimeError, MemoryError) as error:
            if not is_memory_error(error):
                raise
            return False
        finally:
            self.optimiser.zero_grad(set_to_none=True)
        return True
