"""Matrices and word lists that the tutorials print, read from `printed/*.toml`."""

import tomllib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.inspection.sheet import equal_when_rounded

FOLDER = Path(__file__).parent / "printed"


def read_matrices(name: str) -> dict[str, Tensor]:
    """The matrices of a file by name, as float64."""
    return {key: make_matrix(key, entry) for key, entry in read(name)["matrices"].items()}


def read_words(name: str) -> dict[str, list[str]]:
    """The word lists of a file by name."""
    return {key: text.split() for key, text in read(name)["words"].items()}


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def make_matrix(name: str, entry: dict[str, Any]) -> Tensor:
    matrix = torch.tensor(entry["rows"], dtype=torch.float64)
    if list(matrix.shape) != entry["shape"]:
        raise ValueError(f"{name}: expected shape {entry['shape']}, got {list(matrix.shape)}")
    return matrix


def count_correct(printed: Tensor, correct: Tensor, decimals: int) -> int:
    """How many printed cells the correct values round to."""
    return int(equal_when_rounded(printed, correct, decimals).sum())


def count_wrong(printed: Tensor, correct: Tensor, decimals: int) -> int:
    return printed.numel() - count_correct(printed, correct, decimals)
