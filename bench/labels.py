"""The value of pretraining: classify reviews with few labels, with and without pretraining.

    python bench/labels.py REVIEWS.jsonl[.gz] FOLDER [LABELS [SEEDS]]

A tenth of the shuffled reviews (columns text and label) is held out. A BERT is pretrained on the
text of all others (recipes/masked.toml) and fine-tuned on the first LABELS (1,000) of them. It is
compared with a BERT trained from scratch and with NB-SVM, with three SEEDS each. Runs that are
already in FOLDER are not repeated.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import sys
from pathlib import Path

from glassformer.core.folder import read_json
from glassformer.training.train import train

RECIPE = Path(__file__).parents[1] / "recipes" / "masked.toml"
COLUMNS = {"text": ("text",), "label": "label"}
COMMON = ["model.context=256", "model.dropout=0.1"]
SIZES = ["model.position=alibi", "model.dim=128", "model.depth=3", "model.heads=4"]


def split(file: Path, folder: Path, labels: int) -> tuple[Path, Path, Path]:
    """Write the reviews for pretraining, the labeled ones and the held-out ones."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)
    cut = len(rows) * 9 // 10
    splits = {"texts": rows[:cut], "labeled": rows[: min(labels, cut)], "held-out": rows[cut:]}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, split_rows in splits.items():
        paths.append(folder / f"{name}-{labels}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in split_rows))
    return paths[0], paths[1], paths[2]


def train_once(folder: Path, name: str, seed: int, *data: Path, **options) -> dict:
    """Train a classifier, or return the saved result."""
    run = folder / f"{name}-{seed}"
    file = run.with_suffix(".json")
    if not file.exists():
        result = train("classify", *data, run=run, seed=seed, overwrite=run.exists(), **options)
        file.write_text(json.dumps(result))
    return read_json(file)


def measure(file: Path, folder: Path, labels: int = 1000, seeds: int = 3) -> dict[str, list[float]]:
    """Return the accuracy of each method on the held-out reviews, by seed."""
    texts, labeled, held_out = split(file, folder, labels)
    if not (folder / "masked" / "README.md").exists():
        train(None, texts, config=RECIPE, run=folder / "masked", text=("text",), valid=[held_out])
    epochs = max(5000 / labels, 1)
    common = {**COLUMNS, "valid": [held_out], "epochs": epochs, "baseline": False, "prior": False}
    finetuning = {"batch_tokens": 4096, "lr": 5e-4}
    scratch = {"model": "bert", "settings": [*COMMON, *SIZES], **finetuning}
    methods = {
        "pretrained": {"base": folder / "masked", "settings": COMMON, **finetuning},
        "from scratch": scratch,
        "NB-SVM": {"model": "nb_svm"},
    }
    if seeds > 1:  # check a higher learning rate too, except in the slow comparison with one seed
        methods["from scratch, 3x learning rate"] = {**scratch, "lr": 1.5e-3}
    accuracies = {}
    for name, options in methods.items():
        results = [
            train_once(folder, f"{name}-{labels}", seed, labeled, **common, **options)
            for seed in range(seeds)
        ]
        accuracies[name] = [result["accuracy"] for result in results]
        each = ", ".join(f"{value:.3f}" for value in accuracies[name])
        mean = statistics.mean(accuracies[name])
        print(f"{name:<34} accuracy {mean:.3f}  (by seed: {each})", flush=True)
    return accuracies


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
