"""Evaluate a trained model on the validation data of its run, or on other data."""

import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from glassformer import checkpoint, registry
from glassformer.checkpoint import BEST
from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.core.folder import find_subfolder, wrap_read_errors
from glassformer.core.reporter import NullReporter, Reporter
from glassformer.data.files import BadRowPolicy, CountBadRows, save_streams
from glassformer.data.output import TableWriter, merge_columns
from glassformer.data.request import DataOptions, DataRequest
from glassformer.models.network import Network
from glassformer.tasks import TASKS
from glassformer.tasks.bootstrap import difference_interval, interval
from glassformer.tasks.table_rows import VALID_EXAMPLES, read_valid_examples
from glassformer.tasks.task import Artifacts, Scores, Task, TaskSpec, select_calibration
from glassformer.training.run import BASELINE, Run


def evaluate(
    path: Path,
    files: tuple[Path, ...] = (),
    *,
    skip_bad: bool = False,
    reporter: Reporter | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the metrics of a run's best weights, or of a model folder, on all of the data.

    `files` replaces the run's own validation data. `options` are those of `evaluate_network`, and
    data options that say how to read the files.
    """
    folder = find_subfolder(path, BEST) or path
    if not (folder / checkpoint.CONFIG).exists():
        raise GlassError(f"{path} is neither a run folder nor a model folder")
    network, tokenizer, metadata = checkpoint.load(folder)
    spec = find_spec(metadata, str(path))
    artifacts = Artifacts(metadata, tokenizer)
    baseline = path / BASELINE if (path / BASELINE).is_dir() else None
    output = {name: options.pop(name, None) for name in ("plot", "predictions", "context")}
    on_bad_row = CountBadRows() if skip_bad else BadRowPolicy()
    with tempfile.TemporaryDirectory() as scratch:
        if files:
            cache = Path(scratch)
            request = make_request(artifacts, files, cache, options, on_bad_row)
            task = spec.open(spec.prepare(request, cache, reporter or NullReporter()), cache)
            task.artifacts.metadata.update(select_calibration(metadata))
        else:
            cache = Run(path).cache
            task = open_run_task(spec, artifacts, path)
        result = evaluate_network(network, task, cache, baseline=baseline, **output)
    if on_bad_row.count:
        result["bad_rows"] = on_bad_row.count
    return result


def find_spec(metadata: dict[str, Any], model: str) -> TaskSpec:
    """Return the task that is named in the metadata of a model, and remove its name there."""
    name = metadata.pop("name", None)
    if name not in TASKS:
        raise GlassError(f"{model} has no known task in its {checkpoint.CONFIG}: got {name!r}")
    return TASKS[name]


def evaluate_network(
    network: Network,
    task: Task,
    cache: Path,
    *,
    baseline: Path | None = None,
    plot: Path | None = None,
    predictions: Path | None = None,
    context: int | None = None,
) -> dict[str, Any]:
    """Return the metrics of a network on a task, with an interval and, for a table, details.

    `cache` is the folder with the task's data. `baseline` is the folder of a model to compare with.
    `plot` is the file for the task's plot, such as a confusion matrix; `predictions` is a table
    with a row per example. `context` is the number of tokens per window of running text; by default
    the one used in training.
    """
    spec, artifacts = task.spec, task.artifacts
    if context is not None and (spec.is_table or context < 1):
        raise GlassError(
            f"context must be at least 1 token and applies only to tasks on running text, got "
            f"{context} for {spec.name}"
        )
    if predictions is not None and spec.predictions is None:
        raise GlassError(f"{spec.name} has no predictions per example to write")
    start = time.monotonic()
    sampled = spec.sampled_metric
    metrics, scores = task.evaluate(network, context=context)
    examples = read_valid_examples(cache) if (cache / VALID_EXAMPLES).is_file() else []
    if sampled is not None:
        sample = sampled.sample(scores, artifacts)
        metrics[f"{spec.metric.name}_interval"] = interval(sampled, sample)
    if spec.details is not None:
        metrics |= add_texts(spec.details(scores, artifacts), examples)
    if baseline is not None:
        other, tokenizer, metadata = checkpoint.load(baseline)
        objective = spec.objective(Artifacts(metadata, tokenizer))
        other_task = replace(task, objective=objective)
        other_metrics, other_scores = other_task.evaluate(other, context=context or network.context)
        if sampled is not None:
            other_sample = sampled.sample(other_scores, artifacts)
            difference = difference_interval(sampled, sample, other_sample)
            other_metrics["difference_interval"] = difference
        metrics["baseline"] = {"model": registry.model_name(other), **other_metrics}
    if plot:
        for draw in spec.plots.values():
            draw(scores, artifacts, plot)
    if predictions is not None:
        write_predictions(predictions, task, scores, examples)
    seconds = round(time.monotonic() - start, 2)
    return {"task": spec.name, "model": registry.model_name(network), **metrics, "seconds": seconds}


def add_texts(details: dict[str, Any], examples: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the location and the texts of the worst examples."""
    for row in details.get("worst", []):
        if row["index"] < len(examples):
            example = examples[row["index"]]
            row |= {"location": example["location"], "text": " | ".join(example["texts"])}
    return details


def write_predictions(
    file: Path, task: Task, scores: Scores, examples: list[dict[str, Any]]
) -> None:
    """Write a table with the texts, true label or reference, and prediction for each example."""
    artifacts = task.artifacts
    list_predictions = task.spec.predictions
    if list_predictions is None or not examples:
        raise GlassError(
            "the texts of this run's validation data were not saved: give the data to evaluate on"
        )
    by_index = list_predictions(scores, artifacts)
    metadata = artifacts.metadata
    with TableWriter(file) as writer:
        for index in sorted(by_index):
            example = examples[index]
            if example["label"] is None:  # the texts are a source and its target
                names = (*metadata.get("text", ["source"]), metadata.get("target", "target"))
                columns = dict(zip(names, example["texts"], strict=True))
            else:
                columns = dict(zip(metadata.get("text", ["text"]), example["texts"], strict=True))
                columns[metadata.get("label", "label")] = example["label"]
            columns = merge_columns(columns, by_index[index])
            writer.write({"location": example["location"], **columns})


def make_request(
    artifacts: Artifacts,
    files: tuple[Path, ...],
    folder: Path,
    options: dict[str, Any],
    on_bad_row: BadRowPolicy,
) -> DataRequest:
    """Return a request to read other data in the same way as the training data."""
    metadata = artifacts.metadata
    names = [option.name for option in fields(DataOptions)]
    for name in options:
        if name not in names:
            raise GlassError(f"unknown option {name!r}{did_you_mean(name, names)}")
    return DataRequest(
        files=save_streams(files, folder),
        valid_fraction=1.0,
        is_evaluation=True,
        base_tokenizer=artifacts.tokenizer,
        labels=tuple(metadata.get("labels", ())),
        multi_label=bool(metadata.get("multi_label")),
        trained_text=tuple(metadata.get("text", ())),
        trained_label=metadata.get("label"),
        trained_target=metadata.get("target"),
        trained_metadata=metadata,
        on_bad_row=on_bad_row,
        **{"image_size": metadata.get("image_size"), **options},
    )


def open_run_task(spec: TaskSpec, artifacts: Artifacts, path: Path) -> Task:
    """Open the task on the data that a run was trained and validated on."""
    cache = Run(path).cache
    if not cache.is_dir():
        raise GlassError(f"{path} has no validation data: specify the data to evaluate it on")
    Run(path).verify("cache/")
    with wrap_read_errors(path):
        return spec.open(artifacts, cache)
