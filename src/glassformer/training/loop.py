"""The loop: one step after the other, watched, judged and saved."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from torch import nn

from glassformer import checkpoint
from glassformer.checkpoint import BEST
from glassformer.errors import GlassError, is_memory_error
from glassformer.live import Live
from glassformer.tasks.task import Task, is_gain
from glassformer.training.interrupt import interruptible
from glassformer.training.keeper import Keeper
from glassformer.training.memory import TooLongError, shorter
from glassformer.training.run import Run
from glassformer.training.settings import Training
from glassformer.training.show import describe

PATIENCE = 3  # steps in a row whose gradient is not finite
LOWER = 0.3  # of the rate, after that
RESERVED = 0.1  # of a budget in minutes, for the evaluation at the end


class Trainer(Keeper):
    """One who learns, keeps, and is watched: step after step until the budget is spent."""

    def __init__(
        self, network: nn.Module, task: Task, settings: Training, run: Run, live: Live
    ) -> None:
        super().__init__(network, task, settings, run, live)
        self.baseline: dict[str, Any] = {}  # the figures of what only counts
        self.stopping = False
        self.planned = (0, 0.0)  # the step and the seconds at which the number of steps was set

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
            taken = self.step_or_none()
            if taken is None:
                self.make_room()
                continue
            self.state.seconds = before + time.monotonic() - start
            done = self.state.step
            if self.state.skipped >= PATIENCE:
                self.go_back()
                continue
            if self.state.skipped and done < self.state.steps:
                continue
            if not self.state.skipped:
                self.report(*taken)
            self.replan()
            if self.due(self.settings.evaluate_every) or done == self.state.steps:
                self.judge()
            every = self.settings.save_every or self.settings.evaluate_every
            if self.due(every) and done < self.state.steps:
                self.save()
        if not self.state.steps:  # it learnt in one go
            self.judge()
        self.save()

    def step_or_none(self) -> tuple[float, float, int] | None:
        """What a step gives; None where memory ran out.

        What to do then is up to the caller: as long as the error is handled, it keeps everything
        alive that did not fit.
        """
        try:
            return self.step()
        except (RuntimeError, MemoryError) as error:
            if not is_memory_error(error):
                raise
            return None

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

    # --- what can go wrong ------------------------------------------------------------------------

    def skip(self, wrong: str) -> None:
        super().skip(wrong)
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

    def reload(self) -> None:
        super().reload()
        self.planned = (self.state.step, self.state.seconds)

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

    # --- what a person sees -----------------------------------------------------------------------

    def report(self, loss: float, norm: float, count: int) -> None:
        state, rate = self.state, self.optimiser.param_groups[0]["lr"]
        steps = state.steps
        pace = state.seconds / state.step
        left = pace * (steps - state.step)
        speed = f"{count / pace:,.0f} {self.task.unit}"
        line = describe(state.step, steps, loss, self.standing(), left, rate, norm, speed)
        self.live.line(line)
        if state.step % max(steps // 200, 1) == 0:
            self.run.note(step=state.step, loss=loss, rate=rate, norm=norm, count=count)

    def standing(self) -> str:
        """The best figure so far, beside what counting reaches."""
        figure, verdict, beside = self.task.figure, self.task.verdict, ""
        if self.baseline:
            name = "" if figure == verdict else f"{verdict} "
            beside = f"(counting: {name}{self.baseline[verdict]:.4g})  "
        if self.state.best is None:
            return beside
        return f"best {figure.replace('_', ' ')} {self.state.best:.4g} {beside}"

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
        figure, sign = figures[self.task.figure], 1 if is_gain(self.task.figure) else -1
        text = self.task.sample(self.judged) if math.isfinite(figure) else ""
        self.network.train()
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

    def stop(self) -> bool:
        """Stop after this step; whether that was not asked before."""
        first, self.stopping = not self.stopping, True
        if first:
            self.live("stopping after this step; once more to leave at once")
        return first
