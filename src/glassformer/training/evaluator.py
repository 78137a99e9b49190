"""Evaluation while a network trains, and which of its weights are best."""

import math
import time
from dataclasses import dataclass
from typing import Any

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.models.network import Network
from glassformer.tasks.task import METRICS, Metric, Scores, Task
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import State

FEWEST = 5  # evaluations without a better one, before training may stop early


@dataclass(frozen=True)
class Evaluation:
    metrics: dict[str, Any]
    scores: Scores
    seconds: float
    preview: str = ""
    is_best: bool = False


class Evaluator:
    """Measures a network on the same part of the validation data each time."""

    def __init__(self, task: Task, settings: TrainingSettings) -> None:
        self.task, self.settings = task, settings
        self.limit = settings.eval_limit or task.spec.eval_limit

    @property
    def metric(self) -> Metric:
        name = self.settings.best_metric
        if name not in METRICS:
            raise GlassError(f"there is no metric {name!r}{did_you_mean(name, METRICS)}")
        return METRICS[name]

    def evaluate(self, network: Network, state: State) -> Evaluation:
        """The metrics of a network; the state remembers the best of them."""
        start = time.monotonic()
        was_training = network.training
        network.eval()
        metrics, scores = self.task.evaluate(network, self.limit)
        value = self.value_of(metrics)
        preview = self.task.preview(network) if math.isfinite(value) else ""
        network.train(was_training)
        is_best = math.isfinite(value) and (
            state.best is None or self.metric.is_better(value, state.best)
        )
        state.best = value if is_best else state.best
        state.evals, state.evals_since_best = (
            state.evals + 1,
            0 if is_best else state.evals_since_best + 1,
        )
        return Evaluation(metrics, scores, time.monotonic() - start, preview, is_best)

    def evaluate_at_end(self, network: Network, seconds: float | None, state: State) -> Evaluation:
        """The metrics of the best weights on all of the validation data, or much of it.

        With `seconds`, on as much as fits into them; at least on what was evaluated before.
        """
        limit = self.task.spec.final_eval_limit
        if seconds is not None and (pace := self.pace(state)):
            fits = max(int(seconds / pace), self.limit)
            limit = fits if limit is None else min(limit, fits)
        start = time.monotonic()
        metrics, scores = self.task.evaluate(network, limit)
        return Evaluation(metrics, scores, time.monotonic() - start)

    def pace(self, state: State) -> float:
        """Seconds for each token or example, by the evaluations so far."""
        return state.evaluated / max(state.evals, 1) / max(self.units(self.limit), 1)

    def value_of(self, metrics: dict[str, Any]) -> float:
        """The metric that decides."""
        if self.metric.name not in metrics:
            known = ", ".join(name for name in metrics if name in METRICS)
            raise GlassError(f"{self.task.name} has no metric {self.metric.name!r}; it has {known}")
        return float(metrics[self.metric.name])

    def should_stop_early(self, state: State) -> bool:
        """Whether it has been getting no better for long."""
        patience = self.settings.patience
        if patience is None:
            patience = max(FEWEST, state.evals // 2)
        return 0 < patience <= state.evals_since_best

    def units(self, limit: int | None) -> int:
        """The tokens or examples of an evaluation with a limit."""
        size = self.task.dataset.eval_size
        return size if limit is None else min(limit, size)
