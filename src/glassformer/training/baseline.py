"""What counting alone reaches: models that are fitted in one pass, and the baseline of a run."""

import json
import time
from pathlib import Path
from typing import Any

from glassformer import checkpoint, registry
from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json
from glassformer.core.reporter import Reporter
from glassformer.models.network import Network
from glassformer.tasks.task import Task
from glassformer.training.run import BASELINE, Run
from glassformer.training.settings import MINUTES, TrainingSettings

METRICS_FILE = "figures.json"
LONGEST = 90.0  # seconds for a baseline
PART = 0.1  # of a budget in minutes
LARGEST = 2_000_000  # tokens of a running text that are counted, for the sake of memory
EXAMPLES = 5_000  # that a baseline is evaluated on, at the most
TRIAL = 100_000  # tokens that are counted before it is known how long all would take


def fit(task: Task, network: Network, seconds: float | None = None) -> float:
    """Fit a model in one pass, on all there is or as much as fits: which share.

    Running text is counted up to a size, for the sake of memory; with `seconds` a first part tells
    how long all would take.
    """
    dataset = task.dataset
    most = 1.0 if task.spec.is_table else min(LARGEST / max(dataset.size, 1), 1.0)
    trial = TRIAL / max(dataset.size, 1)
    if seconds is None or trial >= most:
        return dataset.fit(network, most)
    dataset.fit(network, trial / 20)  # what is done only once shall not count
    start = time.monotonic()
    first = dataset.fit(network, trial)
    spent = time.monotonic() - start
    share = min(0.7 * (seconds - spent) / spent * trial, most)
    return dataset.fit(network, share) if share > trial else first


def fit_baseline(
    task: Task, run: Run, settings: TrainingSettings, context: int | None, reporter: Reporter
) -> dict[str, Any]:
    """The metrics of the task's baseline, which is saved in the run.

    It is evaluated on what the network of the run, with this context, is evaluated on.
    """
    start, spec = time.monotonic(), task.spec
    name = str(spec.baseline_model)
    known = registry.MODELS[name].Config.__dataclass_fields__
    network = registry.build_model(
        name, {k: v for k, v in task.dataset.sizes().items() if k in known}
    )
    has_deadline = not (settings.steps or settings.epochs)
    allowed = PART * 60 * (settings.minutes or MINUTES) if has_deadline else LONGEST
    allowed = min(allowed, LONGEST)
    share = fit(task, network, allowed / 2)
    limit = spec.final_eval_limit or EXAMPLES
    if has_deadline:
        limit = affordable(task, network, limit, context, start + allowed)
    metrics, _ = task.evaluate(network.eval(), limit, context)
    seconds = round(time.monotonic() - start, 1)
    metrics |= {"model": name, "share": round(share, 4), "seconds": seconds}

    def more(folder: Path) -> None:
        (folder / METRICS_FILE).write_text(json.dumps(metrics), encoding="utf-8")

    checkpoint.save(
        run.path / BASELINE, network, task.artifacts.tokenizer, task=task.metadata, more=more,
        overwrite=True,
    )  # fmt: skip
    part = "" if share == 1 else f" ({share:.0%} of the data)"
    value = metrics[spec.metric.name]
    reporter(f"{spec.baseline_name}{part}: {spec.metric.label} {value:.4g}, in {seconds:.1f} s")
    return metrics


def affordable(task: Task, network: Network, limit: int, context: int | None, until: float) -> int:
    """How much of the validation data can be evaluated until a time, told by a small part of it."""
    trial = max(task.spec.eval_limit // 10, 1)
    start = time.monotonic()
    task.evaluate(network.eval(), trial, context)
    pace = (time.monotonic() - start) / trial
    return min(limit, max(int((until - time.monotonic()) / pace), trial))


def known_baseline(run: Run, task: Task) -> dict[str, Any]:
    """The metrics of the baseline that a run has; none if it has none."""
    file, name = run.path / BASELINE / METRICS_FILE, task.spec.metric.name
    if not file.exists():
        return {}
    metrics: dict[str, Any] = read_json(file)
    if not isinstance(metrics, dict) or not isinstance(metrics.get(name), int | float):
        raise GlassError(f"{file} is damaged: it does not say {name}")
    return metrics


def beats(task: Task, metrics: dict[str, Any], baseline: dict[str, Any]) -> bool:
    metric = task.spec.metric
    return metric.is_better(float(metrics[metric.name]), float(baseline[metric.name]))


def sentence(task: Task, metrics: dict[str, Any], baseline: dict[str, Any]) -> str:
    """In plain words: whether it was worth training, beside counting."""
    spec = task.spec
    ours, theirs = (f"{spec.metric.label} {m[spec.metric.name]:.4g}" for m in (metrics, baseline))
    if beats(task, metrics, baseline):
        return f"{ours}: better than {spec.baseline_name} ({theirs})"
    return (
        f"{ours}: NOT better than {spec.baseline_name} ({theirs}); for this data, as it stands, "
        f"counting is enough: --model {spec.baseline_model}"
    )
