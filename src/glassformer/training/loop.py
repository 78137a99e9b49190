"""The loop: one step after the other, watched, judged and saved."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import checkpoint, weights
from glassformer.checkpoint import BEST, LAST, Adapter
from glassformer.data.batches import pieces_of
from glassformer.errors import GlassError
from glassformer.folder import read_json
from glassformer.live import Live
from glassformer.nn.block import checkpointed
from glassformer.tasks.task import Batch, Task, is_gain
from glassformer.training.interrupt import interruptible
from glassformer.training.memory import TooLongError, is_memory_error, shorter
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
PATIENCE = 3  # steps in a row whose gradient is not finite
LOWER = 0.3  # of the rate, after that
RESERVED = 0.1  # of a budget in minutes, for the evaluation at the end


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


class Trainer:
    """A network, a task, and how the one learns the other."""

    def __init__(
        self, network: nn.Module, task: Task, settings: Training, run: Run, live: Live
    ) -> None:
        self.device = torch.device(settings.device)
        self.network, self.task, self.settings = network.to(self.device), task, settings
        self.run, self.live, self.state = run, live, State()
        self.adapter: Adapter | None = None
        self.baseline: dict[str, Any] = {}  # the figures of what only counts
        if settings.checkpointing:
            checkpointed(self.network)
        self.optimiser = make_optimiser(self.network, settings)
        self.average = Average(self.network, settings.average) if settings.average else None
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=settings.precision == "float16"
        )  # type: ignore[no-untyped-call,unused-ignore]
        self.stopping = False
        self.planned = (0, 0.0)  # the step and the seconds at which the number of steps was set

    @property
    def judged(self) -> nn.Module:
        """The network whose figures count and which is kept as best."""
        return self.average.network if self.average else self.network

    def train(self) -> dict[str, Any]:
        """Run to the end of the budget; give back the figures of the best weights."""
        with interruptible(self.stop):
            try:
                self.loop()
            except OSError as error:
                raise GlassError(f"{error}; {self.kept()}") from None
        if self.stopping:
            self.live(f"stopped and saved; go on with: glass resume {self.run.path}")
            return {}
        return self.conclude()

    def loop(self) -> None:
        start, before = time.monotonic(), self.state.seconds
        self.planned = (self.state.step, before)
        self.network.train()
        while self.state.step < self.state.steps and not self.stopping and not self.tired():
            try:
                loss, norm, count = self.step()
            except (RuntimeError, MemoryError) as error:
                if not is_memory_error(error):
                    raise
                self.make_room()
                continue
            self.state.seconds = before + time.monotonic() - start
            done = self.state.step
            if self.state.skipped >= PATIENCE:
                self.go_back()
                continue
            if self.state.skipped:
                continue
            self.report(loss, norm, count)
            self.replan()
            if self.due(self.settings.evaluate_every) or done == self.state.steps:
                self.judge()
            every = self.settings.save_every or self.settings.evaluate_every
            if self.due(every) and done < self.state.steps:
                self.save()
        if not self.state.steps:  # it learnt in one go
            self.judge()
        self.save()

    def due(self, every: int | None) -> bool:
        """Whether so many steps have passed again, or else another tenth of all."""
        done, steps = self.state.step, self.state.steps
        return done % every == 0 if every else 10 * done // steps > 10 * (done - 1) // steps

    def tired(self) -> bool:
        """Whether it learns no more."""
        waited, patience = self.state.waited, self.settings.patience
        if patience and waited >= patience:
            self.live(f"no better figure in {waited} evaluations: done")
            return True
        return False

    def replan(self) -> None:
        """With a budget in minutes: as many steps as fit into what is left, at the pace of late."""
        if self.settings.minutes is None:
            return
        budget = self.settings.minutes * 60 * (1 - RESERVED)
        step, seconds = self.planned
        if self.state.seconds - seconds < budget / 20:
            return
        pace = (self.state.seconds - seconds) / (self.state.step - step)
        left = max(budget - self.state.before - self.state.seconds, 0)
        self.state.steps = self.state.step + round(left / pace)
        self.planned = (self.state.step, self.state.seconds)

    def extend(self, steps: int | None, minutes: float | None) -> None:
        """Set another end: a number of steps in all, or so many minutes from now."""
        state = self.state
        if not state.steps:
            raise GlassError("it learnt in one go: there is nothing to go on with")
        if steps is not None and steps <= state.step:
            raise GlassError(f"{state.step:,} steps are done already: ask for more than that")
        if steps is not None:
            state.changed |= {"steps": steps, "minutes": None}
            state.steps = steps
        elif minutes is not None:
            spent = (state.before + state.seconds) / 60 / (1 - RESERVED)
            state.changed |= {"steps": None, "minutes": spent + minutes}
            left = minutes * 60 * (1 - RESERVED)
            state.steps = state.step + round(left * max(state.step, 1) / max(state.seconds, 1))
        state.waited = 0
        self.settings = replace(self.settings, **state.changed)
        self.save()

    # --- a step -----------------------------------------------------------------------------------

    def step(self) -> tuple[float, float, int]:
        """One update; its loss, the norm of its gradient and how many predictions it learnt from.

        It is not taken where the gradient is not finite.
        """
        settings, at = self.settings, self.state.step
        rate = rate_at(at, self.state.steps, settings) * self.state.scale
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["scale"]
        loss, count = self.gradients(self.task.batch(at), settings.accumulate)
        self.scaler.unscale_(self.optimiser)
        learning = [p for p in self.network.parameters() if p.grad is not None]
        norm = float(nn.utils.get_total_norm([p.grad for p in learning if p.grad is not None]))
        wrong = None if self.scaler.is_enabled() else self.not_finite(loss, norm)
        if wrong is None:
            nn.utils.clip_grads_with_norm_(learning, settings.clip, torch.tensor(norm))
            self.scaler.step(self.optimiser)
            self.scaler.update()
            self.state.skipped = 0
        else:
            self.skip(wrong)
        self.optimiser.zero_grad(set_to_none=True)
        self.state.step += 1
        if self.average and wrong is None:
            self.average.update(self.network, self.state.step)
        return loss, norm, count

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

    # --- what can go wrong ------------------------------------------------------------------------

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

    def skip(self, wrong: str) -> None:
        self.state.skipped += 1
        step = self.state.step + 1
        line = f"step {step:,} is not taken: {wrong} is not finite"
        self.live(line)
        self.run.log(line)
        self.run.note(step=step, skipped=wrong)

    def go_back(self) -> None:
        """Take up the last checkpoint with a smaller rate, once."""
        failed, rate = self.state.step, self.settings.rate * self.state.scale
        if self.state.scale < 1:
            raise GlassError(
                f"step {failed}: {PATIENCE} steps in a row were not finite, with a smaller rate "
                f"too; {self.kept()}. Try a smaller rate from the start "
                f"(--set train.rate={rate / 3:.1e}), more warm-up (--set train.warmup=0.2) or "
                "--set train.precision=float32"
            )
        self.reload()
        self.state.scale, self.state.skipped = LOWER, 0
        self.save()
        line = (
            f"{PATIENCE} steps in a row were not finite: back to step {self.state.step:,}, with "
            f"a rate of {rate * LOWER:.1e}"
        )
        self.live(line)
        self.run.log(line)

    def make_room(self) -> None:
        """After memory ran out: go on from the last checkpoint, with batches in more pieces."""
        pieces = self.with_room().accumulate
        self.reload()
        self.state.changed["accumulate"] = pieces
        self.settings = replace(self.settings, accumulate=pieces)
        self.save()

    def with_room(self) -> Training:
        """The settings that fit into memory, found by trying."""
        batch, pieces = self.task.batch(self.state.step), self.settings.accumulate
        rows, length = next(iter(batch.values())).shape
        while pieces < rows:
            pieces = min(2 * pieces, rows)
            if self.fits(batch, pieces):
                break
        else:
            raise TooLongError(length, shorter(batch, lambda cut: self.fits(cut, rows)))
        asked = f"a batch of {rows} x {length} tokens needs more memory than there is"
        if not self.settings.fit:
            raise GlassError(
                f"{asked}; in {pieces} pieces it fits, with the same result (but for the chance of "
                f"dropout): --fit does so, or "
                f"--set train.accumulate={pieces}; {self.kept()}"
            )
        self.live(f"{asked}: it is read in {pieces} pieces, with the same result (but for dropout)")
        return replace(self.settings, accumulate=pieces)

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

    def kept(self) -> str:
        """What is left when a run cannot go on."""
        file = self.run.path / LAST / STATE
        if not file.exists():
            return "there is no checkpoint"
        step = read_json(file)["step"]
        return f"the checkpoint of step {step:,} is whole: glass resume {self.run.path}"

    # --- what a person sees -----------------------------------------------------------------------

    def report(self, loss: float, norm: float, count: int) -> None:
        state, rate = self.state, self.optimiser.param_groups[0]["lr"]
        steps = state.steps
        pace = state.seconds / state.step
        left = pace * (steps - state.step)
        state.predictions += count
        speed = f"{count / pace:,.0f} {self.task.unit}"
        line = describe(state.step, steps, loss, rate, norm, speed, left)
        best = "" if state.best is None else f"  {self.task.figure} {state.best:.4g}"
        if self.baseline:
            best += (
                f" ({self.task.simple}: {self.task.verdict} {self.baseline[self.task.verdict]:.4g})"
            )
        self.live.line(line + best)
        if state.step % max(steps // 200, 1) == 0:
            self.run.note(step=state.step, loss=loss, rate=rate, norm=norm, count=count)

    def speed(self) -> float:
        """Predictions learnt from in a second, evaluations and all."""
        return self.state.predictions / max(self.state.seconds, 1e-9)

    def conclude(self) -> dict[str, Any]:
        """Measure the best weights on all that was kept for validation, or much of it."""
        if not (self.run.path / BEST).exists():
            raise GlassError(f"no figure was finite; {self.kept()}")
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
        figure, sign = figures[self.task.figure], 1 if is_gain(self.task.figure) else -1
        better = math.isfinite(figure) and (
            self.state.best is None or sign * figure > sign * self.state.best
        )
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

    # --- saving and going on ----------------------------------------------------------------------

    def keep(self, name: str, **more: Any) -> None:
        network = self.judged if name == BEST else self.network
        if not self.run.path.is_dir():
            raise GlassError(f"{self.run.path} is gone, and with it what was saved")
        facts = {"name": self.task.name, **self.task.facts}
        learnt = [n for n, p in self.network.named_parameters() if p.requires_grad]
        try:
            checkpoint.save(
                self.run.path / name, network, self.task.tokenizer, task=facts, overwrite=True,
                adapter=(self.adapter, learnt) if self.adapter else None, **more,
            )  # fmt: skip
        except (OSError, GlassError) as error:
            raise GlassError(f"could not save: {error}; {self.kept()}") from None

    def save(self) -> None:
        """Write the state of this step, unless it is worth nothing."""

        def more(folder: Path) -> None:
            tensors = {f"optimiser.{k}": v for k, v in optimiser_tensors(self.optimiser).items()}
            tensors |= {f"random.{where}": state for where, state in self.random().items()}
            if self.average:
                mean = self.average.network.state_dict()
                tensors |= {f"average.{k}": v for k, v in mean.items()}
            weights.write(tensors, folder / TENSORS)
            state = {**asdict(self.state), "scaler": self.scaler.state_dict()}
            (folder / STATE).write_text(json.dumps(state), encoding="utf-8")

        if not all(p.isfinite().all() for p in self.network.parameters()):
            self.live(f"step {self.state.step:,} is not saved: a weight is not finite")
            return
        self.keep(LAST, more=more)
        self.run.seal()

    def random(self) -> dict[str, Tensor]:
        """Where the streams of random numbers are: the processor's, and that of another device."""
        states = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            states[self.device.type] = torch.get_device_module(self.device).get_rng_state()
        return states

    def restore(self) -> None:
        """Take up the state in `last/`, whose weights the network already has."""
        folder = self.run.path / LAST
        tensors, state = weights.read(folder / TENSORS), read_json(folder / STATE)
        self.scaler.load_state_dict(state.pop("scaler"))
        self.state = State(**state)
        self.settings = replace(self.settings, **self.state.changed)
        parts: dict[str, dict[str, Tensor]] = {"optimiser": {}, "average": {}, "random": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
        torch.set_rng_state(parts["random"]["cpu"])
        if self.device.type != "cpu":
            torch.get_device_module(self.device).set_rng_state(parts["random"][self.device.type])
        restore_optimiser(self.optimiser, parts["optimiser"])
        if self.average:
            self.average.network.load_state_dict(parts["average"])
        self.run.forget_after(self.state.step)

    def reload(self) -> None:
        """Go back to `last/`, weights and all."""
        file = checkpoint.ADAPTER if self.adapter else weights.FILE
        state = weights.read(self.run.path / LAST / file)
        self.network.load_state_dict(state, strict=self.adapter is None)
        best, seconds = self.state.best, self.state.seconds
        self.restore()
        self.state.best, self.state.seconds = best, seconds  # what was found, and spent, stays so
        self.planned = (self.state.step, seconds)

    def stop(self) -> bool:
        """Stop after this step; whether that was not asked before."""
        first, self.stopping = not self.stopping, True
        if first:
            self.live("stopping after this step; once more to leave at once")
        return first
