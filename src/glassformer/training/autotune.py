"""What is left open is measured once, before the first step, on a copy of the network."""

import contextlib
import copy
import math
import time
from dataclasses import dataclass, replace

import torch

from glassformer.core.errors import GlassError, catch_memory_errors, is_memory_error
from glassformer.core.reporter import Reporter
from glassformer.core.world import World
from glassformer.models.network import Network
from glassformer.registry import model_name
from glassformer.tasks.task import Batches, Task
from glassformer.training.recovery import pieces_that_fit
from glassformer.training.settings import MINUTES, TrainingSettings
from glassformer.training.step import Step

PROBE = 0.02  # of a budget in minutes, that trying precisions may take
EVALUATION = 0.01  # of a budget in minutes, that one evaluation may take
TRIAL = 4  # the part of an evaluation that tells how long it takes: one in so many


class CannotRunError(GlassError):
    """This machine has no way to compute a step in a precision."""


@dataclass(frozen=True)
class Autotune:
    """Measures steps and evaluations of a network on a task, and decides what is left open."""

    network: Network
    task: Task
    batches: Batches
    reporter: Reporter
    world: World = World()  # noqa: RUF009

    def decide(self, settings: TrainingSettings) -> TrainingSettings:
        """Threads, steps, pieces of a batch, precision, and how much is evaluated."""
        settings = replace(settings, threads=settings.threads or torch.get_num_threads())
        if settings.steps is None and settings.epochs is not None:
            steps = math.ceil(settings.epochs * self.batches.per_epoch)
            settings = replace(settings, steps=max(steps, 1), epochs=None)
        if settings.steps is None:
            settings = replace(settings, minutes=settings.minutes or MINUTES)
        found = None
        while found is None:
            with catch_memory_errors():
                found = self.choose_precision(settings)
            if found is None:
                settings = self.choose_pieces(settings)
        return self.world.agree(self.choose_eval_limit(found))

    def choose_pieces(self, settings: TrainingSettings) -> TrainingSettings:
        """As many pieces of a batch as it takes to fit into memory."""
        trial, random = replace(settings, precision="float32"), torch.get_rng_state()
        step = Step(copy.deepcopy(self.network), self.task.objective, trial)
        batch, left = self.batches.at(0), "there is no checkpoint"
        pieces = pieces_that_fit(step, self.task, batch, self.reporter, left)
        torch.set_rng_state(random)
        return replace(settings, accumulate=pieces)

    def choose_precision(self, settings: TrainingSettings) -> TrainingSettings:
        """The faster one, where none was asked for; one that cannot run is an error before
        anything is written."""
        if settings.precision != "auto":
            if settings.shrink_on_oom or settings.minutes or settings.precision != "float32":
                self.pace(settings, rounds=1)  # what does not fit into memory is found here
            return settings
        single = replace(settings, precision="float32")
        ratio = bfloat16_ratio(self.network)
        if ratio > 1:
            if settings.shrink_on_oom or settings.minutes:
                self.pace(single, rounds=1)
            return single
        times = {"float32": self.pace(single, rounds=1)}
        allowed = 60 * PROBE * settings.minutes if settings.minutes else math.inf
        rounds = 2 if 4 * times["float32"] < allowed else 1
        half = replace(settings, precision="bfloat16")
        with contextlib.suppress(CannotRunError):
            times["bfloat16"] = self.pace(half, rounds=rounds)
        if rounds > 1:  # the first was slow because it was the first
            times["float32"] = self.pace(single, rounds=rounds)
        found = half if times.get("bfloat16", math.inf) < 0.9 * times["float32"] else single
        shown = ", ".join(f"{seconds:.3f} s in {name}" for name, seconds in times.items())
        self.reporter(f"precision {found.precision}: a step takes {shown}")
        return found

    def pace(self, settings: TrainingSettings, rounds: int) -> float:
        """Seconds of the fastest of some steps, taken by a copy."""
        random = torch.get_rng_state()
        step = Step(copy.deepcopy(self.network).train(), self.task.objective, settings)
        best = math.inf
        try:
            for i in range(rounds):
                start = time.perf_counter()
                step(self.batches.at(i), 0.0, i)
                best = min(best, time.perf_counter() - start)
        except RuntimeError as error:
            if is_memory_error(error) or settings.precision == "float32":
                raise
            what = " ".join(str(error).split())[:100]
            raise CannotRunError(
                f"{model_name(self.network)} cannot be trained in {settings.precision} on this "
                f"machine, but in float32 (--set train.precision=float32): {what}"
            ) from None
        finally:
            torch.set_rng_state(random)
        return best

    def choose_eval_limit(self, settings: TrainingSettings) -> TrainingSettings:
        """With a deadline: as much as can be evaluated in a hundredth of it."""
        if settings.minutes is None or settings.eval_limit is not None:
            return settings
        full = self.task.spec.eval_limit
        trial = max(full // TRIAL, 1)
        start = time.perf_counter()
        self.task.evaluate(self.network.eval(), trial)
        seconds = (time.perf_counter() - start) / trial
        fits = int(60 * EVALUATION * settings.minutes / max(seconds, 1e-9))
        return replace(settings, eval_limit=min(max(fits, trial), full))


def bfloat16_ratio(network: Network, size: int = 512) -> float:
    """How long a product in bfloat16 takes, as a share of one in float32.

    On many CPUs it takes far longer: then a step in it, which may take a minute, is not even
    tried.
    """
    if network.device.type != "cpu":
        return 0.0
    times: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(size, size, dtype=dtype)
        for _ in range(3):  # the first makes the kernel ready
            start = time.perf_counter()
            x @ x
            times[dtype] = min(times.get(dtype, math.inf), time.perf_counter() - start)
    return times[torch.bfloat16] / times[torch.float32]
