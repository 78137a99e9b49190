"""A run folder: settings, log, metrics, plots, and the weights in `best/` and `last/`."""

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

METRICS = "metrics.jsonl"
LOG = "train.log"
ENVIRONMENT = "env.json"
CHECKSUMS = "checksums.json"
REQUEST, SCHEDULE = "request.json", "schedule.log"
BASELINE = "baseline"  # subfolder for the baseline model
APPENDED_FILES = (METRICS, LOG, SCHEDULE, "skipped.jsonl")


def read_environment() -> dict[str, Any]:
    """Return the versions and the thread count, on which numerical results may depend."""
    return {
        "glassformer": version("glassformer"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
    }


class Run:
    """The folder of a training run."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache = path, path / "cache"
        self.tensorboard: Any = None  # a SummaryWriter, if one is open
        self.hashes: dict[tuple[str, int, int], str] = {}  # SHA-256 by name, size, mtime

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False) -> "Run":
        """Create a run folder; with `overwrite`, move an existing one to `backup`."""
        run = cls(path)
        if path.exists() and any(path.iterdir()):
            if not overwrite:
                raise GlassError(f"{path} already exists: choose another --run or add --overwrite")
            if not (path / REQUEST).exists():
                raise GlassError(f"{path} is not a run folder, so it will not be overwritten")
            with run.lock():
                shutil.rmtree(path) if run.backup.exists() else path.rename(run.backup)
        run.cache.mkdir(parents=True)
        return run

    @property
    def backup(self) -> Path:
        """The folder for an overwritten run until the new run saves its first checkpoint."""
        return self.path.with_name(f".{self.path.name}.old")

    def discard(self) -> None:
        """Delete the folder and restore the run that it was going to replace."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.backup.exists():
            self.backup.rename(self.path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process, and repair what a killed process left unfinished."""
        with lock_folder(self.path, f"another process is training in {self.path}"):
            for name in (BEST, LAST):
                recover_folder(self.path / name)
            yield

    def write_config(self, tables: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        """Write the config, the tokenizer and the environment, before the first step."""
        if tokenizer is not None:
            write_file(self.path / checkpoint.TOKENIZER, tokenizer.to_json())
        write_file(self.path / ENVIRONMENT, json.dumps(read_environment(), indent=2) + "\n")
        write_file(self.path / checkpoint.CONFIG, config.to_toml(tables))

    def compare_environment(self) -> list[tuple[str, Any, Any]]:
        """Return the name, old value and new value of each entry that has changed since the run was
        created."""
        old = read_json(self.path / ENVIRONMENT)
        new = read_environment()
        if not isinstance(old, dict):
            raise GlassError(f"{self.path / ENVIRONMENT} is corrupted: expected an object")
        return [(n, old.get(n, "unknown"), new[n]) for n in new if old.get(n) != new[n]]

    def log(self, line: str) -> None:
        with (
            wrap_write_errors(self.path / LOG),
            (self.path / LOG).open("a", encoding="utf-8") as file,
        ):
            file.write(line + "\n")

    def log_metrics(self, kind: str, *, step: int, **values: Any) -> None:
        """Append a line to metrics.jsonl; `kind` is train, skipped, validation or final."""
        path = self.path / METRICS
        with wrap_write_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        if self.tensorboard:
            prefix = {"train": "training"}.get(kind, "validation")
            for name, value in values.items():
                if isinstance(value, float):
                    self.tensorboard.add_scalar(f"{prefix}/{name}", value, step)
            self.tensorboard.flush()

    def open_tensorboard(self) -> None:
        """From now on, also write the metrics for TensorBoard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise GlassError(
                "train.tensorboard needs TensorBoard: pip install 'glassformer[tensorboard]'"
            ) from None
        self.tensorboard = SummaryWriter(str(self.path / "tensorboard"))  # type: ignore[no-untyped-call,unused-ignore]

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, except for an incomplete last line."""
        file = self.path / METRICS
        text = read_text(file) if file.exists() else ""
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        with wrap_read_errors(file):
            metrics = [json.loads(line) for line in lines]
        for number, values in enumerate(metrics, start=1):
            match values:
                case {"kind": str(), "step": int()}:
                    pass
                case _:
                    raise GlassError(f"{file}:{number} is corrupted: expected a kind and a step")
        return metrics

    def drop_metrics_after(self, step: int) -> None:
        """Delete the metrics of steps that will be repeated."""
        kept = [values for values in self.metrics() if values.get("step", 0) <= step]
        write_file(self.path / METRICS, "".join(json.dumps(values) + "\n" for values in kept))
        self.write_checksums()

    # --- checksums --------------------------------------------------------------------------------

    def write_checksums(self) -> None:
        """Write the size and SHA-256 of every file except the weights, which have manifests."""
        entries = {}
        for file in sorted(self.path.rglob("*")):
            name = file.relative_to(self.path).as_posix()
            top = name.split("/")[0]
            is_excluded = top.startswith(".") or top in (BEST, LAST, BASELINE, CHECKSUMS)
            if file.is_file() and not is_excluded:
                stat = file.stat()
                key = (name, stat.st_size, stat.st_mtime_ns)
                if key not in self.hashes:
                    self.hashes[key] = hash_file(file, stat.st_size)
                entries[name] = {"bytes": stat.st_size, "sha256": self.hashes[key]}
        write_file(self.path / CHECKSUMS, json.dumps({"files": entries}, indent=2) + "\n")

    def verify(self, *prefixes: str) -> None:
        """Raise an error if files whose names have these prefixes are missing or corrupted."""
        problems = self.find_damage(prefixes)
        if problems:
            raise GlassError("; ".join(problems))

    def find_damage(self, prefixes: tuple[str, ...] = ()) -> list[str]:
        """Compare files with their checksums; return a line for each that differs.

        Only files whose names start with one of `prefixes` are compared; by default all of them.
        """
        checksums = self.path / CHECKSUMS
        try:
            content = read_json(checksums)
        except GlassError as error:
            return [str(error)]
        match content:
            case {"files": dict(entries)}:
                pass
            case _:
                return [f"{checksums} is corrupted: it lists no files"]
        problems = []
        for name, entry in entries.items():
            if prefixes and not name.startswith(prefixes):
                continue
            file = self.path / name
            match entry:
                case {"bytes": int(size), "sha256": str(sha256)}:
                    pass
                case _:
                    problems.append(f"{checksums} is corrupted: invalid entry for {name}")
                    continue
            if is_outside(self.path, file):
                problems.append(f"{checksums} is corrupted: {name!r} is outside the run folder")
                continue
            if problem := check_file(file, name, size, sha256):
                problems.append(problem)
        return problems


def check_file(file: Path, name: str, size: int, sha256: str) -> str | None:
    """Compare a file with its recorded size and SHA-256; return the problem, or None.

    Files that are only appended to are compared up to their recorded size.
    """
    may_grow = name in APPENDED_FILES or name.startswith("tensorboard/")
    try:
        if not file.is_file():
            return f"{file} is missing"
        current_size = file.stat().st_size
        if current_size != size and not (may_grow and current_size > size):
            return f"{file} is corrupted: expected {size:,} bytes, got {current_size:,}"
        is_same = hash_file(file, size) == sha256
    except OSError as error:
        return f"{file}: {error.strerror}"
    return None if is_same else f"{file} is corrupted: its SHA-256 differs from the recorded one"


def find_damage(path: Path) -> list[str]:
    """Return a line for each missing or corrupted file in a run folder or a model folder."""
    subfolders = [sub for name in (BEST, LAST, BASELINE) if (sub := find_subfolder(path, name))]
    problems = Run(path).find_damage() if (path / CHECKSUMS).exists() else []
    if not subfolders and not (path / MANIFEST).exists():
        raise GlassError(f"{path} is neither a run folder nor a model folder")
    if (path / CHECKSUMS).exists() and not (path / BEST).is_dir():
        problems.append(
            f"{path / BEST} is missing: it was deleted, or nothing has been evaluated yet"
        )
    if subfolders and not (path / CHECKSUMS).exists():
        problems.append(f"{path / CHECKSUMS} is missing")
    for folder in subfolders or [path]:
        try:
            verify_manifest(folder)
        except GlassError as error:
            problems.append(str(error))
    return problems


def next_run(folder: Path, task: str) -> Path:
    """Return the first of TASK-1, TASK-2, ... in the folder that does not exist."""
    number = 1
    while (folder / f"{task}-{number}").exists():
        number += 1
    return folder / f"{task}-{number}"
