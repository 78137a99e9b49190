"""Runs that are killed at random moments, and must end as if nothing had happened."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from glassformer.cli import main; main()"]
OPTIONS = [
    *("--steps", "200", "--save-every", "7", "--threads", "1", "--device", "cpu"),
    *("--set", "train.precision=float32", "--set", "train.evaluate_every=40"),
    *("--set", "model.dim=48", "--set", "model.depth=2", "--set", "model.heads=2"),
    *("--set", "model.context=32", "--set", "train.batch=8", "--set", "model.dropout=0.1"),
]


def hashes(run: Path) -> dict[str, str]:
    """What a run came to: the best and the last weights."""
    return {
        name: hashlib.sha256((run / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("best", "last")
    }


def killed_until_done(folder: Path, kills: int, seed: int) -> tuple[int, bool]:
    """Kill a run so often and go on with it; how often it was hit, and whether the end is equal."""
    text, run = folder / "book.txt", folder / "run"
    text.write_text("the cat sat on the mat and the dog sat on the log. " * 400)
    begin = [*COMMAND, "train", "generate", str(text), *OPTIONS]
    start = time.monotonic()
    patient([*begin, "--run", str(folder / "whole")], folder, None)
    whole = time.monotonic() - start
    choose, hit, line = random.Random(seed), 0, [*begin, "--run", str(run)]
    while hit < kills:
        if patient(line, folder, choose.uniform(0.2 * whole, whole)):
            shutil.rmtree(run)  # it was done before: the kills go on with another
        else:
            hit += 1
        line = [*COMMAND, "resume", str(run)] if run.exists() else [*begin, "--run", str(run)]
    patient(line, folder, None)
    return hit, hashes(run) == hashes(folder / "whole")


def patient(line: list[str], folder: Path, seconds: float | None) -> bool:
    """Run a command for so long at the most; whether it came to its end, which must be good."""
    with (folder / "said.txt").open("w+") as said:
        process = subprocess.Popen(line, stderr=said, stdout=said)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        said.seek(0)
        assert process.returncode == 0, said.read()
    return True
