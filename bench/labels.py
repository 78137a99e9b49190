"""What reading first is worth: 1,000 labelled reviews, with and without a model that read many.

    python bench/labels.py REVIEWS.jsonl[.gz] FOLDER [LABELS [SEEDS]]

Of the reviews (columns text and label), shuffled, a tenth is held out; a BERT learns to guess
hidden words in the text of all others (recipes/masked.toml), and is then trained on the first
LABELS of them (1,000), as are a BERT from nothing and a machine that weighs phrases. Three SEEDS
each. What is in FOLDER already is not done again.
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
READ = {"text": ("text",), "label": "label"}
SAME = ["model.context=256", "model.dropout=0.1"]
SHAPE = ["model.position=alibi", "model.dim=128", "model.depth=3", "model.heads=4"]


def split(file: Path, folder: Path, labels: int) -> tuple[Path, Path, Path]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)
    cut = len(rows) * 9 // 10
    parts = {"texts": rows[:cut], "labelled": rows[: min(labels, cut)], "held-out": rows[cut:]}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, part in parts.items():
        paths.append(folder / f"{name}-{labels}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in part))
    return paths[0], paths[1], paths[2]


def trained(folder: Path, name: str, seed: int, *data: Path, **options) -> dict:
    run = folder / f"{name}-{seed}"
    result = run.with_suffix(".json")
    if not result.exists():
        found = train("classify", *data, run=run, seed=seed, overwrite=run.exists(), **options)
        result.write_text(json.dumps(found))
    return read_json(result)


def measure(file: Path, folder: Path, labels: int = 1000, seeds: int = 3) -> dict[str, list[float]]:
    """The share of the held-out reviews that each way gets right, a figure for each seed."""
    texts, labelled, held_out = split(file, folder, labels)
    if not (folder / "masked" / "README.md").exists():
        train(None, texts, config=RECIPE, run=folder / "masked", text=("text",), valid=[held_out])
    passes = max(5000 / labels, 1)
    common = {**READ, "valid": [held_out], "epochs": passes, "baseline": False}
    gentle = {"batch_size": 4, "lr": 5e-4}
    nothing = {"model": "bert", "settings": [*SAME, *SHAPE], **gentle}
    kinds = {
        "on what was read": {"base": folder / "masked", "settings": SAME, **gentle},
        "from nothing": nothing,
        "weighing phrases": {"model": "nb_svm"},
    }
    if seeds > 1:  # is it the rate? Asked only where it does not take long
        kinds["from nothing, three times the rate"] = {**nothing, "lr": 1.5e-3}
    found = {}
    for name, options in kinds.items():
        runs = [
            trained(folder, f"{name}-{labels}", seed, labelled, **common, **options)
            for seed in range(seeds)
        ]
        found[name] = [run["accuracy"] for run in runs]
        each = ", ".join(f"{figure:.3f}" for figure in found[name])
        print(f"{name:<34} {statistics.mean(found[name]):.3f}  ({each})", flush=True)
    return found


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
