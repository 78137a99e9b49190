"""Fit and evaluate the baseline of a run, and compare the trained model with it."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import checkpoint, registry
from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json, wrap_read_errors
from glassformer.core.reporter import Reporter
from glassformer.models.network import Network
from glassformer.tasks.bootstrap import (
    Interval,
    Sample,
    difference_interval,
    select_common,
)
from glassformer.tasks.task import Metric, Task
from glassformer.training.diagnosis import Diagnosis, FitState
from glassformer.training.evaluator import metric_label
from glassformer.training.fitting import fit, limit_seconds
from glassformer.training.run import BASELINE, Run
from glassformer.training.settings import TrainingSettings

METRICS_FILE, SAMPLE_FILE = "metrics.json", "sample.npy"
MAX_BUDGET_FRACTION = 0.1  # of a time budget: limit for fitting and evaluating the baseline
MAX_EVAL_EXAMPLES = 5_000  # examples or tokens to evaluate a baseline on


def fit_baseline(
    task: Task,
    run: Run,
    settings: TrainingSettings,
    context: int | None,
    reporter: Reporter,
    fitted: tuple[Network, float] | None = None,
) -> dict[str, Any]:
    """Fit the task's baseline, save it in the run and return its metrics.

    The baseline is evaluated on the same tokens as a network with this context. If the network's
    prior uses the same counts, `fitted` is the baseline, already fitted, and the fraction of the
    data that it was fitted on.
    """
    start, spec = time.monotonic(), task.spec
    name = str(spec.baseline_model)
    has_deadline = not (settings.steps or settings.epochs)
    max_seconds = limit_seconds(settings, MAX_BUDGET_FRACTION)
    options = "--model " + name
    if fitted is not None:
        network, fraction = fitted
        if network.config.order != type(network.config)().order:
            options += " --set model.order=" + str(network.config.order)
    else:
        fields = registry.MODELS[name].Config.__dataclass_fields__
        sizes = {k: v for k, v in task.dataset.sizes().items() if k in fields}
        network = registry.build_model(name, sizes)
        fraction = fit(task, network, max_seconds / 2)
    limit = spec.final_eval_limit or MAX_EVAL_EXAMPLES
    if has_deadline:
        limit = estimate_eval_limit(task, network, limit, context, start + max_seconds)
    # of its own, because calibration changes the metadata
    artifacts = replace(task.artifacts, metadata=dict(task.artifacts.metadata))
    own_task = spec.open(artifacts, run.cache)
    metrics, scores = own_task.evaluate(network.eval(), limit, context, calibrate=True)
    seconds = round(time.monotonic() - start, 1)
    metrics |= {"model": name, "fraction": round(fraction, 4), "seconds": seconds}
    metrics["options"] = options

    def write_metrics(folder: Path) -> None:
        (folder / METRICS_FILE).write_text(json.dumps(metrics), encoding="utf-8")
        if spec.sampled_metric is not None:
            spec.sampled_metric.sample(scores, task.artifacts).save(folder / SAMPLE_FILE)

    checkpoint.save(
        run.path / BASELINE, network, artifacts.tokenizer,
        task={"name": task.name, **artifacts.metadata},
        write_extra=write_metrics, overwrite=True,
    )  # fmt: skip
    data = "" if fraction == 1 else f" on {fraction:.0%} of the data"
    label = metric_label(spec.metric.name)
    value = metrics[spec.metric.name]
    reporter(
        f"baseline ({spec.baseline_name}, {options}): {label} {value:.4g}, "
        f"fitted{data} in {seconds:.1f} s"
    )
    return metrics


def estimate_eval_limit(
    task: Task, network: Network, limit: int, context: int | None, end: float
) -> int:
    """Estimate how many examples or tokens can be evaluated before the time `end`."""
    trial = max(task.spec.eval_limit // 10, 1)
    start = time.monotonic()
    task.evaluate(network.eval(), trial, context)
    seconds_per_unit = (time.monotonic() - start) / trial
    return min(limit, max(int((end - time.monotonic()) / seconds_per_unit), trial))


def load_baseline_metrics(run: Run, task: Task) -> dict[str, Any]:
    """Return the metrics of a run's baseline; an empty dict if the run has none."""
    file = run.path / BASELINE / METRICS_FILE
    name = task.spec.metric.name
    if not file.exists():
        return {}
    metrics: dict[str, Any] = read_json(file)
    if not isinstance(metrics, dict) or not isinstance(metrics.get(name), int | float):
        raise GlassError(f"{file} is corrupted: it has no number for {name!r}")
    if not isinstance(metrics.get("fraction", 1.0), int | float):
        raise GlassError(f"{file} is corrupted: it has no number for 'fraction'")
    return metrics


def load_baseline_sample(run: Run, columns: int) -> Sample | None:
    """Return the statistics of each example that a run's baseline was evaluated on.

    None if there are none with this number of columns: a damaged file costs only the interval.
    """
    file = run.path / BASELINE / SAMPLE_FILE
    try:
        with wrap_read_errors(file):
            sample = Sample.load(file)
    except GlassError:
        return None
    is_valid = sample.statistics.shape[1] == columns and np.isfinite(sample.statistics).all()
    return sample if is_valid else None


@dataclass(frozen=True)
class Comparison:
    """The metric of a model and of its baseline, with the interval of their difference."""

    metric: Metric
    value: float
    baseline: dict[str, Any]  # its metrics
    baseline_name: str
    difference: Interval | None  # of the model's metric minus the baseline's

    @property
    def is_better(self) -> bool:
        return self.metric.is_better(self.value, float(self.baseline[self.metric.name]))

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0; assumed if there is none."""
        return self.difference is None or self.difference[0] > 0 or self.difference[1] < 0

    def summarize(self, diagnosis: Diagnosis | None = None) -> str:
        """Return one sentence on whether the model is better than the baseline, and what to do."""
        name, baseline = self.metric.name, self.baseline
        values = f"{metric_label(name)} {self.value:.4g} vs. {baseline[name]:.4g}"
        if self.difference is not None:
            low, high = self.difference
            values = f"{values} (difference {low:+.2g} to {high:+.2g}, 95% confidence interval)"
        fraction = baseline.get("fraction", 1.0)
        fitted = f"the baseline ({self.baseline_name})"
        if fraction != 1:
            fitted = f"the baseline ({self.baseline_name} on {fraction:.0%} of the data)"
        if not self.is_significant:
            return f"not significantly different from {fitted}: {values}"
        if self.is_better:
            return f"better than {fitted}: {values}"
        options = baseline.get("options", "--model " + str(baseline.get("model")))
        if diagnosis and diagnosis.state is FitState.UNDERTRAINED:
            return f"NOT better than {fitted}: {values}; for now, use the baseline ({options})"
        return (
            f"NOT better than {fitted}: {values}; for this data, the baseline is the better model "
            f"({options})"
        )


def compare_with_baseline(
    task: Task, metrics: dict[str, Any], sample: Sample | None, baseline: dict[str, Any], run: Run
) -> Comparison:
    """Compare the metrics of a model with those of the run's baseline.

    `sample` has the statistics of the model's examples. If enough of them were also used for the
    baseline, both metrics are those of the common examples.
    """
    metric, sampled = task.spec.metric, task.spec.sampled_metric
    value = float(metrics[metric.name])
    difference = None
    if sampled is not None and sample is not None:
        baseline_sample = load_baseline_sample(run, sample.statistics.shape[1])
        if baseline_sample is not None:
            difference = difference_interval(sampled, sample, baseline_sample)
        if baseline_sample is not None and difference is not None:
            common = select_common(sample, baseline_sample)
            sums = np.stack([part.statistics.sum(axis=0) for part in common])
            value, baseline_value = sampled.value(sums).tolist()
            baseline = {**baseline, metric.name: baseline_value}
    return Comparison(metric, value, baseline, task.spec.baseline_name, difference)
