"""The samples that need no download: what the defaults reach on them, beside a baseline.

    python bench/embedded.py [MINUTES A RUN]

Classification: which of ten packages some lines come from, split by file, against naive Bayes and
the weighed phrases of every run on the same splits, whichever wins. Translation: numbers and dates,
exact to the letter.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import load
from glassformer.tasks import TASKS
from glassformer.tasks.task import Artifacts
from glassformer.training.train import train

SEEDS = range(5)


def naive_bayes(run: Path) -> float:
    """How often each token occurs under each label, and nothing else."""
    model = load(run)
    artifacts = Artifacts(model.task, model.tokenizer)
    data: Any = TASKS["classify"].open(artifacts, run / "cache").dataset
    counts = np.ones((len(data.labels), model.tokenizer.vocab))
    for i, label in enumerate(data.answers["train"]):
        np.add.at(counts[label], data.texts["train"][i], 1)
    log = np.log(counts / counts.sum(axis=1, keepdims=True))
    prior = np.log(np.bincount(data.answers["train"], minlength=len(counts)) + 1)
    valid = data.texts["valid"]
    said = [int((prior + log[:, valid[i]].sum(axis=1)).argmax()) for i in range(len(valid))]
    return float((np.array(said) == data.answers["valid"]).mean())


def classification(folder: Path, minutes: float) -> None:
    figures: dict[str, list[float]] = {"classifier": [], "naive Bayes": [], "weighed phrases": []}
    examples = 0
    for seed in SEEDS:
        run = folder / f"classify{seed}"
        result = train("classify", run=run, minutes=minutes, seed=seed)
        beside = (naive_bayes(run), result["baseline"]["accuracy"])
        for those, figure in zip(figures.values(), (result["accuracy"], *beside), strict=True):
            those.append(figure)
        examples += result["examples"]
    for name, those in figures.items():
        each = ", ".join(f"{figure:.3f}" for figure in those)
        print(f"{name:<16} {statistics.mean(those):.3f}  ({each}; {examples} texts in all)")


def translation(folder: Path, minutes: float) -> None:
    result = train("translate", run=folder / "translate", minutes=minutes)
    print(f"translation      {result['exact']:.1%} of {result['examples']} exact")


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if sys.argv[1:] else 5.0
    with tempfile.TemporaryDirectory() as scratch:
        classification(Path(scratch), min(minutes, 1.5))
        translation(Path(scratch), minutes)
