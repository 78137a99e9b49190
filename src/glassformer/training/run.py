"""A run folder: settings, log, figures, plots, and the weights `best/` and `last/`."""

from __future__ import annotations

import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer import checkpoint, config
from glassformer.errors import GlassError
from glassformer.text.tokenizer import Tokenizer


class Run:
    """Where a training run keeps what it does."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache = path, path / "cache"
        self.board: Any = None  # TensorBoard's writer, if it is wanted

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False) -> Run:
        if path.exists() and any(path.iterdir()):
            if not overwrite:
                raise GlassError(f"{path} exists already: choose another --run, or --overwrite it")
            if not (path / checkpoint.CONFIG).exists() and not (path / "cache").exists():
                raise GlassError(f"{path} is no run, so it is not overwritten")
            shutil.rmtree(path)
        run = cls(path)
        run.cache.mkdir(parents=True)
        return run

    def describe(self, tables: dict[str, Any], tokenizer: Tokenizer) -> None:
        """Write down what was decided, before the first step."""
        (self.path / checkpoint.CONFIG).write_text(config.write(tables), encoding="utf-8")
        (self.path / checkpoint.TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        facts = {
            "glassformer": version("glassformer"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "threads": torch.get_num_threads(),
        }
        (self.path / "env.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def log(self, line: str) -> None:
        with (self.path / "train.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def note(self, **figures: Any) -> None:
        """A line of metrics.jsonl."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")
        if self.board:
            part = "validation" if "seconds" in figures else "training"
            for name, value in figures.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{part}/{name}", value, figures["step"])
            self.board.flush()

    def open_board(self) -> None:
        """Write every figure for TensorBoard too, from here on."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise GlassError(
                "train.tensorboard needs pip install 'glassformer[tensorboard]'"
            ) from None
        self.board = SummaryWriter(str(self.path / "tensorboard"))  # type: ignore[no-untyped-call,unused-ignore]

    def metrics(self) -> list[dict[str, Any]]:
        file = self.path / "metrics.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def save(
        self, name: str, network: nn.Module, tokenizer: Tokenizer, task: dict[str, Any], **more: Any
    ) -> None:
        checkpoint.save(self.path / name, network, tokenizer, task=task, overwrite=True, **more)


def next_run(folder: Path, task: str) -> Path:
    """The first of runs/TASK-1, -2, ... that is free."""
    number = 1
    while (folder / f"{task}-{number}").exists():
        number += 1
    return folder / f"{task}-{number}"
