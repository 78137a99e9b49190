"""Choose the settings left unset, once before the first step, by timing trial steps."""

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
from glassformer.training.recovery import find_micro_batch_count
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings
from glassformer.training.step import Step

TRIAL_FRACTION = 0.02  # maximum fraction of a time budget for timing the precisions
EVAL_FRACTION = 0.01  # maximum fraction of a time budget for one evaluation
EVAL_DIVISOR = 4  # an evaluation is timed on 1 / EVAL_DIVISOR of its full size


class UnsupportedPrecisionError(GlassError):
    """This machine cannot train in the requested precision."""


@dataclass(frozen=True)
class Autotune:
    """Times steps and evaluations of a network on a task, to choose the settings left unset."""

    network: Network
    task: Task
    batches: Batches
    reporter: Reporter
    world: World = World()  # noqa: RUF009

    def decide(self, settings: TrainingSettings) -> TrainingSettings:
        """Choose the threads, steps, micro-batches, precision and evaluation size."""
        settings = replace(settings, threads=settings.threads or torch.get_num_threads())
        if settings.steps is None and settings.epochs is not None:
            steps = math.ceil(settings.epochs * self.batches.per_epoch)
            settings = replace(settings, steps=max(steps, 1), epochs=None)
        if settings.steps is None:
            settings = replace(settings, minutes=settings.minutes or DEFAULT_MINUTES)
        decided = None
        while decided is None:
            with catch_memory_errors():
                decided = self.choose_precision(settings)
            if decided is None:
                settings = self.choose_micro_batches(settings)
        return self.world.broadcast(self.choose_eval_limit(decided))

    def choose_micro_batches(self, settings: TrainingSettings) -> TrainingSettings:
        """Choose how many micro-batches are needed for a batch to fit in memory."""
        trial = replace(settings, precision="float32")
        rng_state = torch.get_rng_state()
        step = Step(copy.deepcopy(self.network), self.task.objective, trial)
        batch = self.batches.at(0)
        checkpoint = "there is no checkpoint yet"
        count = find_micro_batch_count(step, self.task, batch, self.reporter, checkpoint)
        torch.set_rng_state(rng_state)
        return replace(settings, accumulate=count)

    def choose_precision(self, settings: TrainingSettings) -> TrainingSettings:
        """Choose the faster precision if `settings.precision` is "auto".

        Raises UnsupportedPrecisionError, before anything is written, if the machine
        does not support the requested one.
        """
        if settings.precision != "auto":
            if settings.shrink_on_oom or settings.minutes or settings.precision != "float32":
                self.time_step(settings, rounds=1)  # fails here if memory runs out
            return settings
        single = replace(settings, precision="float32")
        ratio = bfloat16_ratio(self.network)
        if ratio > 1:
            if settings.shrink_on_oom or settings.minutes:
                self.time_step(single, rounds=1)
            return single
        times = {"float32": self.time_step(single, rounds=1)}
        max_seconds = 60 * TRIAL_FRACTION * settings.minutes if settings.minutes else math.inf
        rounds = 2 if 4 * times["float32"] < max_seconds else 1
        half = replace(settings, precision="bfloat16")
        with contextlib.suppress(UnsupportedPrecisionError):
            times["bfloat16"] = self.time_step(half, rounds=rounds)
        if rounds > 1:  # the first timing includes one-time costs
            times["float32"] = self.time_step(single, rounds=rounds)
        faster = half if times.get("bfloat16", math.inf) < 0.9 * times["float32"] else single
        timings = ", ".join(f"{seconds:.3f} s in {name}" for name, seconds in times.items())
        self.reporter(f"precision {faster.precision}: a step takes {timings}")
        return faster

    def time_step(self, settings: TrainingSettings, rounds: int) -> float:
        """Return how many seconds the fastest of `rounds` steps of a copied network takes."""
        rng_state = torch.get_rng_state()
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
            reason = " ".join(str(error).split())[:100]
            raise UnsupportedPrecisionError(
                f"{model_name(self.network)} cannot be trained in {settings.precision} on this "
                f"machine; use --set train.precision=float32 ({reason})"
            ) from None
        finally:
            torch.set_rng_state(rng_state)
        return best

    def choose_eval_limit(self, settings: TrainingSettings) -> TrainingSettings:
        """With a deadline, limit an evaluation to what takes about 1% of the time budget."""
        if settings.minutes is None or settings.eval_limit is not None:
            return settings
        full = self.task.spec.eval_limit
        trial = max(full // EVAL_DIVISOR, 1)
        start = time.perf_counter()
        self.task.evaluate(self.network.eval(), trial)
        seconds = (time.perf_counter() - start) / trial
        affordable = int(60 * EVAL_FRACTION * settings.minutes / max(seconds, 1e-9))
        return replace(settings, eval_limit=min(max(affordable, trial), full))


def bfloat16_ratio(network: Network, size: int = 512) -> float:
    """Return the time of a matrix product in bfloat16 divided by the time in float32.

    On CPUs without bfloat16 instructions the ratio is far above 1, and a trial step could
    take a minute.
    """
    if network.device.type != "cpu":
        return 0.0
    times: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(size, size, dtype=dtype)
        for _ in range(3):  # the first round includes the kernel's one-time setup
            start = time.perf_counter()
            x @ x
            times[dtype] = min(times.get(dtype, math.inf), time.perf_counter() - start)
    return times[torch.bfloat16] / times[torch.float32]
