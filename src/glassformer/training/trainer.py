"""The training loop: take steps, evaluate, save and report."""

import time
from dataclasses import replace
from typing import Any

from glassformer import checkpoint
from glassformer.checkpoint import BEST
from glassformer.core.errors import GlassError, catch_memory_errors
from glassformer.core.i18n import tr
from glassformer.core.reporter import Reporter
from glassformer.models.network import Network
from glassformer.tasks.task import Batches, Task, select_calibration
from glassformer.training import recovery
from glassformer.training.budget import Budget, Deadline, Progress
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluation, Evaluator, format_metrics, metric_label
from glassformer.training.interrupt import stop_on_signal
from glassformer.training.plots import format_step
from glassformer.training.run import Run
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.step import State, Step, StepResult


class Trainer:
    """Trains a network on a task until its budget is spent.

    It combines a `Step` (batch to gradients to update), a `Budget`, an `Evaluator` and a
    `Checkpointer`; `recovery.py` handles steps that fail.
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
        self.step = step
        self.task = task
        self.batches = batches
        self.budget = budget
        self.evaluator = Evaluator(task, step.settings)
        self.checkpointer, self.reporter = checkpointer, reporter
        self.baseline = baseline or {}  # the metrics of the baseline model
        self.state = state or State()
        self.start_time = time.monotonic()
        self.is_stopping = False

    def loop(self) -> None:
        """Take steps until the budget is spent; evaluate and save after each tenth of it.

        With a prior, the network is also evaluated before the first step.
        """
        self.start_time = time.monotonic() - self.state.seconds
        self.network.train()
        if self.settings.prior and not self.state.evals:
            self.evaluate()
        while not self.is_over():
            progress = self.budget.begin(self.state.step)
            result = None
            with catch_memory_errors():
                result = self.take_step(progress)
            if result is None:
                recovery.shrink_micro_batches(self)
                continue
            if result.non_finite:
                recovery.handle_skipped_step(self, result.non_finite)
                continue
            self.report(result)
            if self.is_due(self.settings.evaluate_every, progress.should_evaluate):
                self.evaluate()
            every = self.settings.save_every or self.settings.evaluate_every
            if self.is_due(every, progress.ends_tenth) and not self.is_over():
                self.save()
        if not self.is_stopping and self.state.evaluated_at != self.state.step:
            self.evaluate()
        self.state.is_finished = not self.is_stopping
        self.save()

    def take_step(self, progress: Progress) -> StepResult:
        """Update the weights on the next batch, with the learning rate for this progress."""
        state = self.state
        lr = lr_at(progress.position, progress.total, self.settings) * state.lr_scale
        result = self.step(self.batches.at(state.step), lr, state.step)
        state.step += 1
        state.seconds = time.monotonic() - self.start_time
        state.consecutive_skips = state.consecutive_skips + 1 if result.non_finite else 0
        state.predictions += 0 if result.non_finite else result.count
        return result

    def train(self) -> Evaluation | None:
        """Train until the budget is spent.

        Returns the final evaluation of the best weights, or None if training was stopped.
        """
        with stop_on_signal(self.stop):
            try:
                self.loop()
            except OSError as error:
                raise GlassError(f"{error}; {self.checkpointer.describe_checkpoint()}") from None
        if self.is_stopping:
            self.reporter(f"stopped and saved; to continue: glass resume {self.run.path}")
            return None
        return self.evaluate_best()

    # --- when to evaluate, save and stop ----------------------------------------------------------

    def is_over(self) -> bool:
        return (
            self.budget.is_spent(self.state.step)
            or self.is_stopping
            or self.evaluator.should_stop_early(self.state)
        )

    def is_due(self, every: int | None, default: bool) -> bool:
        """Whether the step is a multiple of `every`; `default` if there is no interval."""
        return self.state.step % every == 0 if every else default

    def stop(self) -> bool:
        """Stop after this step; return false if a stop was already requested."""
        is_first, self.is_stopping = not self.is_stopping, True
        if is_first:
            self.reporter("stopping after this step; press Ctrl-C again to quit at once")
        return is_first

    # --- evaluate and save ------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Evaluate the current weights; save them if they are the best so far."""
        state, network = self.state, self.evaluated_network
        evaluation = self.evaluator.evaluate(network, state)
        if network is not self.network:
            self.evaluator.fit_mixture_weights(self.network)  # for the last checkpoint
        state.evaluated_at = state.step
        state.eval_seconds += evaluation.seconds
        if isinstance(self.budget, Deadline):
            self.budget.record_evaluation(evaluation.seconds, self.estimate_final_seconds())
        if evaluation.is_best:
            self.checkpointer.save_best(network)
        seconds = round(state.seconds, 1)
        metrics = evaluation.metrics
        self.run.log_metrics("validation", step=state.step, seconds=seconds, **metrics)
        line = f"step {state.step:,}: {format_metrics(metrics)}"
        if evaluation.is_best:
            line = f"{line}  (best so far)"
        self.reporter(line)
        self.run.log(f"{line}\n{evaluation.preview}\n")
        if self.reporter.is_terminal:
            self.reporter(f"  {evaluation.preview[:300]!r}")
        if self.evaluator.should_stop_early(state):
            label = metric_label(self.evaluator.metric.name)
            count = state.evals_since_best
            times = "evaluation" if count == 1 else f"{count} evaluations"
            self.reporter(f"stopping early: {label} has not improved in the last {times}")

    def evaluate_best(self) -> Evaluation:
        """Evaluate the best weights on all of the validation data, or as much as time allows."""
        if not (self.run.path / BEST).exists():
            raise GlassError(
                "every evaluation gave a non-finite metric; "
                f"{self.checkpointer.describe_checkpoint()}"
            )
        network, _, metadata = checkpoint.load(self.run.path / BEST)
        self.task.artifacts.metadata.update(select_calibration(metadata))
        left = self.budget.remaining - 1 if isinstance(self.budget, Deadline) else None
        evaluation = self.evaluator.evaluate_at_end(network.to(self.step.device), left, self.state)
        seconds = round(self.state.seconds, 1)
        self.run.log_metrics("final", step=self.state.step, seconds=seconds, **evaluation.metrics)
        return evaluation

    def estimate_final_seconds(self) -> float:
        """Estimate how long the evaluation of the best weights will take."""
        units = self.evaluator.count_units(self.task.spec.final_eval_limit)
        return self.evaluator.seconds_per_unit(self.state) * units

    def save(self) -> None:
        """Save a checkpoint, unless a weight is not finite."""
        if all(p.isfinite().all() for p in self.network.parameters()):
            self.checkpointer.save_last(self.step, self.state)
        else:
            step = self.state.step
            self.reporter(f"no checkpoint saved at step {step:,}: a weight is not finite")

    def change_settings(self, **settings: Any) -> None:
        """Change settings during training; the state records them."""
        self.state.changed |= settings
        self.step.settings = self.evaluator.settings = replace(self.settings, **settings)

    # --- reporting --------------------------------------------------------------------------------

    def report(self, result: StepResult) -> None:
        """Update the status line; log about 200 steps per run to metrics.jsonl."""
        state = self.state
        pace = state.seconds / state.step
        steps = self.budget.estimate_steps(state.step, pace)
        left = self.budget.seconds_left(state.step, pace)
        speed = f"{result.count / pace:,.0f} {tr(self.task.spec.unit)}"
        self.reporter.status(
            format_step(state.step, steps, result, self.format_best(), left, speed)
        )
        if state.step % max(steps // 200, 1) == 0:
            values = {
                "loss": result.loss,
                "lr": result.lr,
                "grad_norm": result.grad_norm,
                "count": result.count,
            }
            self.run.log_metrics("train", step=state.step, **values)

    def format_best(self) -> str:
        """Format the best metric so far and the metric of the baseline."""
        name, baseline = self.task.spec.metric.name, ""
        if self.baseline:
            baseline = f"(baseline {metric_label(name)} {self.baseline[name]:.4g})  "
        if self.state.best is None:
            return baseline
        return f"best {metric_label(self.evaluator.metric.name)} {self.state.best:.4g}  {baseline}"

    def speed(self) -> float:
        """Return the predictions per second of training, including the time for evaluations."""
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
        """The network to evaluate and save as the best: the averaged one if there is one."""
        return self.step.ema.network if self.step.ema else self.step.network
