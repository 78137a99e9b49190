"""The default models on the built-in samples, compared with baselines.

    python bench/embedded.py [MINUTES PER RUN]

Classification: which of ten packages a snippet comes from, split by file, compared with naive Bayes
and the run's own baseline (NB-SVM) on the same splits. Translation: exact matches on numbers and
dates.
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


def evaluate_naive_bayes(run: Path) -> float:
    """Return the accuracy of multinomial naive Bayes on the data of a run."""
    model = load(run)
    artifacts = Artifacts(model.task, model.tokenizer)
    data: Any = TASKS["classify"].open(artifacts, run / "cache").dataset
    counts = np.ones((len(data.labels), model.tokenizer.vocab))
    for i, label in enumerate(data.targets["train"]):
        np.add.at(counts[label], data.texts["train"][i], 1)
    log = np.log(counts / counts.sum(axis=1, keepdims=True))
    prior = np.log(np.bincount(data.targets["train"], minlength=len(counts)) + 1)
    valid = data.texts["valid"]
    predictions = [int((prior + log[:, valid[i]].sum(axis=1)).argmax()) for i in range(len(valid))]
    return float((np.array(predictions) == data.targets["valid"]).mean())


def measure_classification(folder: Path, minutes: float) -> None:
    accuracies: dict[str, list[float]] = {"classifier": [], "naive Bayes": [], "NB-SVM": []}
    examples = 0
    for seed in SEEDS:
        run = folder / f"classify{seed}"
        result = train("classify", run=run, minutes=minutes, seed=seed)
        accuracies["classifier"].append(result["accuracy"])
        accuracies["naive Bayes"].append(evaluate_naive_bayes(run))
        accuracies["NB-SVM"].append(result["baseline"]["accuracy"])
        examples += result["examples"]
    for name, values in accuracies.items():
        each = ", ".join(f"{value:.3f}" for value in values)
        mean = statistics.mean(values)
        print(f"{name:<16} accuracy {mean:.3f}  (by seed: {each}; {examples} texts in total)")


def measure_translation(folder: Path, minutes: float) -> None:
    result = train("translate", run=folder / "translate", minutes=minutes)
    print(f"translation      exact match {result['exact']:.1%} of {result['examples']} examples")


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if sys.argv[1:] else 5.0
    with tempfile.TemporaryDirectory() as scratch:
        measure_classification(Path(scratch), min(minutes, 1.5))
        measure_translation(Path(scratch), minutes)
