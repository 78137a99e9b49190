"""What takes long to show.

A text of 1 GB in less than 1 GB of memory; a hundred kills; a disk that is full at every write;
12,000 damaged folders and files.

    make soak

Needs no data: the text is made of the paragraphs of Python's own documentation, in random order.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from glassformer.core.reporter import NullReporter
from glassformer.data.sample import documentation
from glassformer.training.train import train

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from faults import fill_disk_at_every_write, kill_until_done

GLASS = [sys.executable, "-c", "from glassformer.cli import main; main()"]


def large_text(path: Path, size: int) -> None:
    paragraphs = [p for topic in documentation() for p in topic.split("\n\n") if p]
    choose, written = random.Random(0), 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            text = f"{choose.choice(paragraphs)} {choose.randrange(10**6)}\n\n"
            written += len(text.encode())
            file.write(text)


def soak_large_text(folder: Path, size: int = 10**9) -> None:
    """The most memory that training on the text takes, tokenizer, encoding and steps together."""
    file = folder / "large.txt"
    large_text(file, size)
    start = time.monotonic()
    command = ["train", "generate", str(file), "--run", str(folder / "run"), "--steps", "300"]
    done = subprocess.run([*GLASS, *command, "--json"], stdout=subprocess.PIPE, check=True)
    taken = time.monotonic() - start
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    figure = json.loads(done.stdout)["bits_per_byte"]
    print(
        f"{size / 1e9:.2f} GB of text, 300 steps: {most:.2f} GB of memory at the most, "
        f"{taken:.0f} s, {figure:.3f} bits per byte"
    )
    assert most < 1, "more than 1 GB"


def soak_kills(folder: Path, kills: int = 100) -> None:
    """A run that is killed again and again ends with the weights of one that was left alone."""
    hit, same = killed_until_done(folder, kills=kills, seed=1)
    print(f"{hit} kills at random moments: the weights are {'the same' if same else 'OTHERS'}")
    assert same


def soak_full_disk(folder: Path) -> None:
    """Whichever write of a run fails, it goes on to the same end."""
    text = folder / "book.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    sizes = [
        "model.dim=32",
        "model.depth=1",
        "model.heads=2",
        "model.context=32",
        "train.batch_size=4",
    ]

    def small(run: Path) -> None:
        train(
            "generate", text, run=run, settings=sizes, steps=12, save_every=3, evaluate_every=4,
            device="cpu", precision="float32", threads=1, reporter=NullReporter(),
        )  # fmt: skip

    print(f"the disk full from each of {full_at_every(folder, small)} writes on: nothing is lost")


def soak_fuzz(folder: Path, cases: int = 12_000, seconds: float = 2.0) -> None:
    """Damaged folders and files are used or refused, in little time and memory (tests/fuzz.py)."""
    fuzzer = Path(__file__).parents[1] / "tests" / "fuzz.py"
    command = [sys.executable, str(fuzzer), "--cases", str(cases), "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--seed", "1"],
        stdout=subprocess.PIPE, check=True, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    report = json.loads(done.stdout)
    failures, (slowest, case) = report["failures"], report["slowest"]
    print(
        f"{report['cases']:,} damaged folders and files: {report['loaded']:,} used, "
        f"{report['refused']:,} refused, {len(failures)} FAILED; {report['average'] * 1000:.0f} ms "
        f"each, {slowest:.1f} s at the most (case {case}), {report['peak_mb_growth']:.0f} MB more"
    )
    assert not failures, json.dumps(failures, indent=1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        soak_large_text(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_kills(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_full_disk(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_fuzz(Path(scratch))
