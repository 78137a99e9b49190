"""Classification and translation with an equal time budget, next to the baselines.

    python bench/tables.py DATA RESULTS [--only imdb multi30k-de-en] [--folds 2] [--minutes 3]

DATA is a folder with imdb/train.jsonl.gz, multi30k/{train,val,test_2016_flickr}.{de,en}.gz and
cmn-eng/train.tsv.gz.
RESULTS is a JSON-lines file: every finished run appends a line, so the script can be stopped at
any time and continues where it left off. At the end it writes a table of what has been measured.

IMDb: five folds of the 25,000 reviews; each is scored once by models that were trained on the other
four, a tenth of which selects the best checkpoint (and, for a model with a prior, fits its two
weights). Multi30k: `val` selects the checkpoint, `test_2016_flickr` is translated once, with beam
search (beam size 5); BLEU is sacreBLEU's, cased. Chinese-English: the split of bench/chinese.py,
translated in the same way. A time budget covers the entire `glass train` command.
"""

import argparse
import csv
import gzip
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import chinese
import numpy as np
from quality import GLASS, append_result, check_output, matmul_speed, mean, read_results

from glassformer import load
from glassformer.tasks.translation_metrics import compute_bleu

FOLDS, SEEDS, BEAMS = 5, 3, 5
CONTENDERS = {
    "imdb": {
        "default": (),
        "NB-SVM": ("--model", "nb_svm"),
        "default without prior": ("--no-prior",),
        "classifier": ("--model", "classifier"),
    },
    "translate": {"default": (), "phrase table": ("--model", "phrase_table"),
                  "default without prior": ("--no-prior",),
                  "translator": ("--model", "translator")},
}  # fmt: skip
MINUTES = {
    "imdb": (10.0,),
    "multi30k-de-en": (3.0, 30.0),
    "multi30k-en-de": (30.0,),
    "cmn-en": (30.0,),
}


@dataclass(frozen=True)
class Job:
    data: str
    minutes: float
    fold: int  # for translation, the seed
    model: str

    @property
    def key(self) -> tuple[str, float, int, str]:
        return self.data, self.minutes, self.fold, self.model


def list_jobs(minutes: Sequence[float] = ()) -> list[Job]:
    """All runs, in blocks of one fold or seed; with `minutes`, with these budgets instead."""
    jobs = []
    for fold in range(FOLDS):
        for name, budgets in MINUTES.items():
            if name == "imdb" or fold < SEEDS:
                contenders = CONTENDERS["imdb" if name == "imdb" else "translate"]
                jobs += [Job(name, budget, fold, model) for budget in minutes or budgets
                         for model in contenders]  # fmt: skip
    return jobs


def write_table(file: Path, rows: list[list[str]]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows(rows)
    return file


def write_reviews(data: Path, folder: Path, fold: int) -> dict[str, Path]:
    with gzip.open(data / "imdb/train.jsonl.gz", "rt", encoding="utf-8") as file:
        reviews = [json.loads(line) for line in file]
    order = np.random.default_rng(0).permutation(len(reviews))
    rows = [[reviews[i]["text"], str(reviews[i]["label"])] for i in order]
    parts = {"test": rows[fold::FOLDS]}
    parts["train"] = [row for i, row in enumerate(rows) if i % FOLDS != fold]
    header = ["text", "label"]
    return {n: write_table(folder / f"{n}.csv", [header, *part]) for n, part in parts.items()}


def write_pairs(data: Path, folder: Path, source: str, target: str) -> dict[str, Path]:
    files = {}
    for name, file in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
        texts = []
        for language in (source, target):
            path = data / f"multi30k/{file}.{language}.gz"
            texts.append(gzip.decompress(path.read_bytes()).decode().split("\n"))
        pairs = [[a.strip(), b.strip()] for a, b in zip(*texts, strict=True)]
        pairs = [pair for pair in pairs if all(pair)]
        files[name] = write_table(folder / f"{name}.csv", [["source", "target"], *pairs])
    return files


def write_chinese_pairs(data: Path, folder: Path) -> dict[str, Path]:
    chinese.split(data / "cmn-eng/train.tsv.gz", folder)
    files = {}
    for name in ("train", "valid", "test"):
        lines = (folder / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines[1:]]
        files[name] = write_table(folder / f"{name}.csv", [["source", "target"], *rows])
    return files


def run_job(job: Job, data: Path, folder: Path) -> dict[str, float]:
    """Train and score a model on one fold of the reviews, or on one direction of the pairs."""
    kind, _, languages = job.data.partition("-")
    contenders = CONTENDERS["imdb" if kind == "imdb" else "translate"]
    options, run = contenders[job.model], folder / "run"
    if kind == "imdb":
        files = write_reviews(data, folder, job.fold)
        command = [*GLASS, "train", "classify", str(files["train"])]
    else:
        is_chinese = kind == "cmn"
        files = (write_chinese_pairs(data, folder) if is_chinese
                 else write_pairs(data, folder, *languages.split("-")))  # fmt: skip
        command = [*GLASS, "train", "translate", str(files["train"]), "--valid"]
        command += [str(files["valid"]), "--text", "source", "--text", "target"]
    command += ["--minutes", str(job.minutes), "--seed", str(job.fold), "--run", str(run), "--json"]
    start = time.monotonic()
    trained = json.loads(check_output([*command, *options]))
    seconds = time.monotonic() - start
    if kind == "imdb":
        found = json.loads(check_output([*GLASS, "evaluate", str(run), str(files["test"]),
                                         "--json"]))  # fmt: skip
        scores = {name: found[name] for name in ("accuracy", "loss", "calibration_error")}
    else:
        with files["test"].open(encoding="utf-8", newline="") as handle:
            pairs = list(csv.DictReader(handle))
        translations = load(run).translate([pair["source"] for pair in pairs], beam=BEAMS)
        found = compute_bleu(translations, [pair["target"] for pair in pairs])
        scores = {"bleu": found["bleu"], "chrf": found["chrf"]}
    return {**scores, "steps": trained["steps"], "seconds": seconds}


def report(results: list[dict], file: Path) -> None:
    """Write a table of what has been measured."""
    machines = sorted({f"{r['machine']}, torch {r['torch']}" for r in results})
    speeds, dates = [r["gflops"] for r in results], [r["date"] for r in results]
    lines = [
        "# Classification and translation with an equal time budget",
        "",
        "Generated by `python bench/tables.py DATA RESULTS`; its docstring explains the splits. "
        "Scores (accuracy for IMDb) are means over folds or seeds, and *folds or seeds* is their "
        "number; higher is better.",
        "",
        f"Machine: {'; '.join(machines)}; matrix products at {min(speeds):.0f} to "
        f"{max(speeds):.0f} GFLOP/s; {min(dates)} to {max(dates)}.",
        "",
        "| data | minutes | model | score | folds or seeds | steps |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    groups: dict[tuple, list[dict]] = {}
    for row in results:
        groups.setdefault((row["data"], row["minutes"], row["model"]), []).append(row)
    for (data, minutes, model), rows in sorted(groups.items()):
        is_labeled = data == "imdb"
        score = f"{mean(rows, 'accuracy'):.4f}" if is_labeled else f"{mean(rows, 'bleu'):.1f} BLEU"
        steps = f"{mean(rows, 'steps'):,.0f}"
        lines.append(f"| {data} | {minutes:g} | {model} | {score} | {len(rows)} | {steps} |")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", nargs="+", default=[*MINUTES], help="only these data sets")
    parser.add_argument("--models", nargs="+", help="only these models")
    parser.add_argument("--folds", type=int, default=FOLDS, help="only the first folds or seeds")
    parser.add_argument("--minutes", nargs="+", type=float, default=(), help="other budgets")
    parser.add_argument("--out", type=Path, help="the report; by default RESULTS with suffix .md")
    args = parser.parse_args()
    results = read_results(args.results)
    done = {(r["data"], r["minutes"], r["fold"], r["model"]) for r in results}
    for job in list_jobs(args.minutes):
        is_wanted = job.data in args.only and job.fold < args.folds
        is_wanted = is_wanted and (args.models is None or job.model in args.models)
        if job.key in done or not is_wanted:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            speed = matmul_speed()
            scores = run_job(job, args.data, Path(scratch))
        names = ("data", "minutes", "fold", "model")
        results.append(append_result(args.results, dict(zip(names, job.key, strict=True)), scores,
                                     speed))  # fmt: skip
    if results:
        report(results, args.out or args.results.with_suffix(".md"))


if __name__ == "__main__":
    main()
