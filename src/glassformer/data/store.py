"""Sequences of ids in files that are mapped, not read: larger than memory is no trouble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class Store:
    """Many sequences of ids: one file of numbers, and another of where each starts."""

    def __init__(self, path: Path) -> None:
        self.starts: NDArray[np.int64] = np.load(path.with_suffix(".starts.npy"))
        width = np.load(path.with_suffix(".width.npy"))
        size = int(self.starts[-1])
        kind = np.uint16 if width == 2 else np.uint32
        self.flat = np.memmap(path, dtype=kind, mode="r") if size else np.empty(0, dtype=kind)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        return self.flat[self.starts[i] : self.starts[i + 1]].astype(np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


class Writer:
    """Writes a `Store`, a sequence at a time, in constant memory."""

    def __init__(self, path: Path, vocab: int) -> None:
        self.path, self.kind = path, np.uint16 if vocab <= 2**16 else np.uint32
        self.file, self.lengths = path.open("wb"), []  # type: ignore[var-annotated]

    def add(self, ids: Sequence[int]) -> None:
        self.file.write(np.asarray(ids, dtype=self.kind).tobytes())
        self.lengths.append(len(ids))

    def close(self) -> Store:
        self.file.close()
        starts = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))
        np.save(self.path.with_suffix(".starts.npy"), starts.astype(np.int64))
        np.save(self.path.with_suffix(".width.npy"), np.dtype(self.kind).itemsize)
        return Store(self.path)
