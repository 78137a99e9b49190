"""Runs that are killed, or whose disk is full, and must end as if nothing had happened."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer import GlassError, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core import folder
from glassformer.core.reporter import NullReporter
from glassformer.training import train as training
from glassformer.training.run import Run, damage

COMMAND = [sys.executable, "-c", "from glassformer.cli import main; main()"]
OPTIONS = [
    *("--steps", "200", "--save-every", "7", "--threads", "1", "--device", "cpu"),
    *("--set", "train.precision=float32", "--set", "train.evaluate_every=40"),
    *("--set", "model.dim=48", "--set", "model.depth=2", "--set", "model.heads=2"),
    *("--set", "model.context=32", "--set", "train.batch_size=8", "--set", "model.dropout=0.1"),
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


def wait_for_steps(run: Path, process: subprocess.Popen) -> None:
    """Wait until a run has learnt from a step and saved it, however long that takes."""
    while saved_step(run) == 0:
        assert process.poll() is None
        time.sleep(0.05)


def saved_step(run: Path) -> int:
    """The step of the last checkpoint; 0 where there is none, or it is being exchanged."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((run / LAST / "training.json").read_text())["step"]
    return 0


# --- a disk that is full --------------------------------------------------------------------------


class DiskFullError(Exception):
    pass


def named(attempt):
    try:
        attempt()
    except (GlassError, OSError) as error:
        if "No space left" in str(error):
            raise DiskFullError from None
        raise


class Full:
    """A disk that is full from the n-th write on, wherever that write is."""

    def __init__(self, monkeypatch, after):
        self.left = after
        self.hit = False
        for owner, name in (
            (folder, "sync"), (folder, "exchange"), (Path, "write_text"), (Path, "open"),
            (Path, "rename"), (Path, "replace"), (Path, "mkdir"), (Run, "note"), (Run, "log"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.counted(getattr(owner, name), name))
        monkeypatch.setattr(
            "glassformer.weights.save_file",
            self.counted(sys.modules["glassformer.weights"].save_file, "save"),
        )

    def counted(self, function, name):
        def run(*args, **more):
            reads = (
                name == "open" and (args[1] if len(args) > 1 else more.get("mode", "r"))[0] == "r"
            )
            if not reads:
                self.left -= 1
                if self.left < 0:
                    self.hit = True
                    raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **more)

        return run


def full_at_every(home: Path, train: Callable, every: int = 1) -> int:
    """Let the disk be full from each of a run's writes on; it goes on to the same end each time.

    `train` makes a run in a folder. Gives back how many writes failed.
    """
    train(home / "whole")
    failures = 0
    while True:
        run, n = home / "run", failures * every
        with pytest.MonkeyPatch.context() as patch:
            begin, full = training.set_up, []

            def filled(*args, patch=patch, begin=begin, full=full, n=n):
                trainer = begin(*args)
                full.append(Full(patch, n))
                return trainer

            patch.setattr(training, "set_up", filled)
            with contextlib.suppress(DiskFullError):
                named(lambda run=run: train(run))
        left = {p.name for p in run.iterdir()}
        assert not {name for name in left if name.startswith(".")}, n
        load(run / LAST)
        if (run / BEST).exists():
            load(run / BEST)
        training.resume(run, NullReporter())
        assert hashes(run) == hashes(home / "whole"), n
        assert damage(run) == []
        shutil.rmtree(run)
        if not full[0].hit:
            return failures
        failures += 1
