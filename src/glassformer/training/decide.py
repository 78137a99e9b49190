"""What is left open is measured once, before the first step: threads, precision, steps."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch
from torch import nn

from glassformer.live import Live, Silent
from glassformer.tasks.task import Task
from glassformer.training.loop import RESERVED, Trainer
from glassformer.training.memory import is_memory_error
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

    try:
        return measure(network, task, settings, run, tell)
    except (RuntimeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
        trial = replace(settings, precision="float32")
        roomy = Trainer(network, task, trial, run, tell).with_room()
        settings = replace(settings, accumulate=roomy.accumulate)
        return decide(network, task, settings, run, tell)


def measure(
    network: nn.Module, task: Task, settings: Training, run: Run, tell: Live
) -> tuple[Training, int]:
    trial = replace(settings, precision="float32")
    if settings.fit:
        pace(network, task, trial, run, rounds=1)
    if settings.precision == "auto":
        times = {
            name: pace(network, task, replace(trial, precision=name), run, rounds=2)
            for name in ("float32", "bfloat16")
        }
        half = times["bfloat16"] < 0.9 * times["float32"]
        settings = replace(settings, precision="bfloat16" if half else "float32")
        shown = ", ".join(f"{seconds:.3f} s in {name}" for name, seconds in times.items())
        tell(f"precision {settings.precision}: a step takes {shown}")
    if settings.steps is not None:
        return settings, settings.steps
    settings = replace(settings, minutes=settings.minutes or MINUTES)
    seconds = pace(network, task, replace(trial, precision=settings.precision), run)
    budget = (settings.minutes or MINUTES) * 60 * (1 - RESERVED)
    return settings, max(round(budget / seconds), 1)


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
    finally:
        network.load_state_dict(state)
        torch.set_rng_state(random)
    fastest = sorted(times)[: max(rounds * 2 // 3, 1)]
    return sum(fastest) / len(fastest)
