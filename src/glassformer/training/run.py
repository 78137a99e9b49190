"""A run folder: settings, log, figures, plots, and the weights `best/` and `last/`."""

import contextlib
import json
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint
from glassformer.checkpoint import BEST, LAST
from glassformer.core import config
from glassformer.core.errors import GlassError
from glassformer.core.folder import (
    MANIFEST,
    find_subfolder,
    hash_file,
    is_outside,
    lock_folder,
    read_json,
    read_text,
    recover_folder,
    verify_manifest,
    wrap_read_errors,
    wrap_write_errors,
    write_file,
)
from glassformer.text.tokenizer import Tokenizer

METRICS, LOG, ENVIRONMENT, CHECKSUMS = "metrics.jsonl", "train.log", "env.json", "checksums.json"
REQUEST, SCHEDULE = "request.json", "schedule.log"
BASELINE = "baseline"  # the model that only counts, in a folder of its own
GROWING = (METRICS, LOG, SCHEDULE, "skipped.jsonl")


def environment() -> dict[str, Any]:
    """What the numbers may depend on."""
    return {
        "glassformer": version("glassformer"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
    }


class Run:
    """Where a training run keeps what it does."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache = path, path / "cache"
        self.board: Any = None  # TensorBoard's writer, if it is wanted
        self.known: dict[tuple[str, int, int], str] = {}  # SHA-256 by name, size and time

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False) -> "Run":
        run = cls(path)
        if path.exists() and any(path.iterdir()):
            if not overwrite:
                raise GlassError(f"{path} exists already: choose another --run, or --overwrite it")
            if not (path / REQUEST).exists():
                raise GlassError(f"{path} is no run, so it is not overwritten")
            with run.held():
                shutil.rmtree(path) if run.aside.exists() else path.rename(run.aside)
        run.cache.mkdir(parents=True)
        return run

    @property
    def aside(self) -> Path:
        """Where a run that is to be replaced waits until the new one has begun."""
        return self.path.with_name(f".{self.path.name}.old")

    def discard(self) -> None:
        """Nothing was learnt: take the folder away, and put back what it was to replace."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.aside.exists():
            self.aside.rename(self.path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else trains here; what a killed process left half done is put right."""
        with lock_folder(self.path, f"another process is training in {self.path}"):
            for name in (BEST, LAST):
                recover_folder(self.path / name)
            yield

    def describe(self, tables: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        """Write down what was decided, before the first step."""
        if tokenizer is not None:
            write_file(self.path / checkpoint.TOKENIZER, tokenizer.to_json())
        write_file(self.path / ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
        write_file(self.path / checkpoint.CONFIG, config.to_toml(tables))

    def changed(self) -> list[tuple[str, Any]]:
        """What the numbers may depend on and is not as it was, with what it was."""
        then, now = read_json(self.path / ENVIRONMENT), environment()
        if not isinstance(then, dict):
            raise GlassError(f"{self.path / ENVIRONMENT} is no table of versions")
        return [(n, then.get(n, "unknown")) for n in now if then.get(n) != now[n]]

    def log(self, line: str) -> None:
        with (
            wrap_write_errors(self.path / LOG),
            (self.path / LOG).open("a", encoding="utf-8") as file,
        ):
            file.write(line + "\n")

    def note(self, kind: str, *, step: int, **values: Any) -> None:
        """A line of metrics.jsonl; its kind is train, skipped, validation or final."""
        path = self.path / METRICS
        with wrap_write_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        if self.board:
            part = {"train": "training"}.get(kind, "validation")
            for name, value in values.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{part}/{name}", value, step)
            self.board.flush()

    def open_tensorboard(self) -> None:
        """Write every figure for TensorBoard too, from here on."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise GlassError(
                "train.tensorboard needs pip install 'glassformer[tensorboard]'"
            ) from None
        self.board = SummaryWriter(str(self.path / "tensorboard"))  # type: ignore[no-untyped-call,unused-ignore]

    def metrics(self) -> list[dict[str, Any]]:
        """Every figure so far; a last line that was cut short by a kill counts not."""
        file = self.path / METRICS
        text = read_text(file) if file.exists() else ""
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        with wrap_read_errors(file):
            found = [json.loads(line) for line in lines]
        for number, figures in enumerate(found, start=1):
            match figures:
                case {"kind": str(), "step": int()}:
                    pass
                case _:
                    raise GlassError(f"{file}:{number} is damaged: it says no step")
        return found

    def drop_metrics_after(self, step: int) -> None:
        """Take back the figures of steps that will be gone through again."""
        kept = [figures for figures in self.metrics() if figures.get("step", 0) <= step]
        write_file(self.path / METRICS, "".join(json.dumps(figures) + "\n" for figures in kept))
        self.seal()

    # --- damage -----------------------------------------------------------------------------------

    def seal(self) -> None:
        """Note what every file but the weights is; one that grows is noted up to here."""
        notes = {}
        for file in sorted(self.path.rglob("*")):
            name = file.relative_to(self.path).as_posix()
            hidden = name.startswith(".") or name.split("/")[0] in (BEST, LAST, BASELINE, CHECKSUMS)
            if file.is_file() and not hidden:
                stat = file.stat()
                key = (name, stat.st_size, stat.st_mtime_ns)
                if key not in self.known:
                    self.known[key] = hash_file(file, stat.st_size)
                notes[name] = {"bytes": stat.st_size, "sha256": self.known[key]}
        write_file(self.path / CHECKSUMS, json.dumps({"files": notes}, indent=2) + "\n")

    def require(self, *only: str) -> None:
        """An error that names what is damaged of the files whose names begin so."""
        wrong = self.damage(only)
        if wrong:
            raise GlassError("; ".join(wrong))

    def damage(self, only: tuple[str, ...] = ()) -> list[str]:
        """What is wrong with the files that were noted, or with some of them, a line for each."""
        try:
            noted = read_json(self.path / CHECKSUMS)
        except GlassError as error:
            return [str(error)]
        match noted:
            case {"files": dict(notes)}:
                pass
            case _:
                return [f"{self.path / CHECKSUMS} is damaged: it lists no files"]
        found = []
        for name, note in notes.items():
            if only and not name.startswith(only):
                continue
            file = self.path / name
            match note:
                case {"bytes": int(size), "sha256": str(sha256)}:
                    pass
                case _:
                    found.append(f"{self.path / CHECKSUMS} is damaged at {name}")
                    continue
            if is_outside(self.path, file):
                found.append(f"{self.path / CHECKSUMS} is damaged: {name!r} leads out of the run")
                continue
            if wrong := check_file(file, name, size, sha256):
                found.append(wrong)
        return found


def check_file(file: Path, name: str, size: int, sha256: str) -> str | None:
    """What is wrong with a file that was noted; one that grows is compared up to its old end."""
    grows = name in GROWING or name.startswith("tensorboard/")
    try:
        if not file.is_file():
            return f"{file} is missing"
        now = file.stat().st_size
        if now != size and not (grows and now > size):
            return f"{file} is damaged: {now} bytes, not {size}"
        same = hash_file(file, size) == sha256
    except OSError as error:
        return f"{file}: {error.strerror}"
    return None if same else f"{file} is damaged: its content is not what was written"


def damage(path: Path) -> list[str]:
    """What is wrong with a run, or with a folder that holds a model: a line for each file."""
    inner = [one for name in (BEST, LAST, BASELINE) if (one := find_subfolder(path, name))]
    found = Run(path).damage() if (path / CHECKSUMS).exists() else []
    if not inner and not (path / MANIFEST).exists():
        raise GlassError(f"{path} is neither a run nor a model of ours")
    if (path / CHECKSUMS).exists() and not (path / BEST).is_dir():
        found.append(f"{path / BEST} is missing: nothing was judged yet, or it was taken away")
    if inner and not (path / CHECKSUMS).exists():
        found.append(f"{path / CHECKSUMS} is missing")
    for folder in inner or [path]:
        try:
            verify_manifest(folder)
        except GlassError as error:
            found.append(str(error))
    return found


def next_run(folder: Path, task: str) -> Path:
    """The first of runs/TASK-1, -2, ... that is free."""
    number = 1
    while (folder / f"{task}-{number}").exists():
        number += 1
    return folder / f"{task}-{number}"
