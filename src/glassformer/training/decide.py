"""What is left open is measured once, before the first step: threads, precision, steps."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace

import torch
from torch import nn

from glassformer.errors import GlassError, is_memory_error
from glassformer.live import Live, Silent
from glassformer.models import name_of
from glassformer.tasks.task import Task
from glassformer.training.loop import RESERVED, Trainer
from glassformer.training.run import Run
from glassformer.training.settings import MINUTES, Training


def decide(
    network: nn.Module, task: Task, settings: Training, run: Run, tell: Live
) -> tuple[Training, int]:
    """Measure what is left open, before the first step; give back how many steps that makes."""
    settings = replace(settings, threads=settings.threads or torch.get_num_threads())
    if settings.steps is None and settings.epochs is not None:
        steps = math.ceil(settings.epochs * task.epoch())
        settings = replace(settings, steps=max(steps, 1), epochs=None)
    while (found := measure_or_none(network, task, settings, run, tell)) is None:
        trial = replace(settings, precision="float32")
        roomy = Trainer(network, task, trial, run, tell).with_room()
        settings = replace(settings, accumulate=roomy.accumulate)
    return found


def measure_or_none(
    network: nn.Module, task: Task, settings: Training, run: Run, tell: Live
) -> tuple[Training, int] | None:
    """What was measured; None where memory ran out (see `Trainer.step_or_none`)."""
    try:
        return measure(network, task, settings, run, tell)
    except (RuntimeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
        return None


def measure(
    network: nn.Module, task: Task, settings: Training, run: Run, tell: Live
) -> tuple[Training, int]:
    trial = replace(settings, precision="float32")
    if settings.fit:
        pace(network, task, trial, run, rounds=1)
    if settings.precision == "auto":
        times = {"float32": pace(network, task, trial, run, rounds=2)}
        if bfloat16_may_pay(network):
            half = replace(trial, precision="bfloat16")
            with contextlib.suppress(CannotRunError):
                times["bfloat16"] = pace(network, task, half, run, rounds=2)
        faster = times.get("bfloat16", math.inf) < 0.9 * times["float32"]
        settings = replace(settings, precision="bfloat16" if faster else "float32")
        shown = ", ".join(f"{seconds:.3f} s in {name}" for name, seconds in times.items())
        tell(f"precision {settings.precision}: a step takes {shown}")
    elif settings.precision != "float32":  # what cannot run is found before anything is written
        pace(network, task, settings, run, rounds=1)
    if settings.steps is not None:
        return settings, settings.steps
    settings = replace(settings, minutes=settings.minutes or MINUTES)
    seconds = pace(network, task, replace(trial, precision=settings.precision), run)
    budget = (settings.minutes or MINUTES) * 60 * (1 - RESERVED)
    return settings, max(round(budget / seconds), 1)


class CannotRunError(GlassError):
    """This machine has no way to compute a step in a precision."""


def bfloat16_may_pay(network: nn.Module, size: int = 512) -> bool:
    """Whether products in bfloat16 are not far slower here than in float32, as on many CPUs: then
    a step in it, which may take a minute, is not even tried."""
    device = next(network.parameters()).device
    if device.type != "cpu":
        return True
    times: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(size, size, dtype=dtype)
        for _ in range(3):  # the first makes the kernel ready
            start = time.perf_counter()
            x @ x
            times[dtype] = min(times.get(dtype, math.inf), time.perf_counter() - start)
    return times[torch.bfloat16] < 2 * times[torch.float32]


def pace(network: nn.Module, task: Task, settings: Training, run: Run, rounds: int = 6) -> float:
    """Seconds a step, measured on steps whose result is thrown away."""
    state = {name: value.clone() for name, value in network.state_dict().items()}
    random = torch.get_rng_state()
    trainer = Trainer(network, task, settings, run, Silent())
    trainer.state.steps = rounds
    network.train()
    times = []
    try:
        for _ in range(rounds):
            start = time.perf_counter()
            trainer.step()
            times.append(time.perf_counter() - start)
    except RuntimeError as error:
        if is_memory_error(error) or settings.precision == "float32":
            raise
        what = " ".join(str(error).split())[:100]
        raise CannotRunError(
            f"{name_of(network)} cannot be trained in {settings.precision} on this machine, but in "
            f"float32 (--set train.precision=float32): {what}"
        ) from None
    finally:
        network.load_state_dict(state)
        torch.set_rng_state(random)
    fastest = sorted(times)[: max(rounds * 2 // 3, 1)]
    return sum(fastest) / len(fastest)
