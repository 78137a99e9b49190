"""The loop: one step after the other, evaluated, saved, and shown."""

import time
from dataclasses import replace
from typing import Any

from glassformer import checkpoint
from glassformer.checkpoint import BEST
from glassformer.core.errors import GlassError, catch_memory_errors
from glassformer.core.reporter import Reporter
from glassformer.models.network import Network
from glassformer.tasks.task import Batches, Task
from glassformer.training import recovery
from glassformer.training.budget import Budget, Deadline, Moment
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluation, Evaluator
from glassformer.training.interrupt import stop_on_signal
from glassformer.training.plots import format_step
from glassformer.training.run import Run
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.step import State, Step, StepResult


class Trainer:
    """A network that is trained on a task until its budget is spent.

    It is made of a `Step` (batch to gradients to update), a `Budget`, an `Evaluator` and a
    `Checkpointer`; `recovery.py` says what happens when a step fails.
    """

    def __init__(
        self,
        step: Step,
        task: Task,
        batches: Batches,
        budget: Budget,
        checkpointer: Checkpointer,
        reporter: Reporter,
        baseline: dict[str, Any] | None = None,
        state: State | None = None,
    ) -> None:
        self.step, self.task, self.batches, self.budget = step, task, batches, budget
        self.evaluator = Evaluator(task, step.settings)
        self.checkpointer, self.reporter = checkpointer, reporter
        self.baseline = baseline or {}  # the metrics of the baseline model
        self.state = state or State()
        self.started = time.monotonic()
        self.is_stopping = False

    def loop(self) -> None:
        """Take steps until the budget is spent; evaluate and save every tenth of it."""
        self.started = time.monotonic() - self.state.seconds
        self.network.train()
        while not self.is_over():
            moment = self.budget.begin(self.state.step)
            result = None
            with catch_memory_errors():
                result = self.take_step(moment)
            if result is None:
                recovery.shrink_micro_batches(self)
                continue
            if result.non_finite:
                recovery.skip_step(self, result.non_finite)
                continue
            self.report(result)
            if self.is_due(self.settings.evaluate_every, moment.should_evaluate):
                self.evaluate()
            every = self.settings.save_every or self.settings.evaluate_every
            if self.is_due(every, moment.is_tenth) and not self.is_over():
                self.save()
        if not self.is_stopping and self.state.evaluated_at != self.state.step:
            self.evaluate()
        self.save()

    def take_step(self, moment: Moment) -> StepResult:
        """Update the weights on the next batch, at the learning rate of this moment."""
        state = self.state
        lr = lr_at(moment.position, moment.total, self.settings) * state.scale
        result = self.step(self.batches.at(state.step), lr, state.step)
        state.step += 1
        state.seconds = time.monotonic() - self.started
        state.skipped = state.skipped + 1 if result.non_finite else 0
        state.predictions += 0 if result.non_finite else result.count
        return result

    def train(self) -> Evaluation | None:
        """Train to the end of the budget; the evaluation of the best weights, or None if it was
        stopped before."""
        with stop_on_signal(self.stop):
            try:
                self.loop()
            except OSError as error:
                raise GlassError(f"{error}; {self.checkpointer.describe_checkpoint()}") from None
        if self.is_stopping:
            self.reporter(f"stopped and saved; go on with: glass resume {self.run.path}")
            return None
        return self.evaluate_best()

    # --- when -------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        return (
            self.budget.is_spent(self.state.step)
            or self.is_stopping
            or self.evaluator.should_stop_early(self.state)
        )

    def is_due(self, every: int | None, otherwise: bool) -> bool:
        """Whether so many steps have passed again."""
        return self.state.step % every == 0 if every else otherwise

    def stop(self) -> bool:
        """Stop after this step; whether that was not asked before."""
        first, self.is_stopping = not self.is_stopping, True
        if first:
            self.reporter("stopping after this step; once more to leave at once")
        return first

    # --- evaluate and save ------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Measure on the same part of the validation data each time; save the best weights."""
        state, network = self.state, self.evaluated_network
        found = self.evaluator.evaluate(network, state)
        state.evaluated_at, state.evaluated = state.step, state.evaluated + found.seconds
        if isinstance(self.budget, Deadline):
            self.budget.record_evaluation(found.seconds, self.estimate_final_seconds())
        if found.is_best:
            self.checkpointer.save_best(network)
        seconds = round(state.seconds, 1)
        self.run.note("validation", step=state.step, seconds=seconds, **found.metrics)
        values = "  ".join(f"{k} {v:.4g}" for k, v in found.metrics.items() if isinstance(v, float))
        line = f"step {state.step:,}: {values}{'  (best)' if found.is_best else ''}"
        self.reporter(line)
        self.run.log(f"{line}\n{found.preview}\n")
        if self.reporter.terminal:
            self.reporter(f"  {found.preview[:300]!r}")
        if self.evaluator.should_stop_early(state):
            name = self.evaluator.metric.label
            self.reporter(f"no better {name} in {state.evals_since_best} evaluations: done")

    def evaluate_best(self) -> Evaluation:
        """Measure the best weights on all of the validation data, or much of it."""
        if not (self.run.path / BEST).exists():
            raise GlassError(f"no metric was finite; {self.checkpointer.describe_checkpoint()}")
        network, _, _ = checkpoint.load(self.run.path / BEST)
        left = self.budget.left - 1 if isinstance(self.budget, Deadline) else None
        found = self.evaluator.evaluate_at_end(network.to(self.step.device), left, self.state)
        seconds = round(self.state.seconds, 1)
        self.run.note("final", step=self.state.step, seconds=seconds, **found.metrics)
        return found

    def estimate_final_seconds(self) -> float:
        """About how long the evaluation of the best weights will take."""
        pace = self.evaluator.pace(self.state)
        return pace * self.evaluator.units(self.task.spec.final_eval_limit)

    def save(self) -> None:
        """Write the state of this step, unless it is worth nothing."""
        if all(p.isfinite().all() for p in self.network.parameters()):
            self.checkpointer.save_last(self.step, self.state)
        else:
            self.reporter(f"step {self.state.step:,} is not saved: a weight is not finite")

    def change(self, **settings: Any) -> None:
        """Change settings on the way; the state remembers them."""
        self.state.changed |= settings
        self.step.settings = self.evaluator.settings = replace(self.settings, **settings)

    # --- what a person sees -----------------------------------------------------------------------

    def report(self, result: StepResult) -> None:
        state, lr = self.state, result.lr
        pace = state.seconds / state.step
        steps = self.budget.steps(state.step, pace)
        left = self.budget.seconds_left(state.step, pace)
        speed = f"{result.count / pace:,.0f} {self.task.spec.unit}"
        self.reporter.line(format_step(state.step, steps, result, self.format_best(), left, speed))
        if state.step % max(steps // 200, 1) == 0:
            values = {
                "loss": result.loss,
                "lr": lr,
                "grad_norm": result.norm,
                "count": result.count,
            }
            self.run.note("train", step=state.step, **values)

    def format_best(self) -> str:
        """The best metric so far, beside that of the baseline."""
        metric, compared, beside = self.evaluator.metric, self.task.spec.metric, ""
        if self.baseline:
            name = "" if metric == compared else f"{compared.name} "
            beside = f"(counting: {name}{self.baseline[compared.name]:.4g})  "
        if self.state.best is None:
            return beside
        return f"best {metric.label} {self.state.best:.4g} {beside}"

    def speed(self) -> float:
        """Predictions that it was trained on in a second, evaluations and all."""
        return self.state.predictions / max(self.state.seconds, 1e-9)

    @property
    def settings(self) -> TrainingSettings:
        return self.step.settings

    @property
    def run(self) -> Run:
        return self.checkpointer.run

    @property
    def network(self) -> Network:
        return self.step.network

    @property
    def evaluated_network(self) -> Network:
        """The network whose metrics count and which is saved as best."""
        return self.step.ema.network if self.step.ema else self.step.network
