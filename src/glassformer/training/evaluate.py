"""Evaluate a trained model on the validation data of its run, or on other data."""

import tempfile
import time
from pathlib import Path
from typing import Any

from glassformer import checkpoint, registry
from glassformer.checkpoint import BEST
from glassformer.core.errors import GlassError
from glassformer.core.folder import find_subfolder, wrap_read_errors
from glassformer.core.reporter import NullReporter
from glassformer.data.files import save_streams
from glassformer.data.request import DataRequest
from glassformer.tasks import TASKS
from glassformer.tasks.task import Artifacts, Task, TaskSpec
from glassformer.training.run import BASELINE, Run


def evaluate(
    path: Path,
    files: tuple[Path, ...] = (),
    *,
    plot: Path | None = None,
    context: int | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """Return the metrics of a run's best weights, or of a model folder, on all of the data.

    `files` replaces the run's own validation data, and `columns` says how to read it.
    `plot` is the file to save the task's plot to, such as a confusion matrix. `context` is the
    number of tokens per window of running text; by default the one used in training.
    """
    folder = find_subfolder(path, BEST) or path
    if not (folder / checkpoint.CONFIG).exists():
        raise GlassError(f"{path} is neither a run folder nor a model folder")
    network, tokenizer, metadata = checkpoint.load(folder)
    name = metadata.pop("name", None)
    if name not in TASKS:
        raise GlassError(f"{path} has no known task in its {checkpoint.CONFIG}: got {name!r}")
    spec, artifacts = TASKS[name], Artifacts(metadata, tokenizer)
    if context is not None and (spec.is_table or context < 1):
        raise GlassError(
            f"context must be at least 1 token and applies only to tasks on running text, got "
            f"{context} for {name}"
        )
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        if files:
            task = open_task(spec, artifacts, files, Path(scratch), columns)
        else:
            task = open_run_task(spec, artifacts, path)
        metrics, scores = task.evaluate(network, context=context)
        if (path / BASELINE).is_dir():
            baseline, _, _ = checkpoint.load(path / BASELINE)
            baseline_metrics, _ = task.evaluate(baseline, context=context or network.context)
            metrics["baseline"] = {"model": registry.model_name(baseline), **baseline_metrics}
        if plot:
            for draw in spec.plots.values():
                draw(scores, artifacts, plot)
    seconds = round(time.monotonic() - start, 2)
    return {"task": name, "model": registry.model_name(network), **metrics, "seconds": seconds}


def open_task(
    spec: TaskSpec,
    artifacts: Artifacts,
    files: tuple[Path, ...],
    folder: Path,
    columns: dict[str, Any],
) -> Task:
    """Open the task on other data, read in the same way as the training data."""
    metadata = artifacts.metadata
    columns["text"] = columns.get("text") or tuple(metadata.get("text", ()))
    columns["label"] = columns.get("label") or metadata.get("label")
    request = DataRequest(
        files=save_streams(files, folder),
        valid_fraction=1.0,
        base_tokenizer=artifacts.tokenizer,
        labels=tuple(metadata.get("labels", ())),
        **columns,
    )
    return spec.open(spec.prepare(request, folder, NullReporter()), folder)


def open_run_task(spec: TaskSpec, artifacts: Artifacts, path: Path) -> Task:
    """Open the task on the data that a run was trained and validated on."""
    cache = Run(path).cache
    if not cache.is_dir():
        raise GlassError(f"{path} has no validation data: specify the data to evaluate it on")
    Run(path).verify("cache/")
    with wrap_read_errors(path):
        return spec.open(artifacts, cache)
