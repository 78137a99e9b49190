"""Recommenders on MovieLens (ml-latest-small): ratings, and the next film.

    python bench/recommend.py RUNS DATA

DATA holds ml-latest-small/ratings.csv.gz and movies.csv.gz. The script splits the ratings, trains
the recipes that have no run in the folder RUNS yet, and prints a table of their metrics on the test
split. Validation data, from which the best weights are chosen, is a part of the training split.

- ratings: a tenth, by a hash of user and film, is for testing;
- next film: the last film of each user is for testing, and the one before for validation.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import shutil
import sys
from pathlib import Path

from glassformer.training.evaluate import evaluate
from glassformer.training.train import train

RECIPES = Path(__file__).parents[1] / "recipes"
FILES = {  # the training file and the test file of each recipe
    "biases": ("ratings-train.csv", "ratings-test.csv"),
    "factorization": ("ratings-train.csv", "ratings-test.csv"),
    "popularity": ("next-train.csv", "next-test.csv"),
    "sasrec": ("next-train.csv", "next-test.csv"),
}
METRICS = ("mean_rmse", "rmse", "hit_rate_10", "ndcg_10")
Row = dict[str, str]


def is_test(row: Row) -> bool:
    """Whether a rating is among the tenth for testing."""
    key = f"{row['userId']} {row['movieId']}".encode()
    return int(hashlib.sha256(key).hexdigest(), 16) % 10 == 0


def last_ratings(rows: list[Row]) -> set[tuple[str, str]]:
    """The user and film of the last rating of each user; of equal times, the last row counts."""
    ordered = sorted(rows, key=lambda row: int(row["timestamp"]))
    return set({row["userId"]: (row["userId"], row["movieId"]) for row in ordered}.values())


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def split(source: Path, folder: Path) -> None:
    """Write the four files with ratings, and movies.csv."""
    with gzip.open(source / "ratings.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    last = last_ratings(rows)
    write(folder / "ratings-train.csv", [row for row in rows if not is_test(row)])
    write(folder / "ratings-test.csv", [row for row in rows if is_test(row)])
    write(
        folder / "next-train.csv",
        [row for row in rows if (row["userId"], row["movieId"]) not in last],
    )
    write(folder / "next-test.csv", rows)  # the films before the last one are its input
    with gzip.open(source / "movies.csv.gz") as movies, (folder / "movies.csv").open("wb") as out:
        shutil.copyfileobj(movies, out)


def main(runs: Path, data: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    split(data / "ml-latest-small", runs)
    print("| model | " + " | ".join(METRICS) + " |\n|" + " --- |" * (len(METRICS) + 1))
    for name, (train_file, test_file) in FILES.items():
        run, recipe = runs / name, RECIPES / f"{name}.toml"
        if not run.exists():
            train(None, runs / train_file, runs / "movies.csv", run=run, config=recipe, threads=1)
        found = evaluate(run, (runs / test_file,))
        cells = [f"{found[metric]:.4g}" if metric in found else "" for metric in METRICS]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
