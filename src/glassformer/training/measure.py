"""A trained model's figures on its own validation part, or on other data."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from glassformer import checkpoint, models
from glassformer.checkpoint import BEST
from glassformer.data.files import kept_input
from glassformer.errors import GlassError
from glassformer.folder import reading, subfolder
from glassformer.live import Silent
from glassformer.tasks import TASKS
from glassformer.tasks.task import Given, Task
from glassformer.training.run import BASELINE, Run
from glassformer.training.show import plot_confusion


def baseline_on(task: Task, folder: Path) -> dict[str, Any]:
    """What the model that only counts reaches on the same data."""
    network, _, _ = checkpoint.load(folder)
    return {"model": models.name_of(network), **task.evaluate(network)}


def measure(
    path: Path,
    files: tuple[Path, ...] = (),
    *,
    plot: Path | None = None,
    context: int | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """Open the best weights of a run and evaluate them, on everything there is.

    `plot` is a picture to draw of which labels were taken for which; `context` how many tokens of
    a running text are read at once, if not as many as it learnt from.
    """
    folder = subfolder(path, BEST) or path
    if not (folder / checkpoint.CONFIG).exists():
        raise GlassError(f"{path} is no run or model of ours")
    network, tokenizer, facts = checkpoint.load(folder)
    name = facts.pop("name", None)
    if name not in TASKS or tokenizer is None:
        raise GlassError(f"{path} does not say what task it was trained for")
    if context is not None and (TASKS[name].table or context < 1):
        raise GlassError("only running text is read in stretches, of at least one token")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        if files:
            if name == "classify":
                columns["text"] = columns.get("text") or tuple(facts.get("text", ()))
                columns["label"] = columns.get("label") or facts.get("label")
            files = kept_input(files, Path(scratch), table=TASKS[name].table)
            labels = tuple(facts.get("labels", ()))
            given = Given(files=files, share=1.0, ready=tokenizer, labels=labels, **columns)
            task = TASKS[name].prepare(given, Path(scratch), Silent())
        else:
            cache = Run(path).cache
            if not cache.is_dir():
                raise GlassError(f"{path} has no data of its own: name the data to measure it on")
            Run(path).require("cache/")
            with reading(path):
                task = TASKS[name](tokenizer, facts, cache)  # type: ignore[call-arg]
        task.start(1, context or int(getattr(network.config, "context", 0)), 0)
        figures: dict[str, Any] = task.evaluate(network)
        drawn = getattr(task, "confusion", None)
        if (path / BASELINE).is_dir():
            figures["baseline"] = baseline_on(task, path / BASELINE)
        if plot and drawn is not None:
            plot_confusion(drawn, facts["labels"], plot)
    seconds = round(time.monotonic() - start, 2)
    return {"task": name, "model": models.name_of(network), **figures, "seconds": seconds}
