"""A trained model's metrics on its own validation part, or on other data."""

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
    """Open the best weights of a run and evaluate them, on everything there is.

    `plot` is a picture to draw, of which labels were taken for which; `context` how many tokens of
    a running text are read at once, if not as many as in training.
    """
    folder = find_subfolder(path, BEST) or path
    if not (folder / checkpoint.CONFIG).exists():
        raise GlassError(f"{path} is no run or model of ours")
    network, tokenizer, metadata = checkpoint.load(folder)
    name = metadata.pop("name", None)
    if name not in TASKS:
        raise GlassError(f"{path} does not say what task it was trained for")
    spec, artifacts = TASKS[name], Artifacts(metadata, tokenizer)
    if context is not None and (spec.is_table or context < 1):
        raise GlassError("only running text is read in stretches, of at least one token")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        if files:
            task = task_on(spec, artifacts, files, Path(scratch), columns)
        else:
            task = task_of_run(spec, artifacts, path)
        metrics, scores = task.evaluate(network, context=context)
        if (path / BASELINE).is_dir():
            baseline, _, _ = checkpoint.load(path / BASELINE)
            found, _ = task.evaluate(baseline, context=context or network.context)
            metrics["baseline"] = {"model": registry.model_name(baseline), **found}
        if plot:
            for draw in spec.plots.values():
                draw(scores, artifacts, plot)
    seconds = round(time.monotonic() - start, 2)
    return {"task": name, "model": registry.model_name(network), **metrics, "seconds": seconds}


def task_on(
    spec: TaskSpec,
    artifacts: Artifacts,
    files: tuple[Path, ...],
    folder: Path,
    columns: dict[str, Any],
) -> Task:
    """The task on other data, read as that which the model was trained on."""
    known = artifacts.metadata
    columns["text"] = columns.get("text") or tuple(known.get("text", ()))
    columns["label"] = columns.get("label") or known.get("label")
    request = DataRequest(
        files=save_streams(files, folder, table=spec.is_table),
        valid_fraction=1.0,
        base_tokenizer=artifacts.tokenizer,
        labels=tuple(known.get("labels", ())),
        **columns,
    )
    return spec.open(spec.prepare(request, folder, NullReporter()), folder)


def task_of_run(spec: TaskSpec, artifacts: Artifacts, path: Path) -> Task:
    """The task on the data that a run was trained and validated on."""
    cache = Run(path).cache
    if not cache.is_dir():
        raise GlassError(f"{path} has no data of its own: name the data to measure it on")
    Run(path).require("cache/")
    with wrap_read_errors(path):
        return spec.open(artifacts, cache)
