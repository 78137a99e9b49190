"""Sequences of ids in files, of which only what is needed is read: larger than memory is fine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 20  # ids that are counted at once


class Store:
    """Many sequences of ids: one file of numbers, and another of where each starts."""

    def __init__(self, path: Path) -> None:
        self.starts: NDArray[np.int64] = np.load(path.with_suffix(".starts.npy"))
        width = np.load(path.with_suffix(".width.npy"))
        self.path, self.size = path, int(self.starts[-1])
        self.kind = np.dtype(np.uint16 if width == 2 else np.uint32)

    @property
    def flat(self) -> NDArray[Any]:
        """All ids, mapped into memory: every page that is looked at stays there."""
        empty = np.empty(0, dtype=self.kind)
        return np.memmap(self.path, dtype=self.kind, mode="r") if self.size else empty

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Some of the ids, without a trace in memory."""
        at = int(start) * self.kind.itemsize
        return np.fromfile(self.path, self.kind, int(stop - start), offset=at).astype(np.int64)

    def counts(self, vocab: int) -> NDArray[np.int64]:
        """How often each id occurs."""
        total = np.zeros(vocab, dtype=np.int64)
        for start in range(0, self.size, BLOCK):
            part = self.read(start, min(start + BLOCK, self.size))
            total += np.bincount(part, minlength=vocab)
        return total

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        return self.read(self.starts[i], self.starts[i + 1])

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
