"""Evaluate during training, track the best weights, and format metrics as text."""

import math
import time
from dataclasses import dataclass
from typing import Any

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.models.network import Network
from glassformer.tasks.task import METRICS, Metric, Scores, Task
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import State

MIN_PATIENCE = 5  # evaluations without improvement before training may stop early
METRIC_LABELS = {
    "loss": "valid loss",
    "f1": "macro F1",
    "exact": "exact match",
    "token_accuracy": "teacher-forced accuracy",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "next_accuracy": "next-sentence accuracy",
    "rmse": "RMSE",
    "mean_rmse": "RMSE of the mean rating",
    "hit_rate_10": "hit rate at 10",
    "ndcg_10": "NDCG at 10",
    "frechet": "Fréchet distance",
    "bleu_signature": "BLEU signature",
}
METRIC_FORMATS = {"exact": ".1%", "bleu": ".1f", "chrf": ".1f"}  # .4g for all others


def metric_label(name: str) -> str:
    """The name of a metric or of another result, in the user's language."""
    return tr(METRIC_LABELS.get(name, name.replace("_", " ")))


def format_metrics(metrics: dict[str, Any]) -> str:
    """Format the metrics that are floats, each after its label."""
    return "  ".join(
        f"{metric_label(name)} {format(value, METRIC_FORMATS.get(name, '.4g'))}"
        for name, value in metrics.items()
        if isinstance(value, float)
    )


@dataclass(frozen=True)
class Evaluation:
    metrics: dict[str, Any]
    scores: Scores
    seconds: float
    network: Network  # that was evaluated
    preview: str = ""  # predictions for a few examples
    is_best: bool = False


class Evaluator:
    """Evaluates a network on the same subset of the validation data each time.

    The mixture weights of a prior and the temperature of a classifier are fitted to this subset.
    """

    def __init__(self, task: Task, settings: TrainingSettings) -> None:
        self.task, self.settings = task, settings
        self.limit = settings.eval_limit or task.spec.eval_limit

    @property
    def metric(self) -> Metric:
        name = self.settings.best_metric
        if name not in METRICS:
            raise GlassError(
                f"train.best_metric: unknown metric {name!r}{did_you_mean(name, METRICS)}"
            )
        return METRICS[name]

    def evaluate(self, network: Network, state: State) -> Evaluation:
        """Fit the mixture weights of a prior, evaluate the network, and update the best metric."""
        start = time.monotonic()
        self.fit_mixture_weights(network)
        was_training = network.training
        network.eval()
        metrics, scores = self.task.evaluate(network, self.limit, calibrate=True)
        value = self.metric_value(metrics)
        preview = self.task.preview(network) if math.isfinite(value) else ""
        network.train(was_training)
        is_best = math.isfinite(value) and (
            state.best is None or self.metric.is_better(value, state.best)
        )
        if is_best:
            state.best, state.best_step = value, state.step
        state.evals += 1
        state.evals_since_best = 0 if is_best else state.evals_since_best + 1
        return Evaluation(metrics, scores, time.monotonic() - start, network, preview, is_best)

    def fit_mixture_weights(self, network: Network) -> None:
        """Fit the weights that mix the logits of a classifier and its prior to the subset."""
        was_training = network.training
        self.task.fit_mixture_weights(network.eval(), self.limit)
        network.train(was_training)

    def evaluate_at_end(self, network: Network, seconds: float | None, state: State) -> Evaluation:
        """Evaluate the best weights on all of the validation data, up to the task's limit.

        With `seconds`, uses as much as that time allows, but at least as much as during training.
        """
        limit = self.task.spec.final_eval_limit
        if seconds is not None and (pace := self.seconds_per_unit(state)):
            affordable = max(int(seconds / pace), self.limit)
            limit = affordable if limit is None else min(limit, affordable)
        start = time.monotonic()
        metrics, scores = self.task.evaluate(network, limit)
        return Evaluation(metrics, scores, time.monotonic() - start, network)

    def seconds_per_unit(self, state: State) -> float:
        """Return the mean time per token or example in the evaluations so far, in seconds."""
        return state.eval_seconds / max(state.evals, 1) / max(self.count_units(self.limit), 1)

    def metric_value(self, metrics: dict[str, Any]) -> float:
        """Return the value of the metric that decides which weights are the best."""
        if self.metric.name not in metrics:
            known = ", ".join(name for name in metrics if name in METRICS)
            raise GlassError(
                f"train.best_metric: {self.task.name} has no metric {self.metric.name!r}; "
                f"available: {known}"
            )
        return float(metrics[self.metric.name])

    def should_stop_early(self, state: State) -> bool:
        """Whether the metric has not improved for `patience` evaluations.

        By default, always false while the initial weights are the best: the metric may get worse
        before it improves.
        """
        patience = self.settings.patience
        if patience is None:
            patience = max(MIN_PATIENCE, state.evals // 2) if state.best_step else 0
        return 0 < patience <= state.evals_since_best

    def count_units(self, limit: int | None) -> int:
        """Return the number of tokens or examples in an evaluation with this limit."""
        size = self.task.dataset.eval_size
        return size if limit is None else min(limit, size)
