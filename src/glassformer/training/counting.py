"""What counting alone reaches: models that learn in one go, and the baseline of every run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from torch import nn

from glassformer import checkpoint, models
from glassformer.errors import GlassError
from glassformer.folder import read_json
from glassformer.live import Live
from glassformer.tasks.task import Task, is_gain
from glassformer.training.run import BASELINE, Run
from glassformer.training.settings import MINUTES, Training

FIGURES = "figures.json"
MOST = 90.0  # seconds for a baseline
PART = 0.1  # of a budget in minutes
LARGEST = 2_000_000  # tokens of a running text that are counted, for the sake of memory
EXAMPLES = 5_000  # that a baseline is judged on, at the most
TRIAL = 100_000  # tokens that are learnt from before it is known how long all would take


def teach(task: Task, network: nn.Module, seconds: float | None = None) -> float:
    """Let a model learn in one go, from all there is or as much as fits: which share.

    Running text is counted up to a size, for the sake of memory; with `seconds` a first part tells
    how long all would take.
    """
    most = 1.0 if task.table else min(LARGEST / max(task.size, 1), 1.0)
    trial = TRIAL / max(task.size, 1)
    if seconds is None or trial >= most:
        return task.teach(network, most)
    task.teach(network, trial / 20)  # what is done only once shall not count
    start = time.monotonic()
    first = task.teach(network, trial)
    spent = time.monotonic() - start
    share = min(0.7 * (seconds - spent) / spent * trial, most)
    return task.teach(network, share) if share > trial else first


def count_baseline(task: Task, run: Run, learning: Training, tell: Live) -> dict[str, Any]:
    """The figures of a model that only counts, which is kept in the run as its baseline."""
    start = time.monotonic()
    name = task.counted
    known = models.MODELS[name].Config.__dataclass_fields__
    network = models.build(name, {k: v for k, v in task.sizes().items() if k in known})
    limit = MOST if learning.steps or learning.epochs else PART * 60 * (learning.minutes or MINUTES)
    share = teach(task, network, min(limit, MOST) / 2)
    figures = task.evaluate(network.eval(), task.whole or EXAMPLES)
    seconds = round(time.monotonic() - start, 1)
    figures |= {"model": name, "share": round(share, 4), "seconds": seconds}
    facts = {"name": task.name, **task.facts}

    def more(folder: Path) -> None:
        (folder / FIGURES).write_text(json.dumps(figures), encoding="utf-8")

    checkpoint.save(
        run.path / BASELINE, network, task.tokenizer, task=facts, more=more, overwrite=True
    )
    part = "" if share == 1 else f" ({share:.0%} of the data)"
    value = figures[task.verdict]
    tell(f"{task.simple}{part}: {task.verdict.replace('_', ' ')} {value:.4g}, in {seconds:.1f} s")
    return figures


def known_baseline(run: Run, task: Task) -> dict[str, Any]:
    """The figures of the baseline that a run has; none if it has none."""
    file = run.path / BASELINE / FIGURES
    if not file.exists():
        return {}
    figures: dict[str, Any] = read_json(file)
    if not isinstance(figures, dict) or not isinstance(figures.get(task.verdict), int | float):
        raise GlassError(f"{file} is damaged: it does not say {task.verdict}")
    return figures


def beats(task: Task, figures: dict[str, Any], baseline: dict[str, Any]) -> bool:
    ours, simple = (float(those[task.verdict]) for those in (figures, baseline))
    return ours > simple if is_gain(task.verdict) else ours < simple


def sentence(task: Task, figures: dict[str, Any], baseline: dict[str, Any]) -> str:
    """In plain words: whether it was worth training, beside counting."""
    what = task.verdict.replace("_", " ")
    ours, simple = (f"{what} {those[task.verdict]:.4g}" for those in (figures, baseline))
    if beats(task, figures, baseline):
        return f"{ours}: better than {task.simple} ({simple})"
    return (
        f"{ours}: NOT better than {task.simple} ({simple}); for this data, as it stands, counting "
        f"is enough: --model {task.counted}"
    )
