"""The samples that need no download: what the defaults reach on them, beside a baseline.

    python bench/embedded.py [MINUTES A RUN]

Classification: which of ten packages some lines come from, split by file, against naive Bayes on
the same splits, whichever wins. Translation: numbers and dates, exact to the letter.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from glassformer.training.start import train

SEEDS = range(5)


def classification(folder: Path, minutes: float) -> None:
    ours, theirs, examples = [], [], 0
    for seed in SEEDS:
        result = train("classify", run=folder / f"classify{seed}", minutes=minutes, seed=seed)
        ours.append(result["accuracy"])
        theirs.append(result["baseline"]["accuracy"])
        examples += result["examples"]
    for name, figures in (("classifier", ours), ("naive Bayes", theirs)):
        each = ", ".join(f"{figure:.3f}" for figure in figures)
        print(f"{name:<12} {statistics.mean(figures):.3f}  ({each}; {examples} texts in all)")


def translation(folder: Path, minutes: float) -> None:
    result = train("translate", run=folder / "translate", minutes=minutes)
    print(f"translation  {result['exact']:.1%} of {result['examples']} exact")


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if sys.argv[1:] else 5.0
    with tempfile.TemporaryDirectory() as scratch:
        classification(Path(scratch), min(minutes, 1.5))
        translation(Path(scratch), minutes)
