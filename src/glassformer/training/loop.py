"""The loop: one step after the other, watched, judged and saved."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import checkpoint, weights
from glassformer.checkpoint import BEST, LAST
from glassformer.errors import GlassError
from glassformer.folder import read_json
from glassformer.live import Live, Silent
from glassformer.nn.block import checkpointed
from glassformer.tasks.task import Batch, Task
from glassformer.training.optimiser import (
    Average,
    make_optimiser,
    optimiser_tensors,
    restore_optimiser,
)
from glassformer.training.run import Run
from glassformer.training.settings import Training, rate_at
from glassformer.training.show import describe

TENSORS, STATE = "training.safetensors", "training.json"
MINUTES = 5.0  # the budget where none is given


@dataclass
class State:
    """What a run must remember, beside weights, to go on as if it had not stopped."""

    step: int = 0
    best: float | None = None
    waited: int = 0  # evaluations since the best
    seconds: float = 0.0


class Trainer:
    """A network, a task, and how the one learns the other."""

    def __init__(
        self, network: nn.Module, task: Task, settings: Training, run: Run, live: Live
    ) -> None:
        self.device = torch.device(settings.device)
        self.network, self.task, self.settings = network.to(self.device), task, settings
        self.run, self.live, self.state = run, live, State()
        if settings.checkpointing:
            checkpointed(self.network)
        self.optimiser = make_optimiser(self.network, settings)
        self.average = Average(self.network, settings.average) if settings.average else None
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=settings.precision == "float16"
        )  # type: ignore[no-untyped-call,unused-ignore]
        self.stopping = False

    @property
    def judged(self) -> nn.Module:
        """The network whose figures count and which is kept as best."""
        return self.average.network if self.average else self.network

    def train(self) -> dict[str, Any]:
        """Run to the end of the budget; give back the figures of the best weights."""
        steps = self.settings.steps or 1
        every = self.settings.evaluate_every or max(steps // 10, 1)
        save = self.settings.save_every or every
        self.network.train()
        with self.interruptible():
            start, before = time.monotonic(), self.state.seconds
            while self.state.step < steps and not self.stopping:
                loss, norm, count = self.step()
                self.state.seconds = before + time.monotonic() - start
                done = self.state.step
                self.report(loss, norm, count, steps)
                if done % every == 0 or done == steps:
                    self.judge()
                    if self.settings.patience and self.state.waited >= self.settings.patience:
                        self.live(f"no better figure in {self.state.waited} evaluations: done")
                        break
                if done % save == 0 and done < steps:
                    self.save()
            self.save()
        if self.stopping:
            self.live(f"stopped and saved; go on with: glass resume {self.run.path}")
            return {}
        return self.conclude()

    def step(self) -> tuple[float, float, int]:
        """One update; its loss, the norm of its gradient and how many predictions it learnt from.

        Every batch of the step is weighed by its predictions, so that several small ones are the
        same as one large one.
        """
        settings, at = self.settings, self.state.step
        rate = rate_at(at, settings.steps or 1, settings)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        batches = [
            self.task.batch(at * settings.accumulate + i) for i in range(settings.accumulate)
        ]
        count = sum(map(self.task.count, batches))
        total = 0.0
        for batch in batches:
            loss = self.loss(batch)
            self.scaler.scale(loss / count).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        self.scaler.unscale_(self.optimiser)
        norm = float(nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip))
        if not math.isfinite(norm) and not self.scaler.is_enabled():
            raise GlassError(
                f"step {at + 1}: the loss or its gradient is not finite; the last checkpoint is "
                f"whole: try a smaller rate (--set train.rate={settings.rate / 3:.1e})"
            )
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        self.state.step += 1
        if self.average:
            self.average.update(self.network, self.state.step)
        return total / count, norm, count

    def loss(self, batch: Batch) -> Tensor:
        there = {name: value.to(self.device) for name, value in batch.items()}
        half = self.settings.precision in ("bfloat16", "float16")
        dtype = getattr(torch, self.settings.precision) if half else None
        with torch.autocast(self.device.type, dtype=dtype, enabled=half):
            return self.task.loss(self.network, there, self.settings.smoothing)

    def report(self, loss: float, norm: float, count: int, steps: int) -> None:
        state, rate = self.state, self.optimiser.param_groups[0]["lr"]
        pace = state.seconds / state.step
        left = pace * (steps - state.step)
        speed = f"{count / pace:,.0f} {self.task.unit}"
        line = describe(state.step, steps, loss, rate, norm, speed, left)
        best = "" if state.best is None else f"  {self.task.figure} {state.best:.4g}"
        self.live.line(line + best)
        if state.step % max(steps // 200, 1) == 0:
            self.run.note(step=state.step, loss=loss, rate=rate, norm=norm, count=count)

    def conclude(self) -> dict[str, Any]:
        """Measure the best weights on all that was kept for validation, or much of it."""
        network, _, _ = checkpoint.load(self.run.path / BEST)
        figures = self.task.evaluate(network.to(self.device), self.task.whole)
        seconds = round(self.state.seconds, 1)
        self.run.note(step=self.state.step, seconds=seconds, best=True, **figures)
        return figures

    def judge(self) -> None:
        """Measure on the same part of the validation text each time; keep the best weights."""
        self.judged.eval()
        figures = self.task.evaluate(self.judged, self.task.peek)
        text = self.task.sample(self.judged)
        self.network.train()
        figure, sign = figures[self.task.figure], 1 if self.task.higher else -1
        better = self.state.best is None or sign * figure > sign * self.state.best
        self.state.waited = 0 if better else self.state.waited + 1
        if better:
            self.state.best = figure
            self.keep(BEST)
        self.run.note(step=self.state.step, seconds=round(self.state.seconds, 1), **figures)
        shown = "  ".join(f"{k} {v:.4g}" for k, v in figures.items() if isinstance(v, float))
        line = f"step {self.state.step:,}: {shown}{'  (best)' if better else ''}"
        self.live(line)
        self.run.log(f"{line}\n{text}\n")
        if self.live.terminal:
            self.live(f"  {text[:300]!r}")

    def keep(self, name: str, **more: Any) -> None:
        network = self.judged if name == BEST else self.network
        facts = {"name": self.task.name, **self.task.facts}
        self.run.save(name, network, self.task.tokenizer, facts, **more)

    # --- saving and going on ----------------------------------------------------------------------

    def save(self) -> None:
        def more(folder: Path) -> None:
            tensors = {f"optimiser.{k}": v for k, v in optimiser_tensors(self.optimiser).items()}
            tensors["random"] = torch.get_rng_state()
            if self.average:
                mean = self.average.network.state_dict()
                tensors |= {f"average.{k}": v for k, v in mean.items()}
            weights.write(tensors, folder / TENSORS)
            (folder / STATE).write_text(json.dumps(asdict(self.state)), encoding="utf-8")

        self.keep(LAST, more=more)

    def restore(self) -> None:
        """Take up the state in `last/`, whose weights the network already has."""
        folder = self.run.path / LAST
        tensors = weights.read(folder / TENSORS)
        self.state = State(**read_json(folder / STATE))
        torch.set_rng_state(tensors.pop("random"))
        parts: dict[str, dict[str, Tensor]] = {"optimiser": {}, "average": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
        restore_optimiser(self.optimiser, parts["optimiser"])
        if self.average:
            self.average.network.load_state_dict(parts["average"])

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """The first Ctrl-C (or SIGTERM) lets the step finish and saves; the second leaves."""

        def stop(number: int, _frame: object) -> None:
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True
            self.live("stopping after this step; once more to leave at once")

        kinds = (signal.SIGINT, signal.SIGTERM)
        try:
            before = [signal.signal(kind, stop) for kind in kinds]
        except ValueError:  # not the main thread, where no signal arrives
            before = []
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=False):
                signal.signal(kind, handler)


def decide(network: nn.Module, task: Task, settings: Training, run: Run, tell: Live) -> Training:
    """Measure what is left open, once, before the first step: device, precision, steps."""
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = replace(settings, device=device, threads=settings.threads or torch.get_num_threads())
    if settings.steps is None and settings.epochs is not None:
        steps = math.ceil(settings.epochs * task.epoch() / settings.accumulate)
        settings = replace(settings, steps=max(steps, 1), epochs=None)

    trial = replace(settings, steps=10, minutes=None, precision="float32")
    if settings.precision == "auto":
        times = {
            name: pace(network, task, replace(trial, precision=name), run, rounds=2)
            for name in ("float32", "bfloat16")
        }
        half = times["bfloat16"] < 0.9 * times["float32"]
        settings = replace(settings, precision="bfloat16" if half else "float32")
        shown = ", ".join(f"{seconds:.3f} s in {name}" for name, seconds in times.items())
        tell(f"precision {settings.precision}: a step takes {shown}")
    if settings.steps is None:
        seconds = pace(network, task, replace(trial, precision=settings.precision), run)
        budget = (settings.minutes or MINUTES) * 60 * 0.9  # the rest is for evaluation
        settings = replace(settings, steps=max(round(budget / seconds), 20), minutes=None)
    return settings


def pace(network: nn.Module, task: Task, settings: Training, run: Run, rounds: int = 6) -> float:
    """Seconds a step, measured on steps whose result is thrown away."""
    state = {name: value.clone() for name, value in network.state_dict().items()}
    random = torch.get_rng_state()
    trainer = Trainer(network, task, settings, run, Silent())
    network.train()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        trainer.step()
        times.append(time.perf_counter() - start)
    network.load_state_dict(state)
    torch.set_rng_state(random)
    fastest = sorted(times)[: max(rounds * 2 // 3, 1)]
    return sum(fastest) / len(fastest)
