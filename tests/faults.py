"""Helpers to kill runs and fill their disk; the runs must end as if nothing had happened."""

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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from glassformer import GlassError, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core import folder
from glassformer.core.reporter import NullReporter
from glassformer.training import train as training
from glassformer.training.resume import resume
from glassformer.training.run import Run, find_damage
from glassformer.training.trainer import Trainer

COMMAND = [sys.executable, "-c", "from glassformer.cli import main; main()"]
OPTIONS = [
    *("--steps", "200", "--save-every", "7", "--threads", "1", "--device", "cpu"),
    *("--set", "train.precision=float32", "--set", "train.evaluate_every=40"),
    *("--set", "model.dim=48", "--set", "model.depth=2", "--set", "model.heads=2"),
    *("--set", "model.context=32", "--set", "train.batch_size=8", "--set", "model.dropout=0.1"),
]


def hash_weights(run: Path) -> dict[str, str]:
    """Return the SHA-256 of the best and the last weights of a run."""
    return {
        name: hashlib.sha256((run / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("best", "last")
    }


def kill_until_done(folder: Path, kills: int, seed: int) -> tuple[int, bool]:
    """Kill a run at random moments and resume it each time, then let it end.

    Returns the number of kills, and whether the weights are those of a run that was not killed.
    """
    text, run = folder / "book.txt", folder / "run"
    text.write_text("the cat sat on the mat and the dog sat on the log. " * 400)
    command = [*COMMAND, "train", "generate", str(text), *OPTIONS]
    start = time.monotonic()
    run_or_kill([*command, "--run", str(folder / "reference")], folder, None)
    seconds = time.monotonic() - start
    generator, killed, line = random.Random(seed), 0, [*command, "--run", str(run)]
    while killed < kills:
        if run_or_kill(line, folder, generator.uniform(0.2 * seconds, seconds)):
            shutil.rmtree(run)  # it ended before the kill: continue with a new run
        else:
            killed += 1
        line = [*COMMAND, "resume", str(run)] if run.exists() else [*command, "--run", str(run)]
    run_or_kill(line, folder, None)
    return killed, hash_weights(run) == hash_weights(folder / "reference")


def run_or_kill(line: list[str], folder: Path, seconds: float | None) -> bool:
    """Run a command, and kill it after some seconds; return whether it ended by itself.

    Its exit code must be 0 then.
    """
    with (folder / "output.txt").open("w+") as output:
        process = subprocess.Popen(line, stderr=output, stdout=output)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        output.seek(0)
        assert process.returncode == 0, output.read()
    return True


def wait_for_steps(run: Path, process: subprocess.Popen) -> None:
    """Wait until a run has saved a checkpoint after at least one step."""
    while saved_step(run) == 0:
        assert process.poll() is None
        time.sleep(0.05)


def saved_step(run: Path) -> int:
    """Return the step of the last checkpoint; 0 if there is none or it is being replaced."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((run / LAST / "training.json").read_text())["step"]
    return 0


# --- full disks -----------------------------------------------------------------------------------


class DiskFullError(Exception):
    pass


def raise_disk_full(attempt):
    """Turn the error of a full disk into DiskFullError; the message must name the cause."""
    try:
        attempt()
    except (GlassError, OSError) as error:
        if "No space left" in str(error):
            raise DiskFullError from None
        raise


class FullDisk:
    """A simulated disk that is full after a number of writes of any kind."""

    def __init__(self, monkeypatch, writes):
        self.writes_left = writes
        self.has_failed = False
        for owner, name in (
            (folder, "fsync_path"), (folder, "swap_folders"), (Path, "write_text"), (Path, "open"),
            (Path, "rename"), (Path, "replace"), (Path, "mkdir"), (Run, "log_metrics"),
            (Run, "log"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.wrap(getattr(owner, name), name))
        monkeypatch.setattr(
            "glassformer.weights.save_file",
            self.wrap(sys.modules["glassformer.weights"].save_file, "save"),
        )

    def wrap(self, function, name):
        def call_or_fail(*args, **options):
            mode = args[1] if len(args) > 1 else options.get("mode", "r")
            if name != "open" or mode[0] != "r":
                self.writes_left -= 1
                if self.writes_left < 0:
                    self.has_failed = True
                    raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **options)

        return call_or_fail


def fill_disk_at_every_write(home: Path, train: Callable, every: int = 1) -> int:
    """Train with a disk that is full at the first write, then at a later one, and so on.

    Each time the run is resumed and must end with the same weights. `train` creates a run in a
    folder; `every` is the number of writes between two trials. Returns the number of failures.
    """
    train(home / "reference")
    failures = 0
    while True:
        run, n = home / "run", failures * every
        with pytest.MonkeyPatch.context() as patch:
            set_up, disks = training.set_up, []

            def set_up_and_fill(*args, patch=patch, set_up=set_up, disks=disks, n=n):
                trainer = set_up(*args)
                disks.append(FullDisk(patch, n))
                return trainer

            patch.setattr(training, "set_up", set_up_and_fill)
            with contextlib.suppress(DiskFullError):
                raise_disk_full(lambda run=run: train(run))
        names = {p.name for p in run.iterdir()}
        assert not {name for name in names if name.startswith(".")}, n
        load(run / LAST)
        if (run / BEST).exists():
            load(run / BEST)
        resume(run, NullReporter())
        assert hash_weights(run) == hash_weights(home / "reference"), n
        assert find_damage(run) == []
        shutil.rmtree(run)
        if not disks[0].has_failed:
            return failures
        failures += 1


@contextlib.contextmanager
def stopping_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop every run, as Ctrl-C does, after this many steps."""
    take_step = Trainer.take_step

    def stop(trainer, progress):
        trainer.is_stopping = trainer.state.step == steps - 1
        return take_step(trainer, progress)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "take_step", stop)
        yield
