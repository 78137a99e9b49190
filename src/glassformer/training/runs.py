"""List the runs in a folder, rank them by their metric, and delete runs."""

import contextlib
import math
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer import checkpoint
from glassformer.core.config import read_toml
from glassformer.core.errors import GlassError
from glassformer.core.folder import find_subfolder, lock_folder, wrap_read_errors
from glassformer.core.reporter import Reporter
from glassformer.tasks import TASKS
from glassformer.tasks.task import METRICS, Metric
from glassformer.training.run import Run


@dataclass(frozen=True)
class RunSummary:
    """A run in a list: its metric is the final one or, during training, the best so far."""

    path: Path
    task: str
    model: str
    metric: Metric
    value: float | None  # None if nothing has been evaluated yet
    hours: float  # since the run was created

    def row(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "run": str(self.path),
            "task": self.task,
            "model": self.model,
            "metric": None if self.value is None else self.metric.name,
            "value": self.value,
            "hours": self.hours,
        }

    @property
    def rank(self) -> tuple[str, float]:
        """A key that sorts runs by task, and those of a task from best to worst."""
        value = self.value
        if value is None or math.isnan(value):
            return self.task, math.inf
        return self.task, -value if self.metric.higher_is_better else value


def find_runs(folder: Path, reporter: Reporter) -> list[RunSummary]:
    """Return the runs in a folder, oldest first; report those that cannot be read."""
    configs = [config for config in folder.glob(f"*/{checkpoint.CONFIG}") if config.is_file()]
    runs = []
    for config in sorted(configs, key=lambda file: file.stat().st_mtime):
        if config.parent.name.startswith("."):  # the backup of a run that is being overwritten
            continue
        try:
            with wrap_read_errors(config.parent):
                runs.append(summarize_run(config.parent))
        except GlassError as error:
            reporter(str(error))
    return runs


def summarize_run(path: Path) -> RunSummary:
    tables = read_tables(path)
    metrics = Run(path).metrics()
    task = tables.get("task", {}).get("name", "-")
    metric = TASKS[task].metric if task in TASKS else METRICS["loss"]
    evaluations, final = (
        [m[metric.name] for m in metrics if m["kind"] == kind and metric.name in m]
        for kind in ("validation", "final")
    )
    value = None
    if evaluations:
        best = (max if metric.higher_is_better else min)(evaluations)
        value = float(final[-1] if final else best)
    seconds = max(time.time() - (path / checkpoint.CONFIG).stat().st_mtime, 0)
    model = tables.get("model", {}).get("name", "-")
    return RunSummary(path, task, model, metric, value, round(seconds / 3600, 2))


def read_tables(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tables of a run's config."""
    tables = read_toml(path / checkpoint.CONFIG)
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


def select_worst(runs: Iterable[RunSummary], keep: int) -> list[RunSummary]:
    """Return all runs but the `keep` best of each task."""
    worst, counts = [], dict[str, int]()
    for run in sorted(runs, key=lambda run: run.rank):
        counts[run.task] = counts.get(run.task, 0) + 1
        if counts[run.task] > keep:
            worst.append(run)
    return worst


# --- deletion -------------------------------------------------------------------------------------


def check_deletable(path: Path, others: Iterable[Path]) -> None:
    """Raise an error if a folder is not a run, is in use, or is the base model of another run."""
    for link in (path, *path.parents):
        if link.is_symlink():
            raise GlassError(
                f"{path} is reached through the symbolic link {link}: to delete the run, give its "
                f"real path, {path.resolve()}"
            )
    if not path.is_dir():
        raise GlassError(f"{path} is not a folder")
    if not (path / checkpoint.CONFIG).is_file():
        raise GlassError(f"{path} is not a run folder: it has no {checkpoint.CONFIG}")
    if not {"task", "model", "train"} <= read_tables(path).keys():
        raise GlassError(
            f"{path} is not a run folder: its {checkpoint.CONFIG} has no task, model and train "
            "settings"
        )
    for other in others:
        if (base := find_base(other)) and base.is_relative_to(path.resolve()):
            raise GlassError(
                f"{path} is the base model of the adapter in {other}: delete that first"
            )
    with lock_folder(path, f"another process is training in {path}"):
        pass


def find_base(path: Path) -> Path | None:
    """Return the folder of the base model that the adapter in a run needs, or None."""
    with contextlib.suppress(GlassError, OSError):  # a corrupted adapter is of no use anyway
        last = find_subfolder(path, checkpoint.LAST)
        if last and (adapter := checkpoint.read_adapter(last)):
            return Path(adapter.base).resolve()
    return None


def count_bytes(path: Path) -> int:
    """Return the size of the files in a folder."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def delete_run(path: Path) -> None:
    with Run(path).lock():
        shutil.rmtree(path.resolve())  # "." cannot be removed by that name
