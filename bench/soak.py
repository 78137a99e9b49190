"""Soak tests, which take a long time.

Training on 1 GB of text in little memory; a hundred kills; a disk that is full at every
write; 12,000 corrupted folders and files; the comparisons that a tutorial's section names.

    make soak

Needs no data: the text consists of paragraphs of Python's own documentation in random order.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from glassformer.core.reporter import NullReporter
from glassformer.data.sample import python_documentation
from glassformer.lessons.tutorials import read_table
from glassformer.training.train import train

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from faults import fill_disk_at_every_write, kill_until_done

MAX_GB = 1.25  # for a text of 1 GB; without the prior, 1.0
GLASS = [sys.executable, "-c", "from glassformer.cli import main; main()"]


def write_large_text(path: Path, size: int) -> None:
    paragraphs = [p for topic in python_documentation() for p in topic.split("\n\n") if p]
    rng, written = random.Random(0), 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            text = f"{rng.choice(paragraphs)} {rng.randrange(10**6)}\n\n"
            written += len(text.encode())
            file.write(text)


def soak_large_text(folder: Path, size: int = 10**9) -> None:
    """Training on a large text, including tokenizer and prior, takes less than MAX_GB of memory."""
    file = folder / "large.txt"
    write_large_text(file, size)
    start = time.monotonic()
    command = ["train", "generate", str(file), "--run", str(folder / "run"), "--steps", "300"]
    done = subprocess.run([*GLASS, *command, "--json"], stdout=subprocess.PIPE, check=True)
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    bits = json.loads(done.stdout)["bits_per_byte"]
    print(
        f"{size / 1e9:.2f} GB of text, 300 steps: peak memory {peak:.2f} GB, {seconds:.0f} s, "
        f"{bits:.3f} bits per byte"
    )
    assert peak < MAX_GB, f"peak memory {peak:.2f} GB, expected less than {MAX_GB} GB"


def soak_kills(folder: Path, kills: int = 100) -> None:
    """A run that is killed repeatedly ends with the weights of an uninterrupted run."""
    killed, is_same = kill_until_done(folder, kills=kills, seed=1)
    print(f"{killed} kills at random times: weights are {'the same' if is_same else 'DIFFERENT'}")
    assert is_same


def soak_full_disk(folder: Path) -> None:
    """Whichever write of a run fails, the resumed run ends with the same weights."""
    text = folder / "book.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    settings = [
        "model.dim=32",
        "model.depth=1",
        "model.heads=2",
        "model.context=32",
        "train.batch_size=4",
    ]

    def train_small(run: Path) -> None:
        train(
            "generate", text, run=run, settings=settings, steps=12, save_every=3, evaluate_every=4,
            device="cpu", precision="float32", threads=1, reporter=NullReporter(),
        )  # fmt: skip

    failures = fill_disk_at_every_write(folder, train_small)
    print(f"disk full at each of {failures} writes: nothing is lost")


def soak_fuzz(folder: Path, cases: int = 12_000, seconds: float = 2.0) -> None:
    """Corrupted folders and files are loaded or rejected, quickly and in little memory."""
    fuzzer = Path(__file__).parents[1] / "tests" / "fuzz.py"
    command = [sys.executable, str(fuzzer), "--cases", str(cases), "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--seed", "1"],
        stdout=subprocess.PIPE, check=True, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    report = json.loads(done.stdout)
    failures, (slowest, case) = report["failures"], report["slowest"]
    print(
        f"{report['cases']:,} corrupted folders and files: {report['loaded']:,} loaded, "
        f"{report['refused']:,} rejected, {len(failures)} FAILED; mean "
        f"{report['average'] * 1000:.0f} ms, slowest {slowest:.1f} s (case {case}), peak memory "
        f"grew by {report['peak_mb_growth']:.0f} MB"
    )
    assert not failures, json.dumps(failures, indent=1)


def list_comparisons() -> list[str]:
    """The comparisons in the table of tutorials, as the arguments of `glass`."""
    rows = [row for tutorial in read_table()["tutorials"].values() for row in tutorial["sections"]]
    return sorted({line for row in rows for line in row["run"] if line.startswith("compare ")})


def soak_comparisons(folder: Path, steps: int = 20) -> None:
    """The comparisons in the table of tutorials, which the tests leave out, run to the end."""
    commands = list_comparisons()
    for command in commands:
        words = shlex.split(command)
        words[words.index("--minutes") :] = ["--steps", str(steps), "--set", "model.dim=48"]
        subprocess.run([*GLASS, *words], cwd=folder, check=True)
    assert commands


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        soak_large_text(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_kills(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_full_disk(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_fuzz(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        soak_comparisons(Path(scratch))
