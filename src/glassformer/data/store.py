"""Sequences of ids in files, of which only what is needed is read: larger than memory is fine."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors

BLOCK = 1 << 20  # ids that are looked at together


def read_array(path: Path, *, ndim: int = 1) -> NDArray[Any]:
    """An array of whole numbers from a .npy file."""
    with wrap_read_errors(path):
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    if values.ndim != ndim or values.dtype.kind not in "iu":
        raise GlassError(f"{path} is damaged: it holds {values.dtype} of {values.ndim} dimensions")
    return values


class Store:
    """Many sequences of ids below `vocab`: a file of numbers, and another of where each starts."""

    def __init__(self, path: Path, vocab: int) -> None:
        self.starts: NDArray[np.int64] = read_array(path.with_suffix(".starts.npy"))
        width = read_array(path.with_suffix(".width.npy"), ndim=0)
        self.kind = np.dtype(np.uint16 if width == 2 else np.uint32)
        with wrap_read_errors(path):
            held = path.stat().st_size // self.kind.itemsize
        sound = len(self.starts) > 0 and self.starts[0] == 0 and (np.diff(self.starts) >= 0).all()
        if not sound or self.starts[-1] != held:
            raise GlassError(f"{path} is damaged: it does not hold the texts that it should")
        self.path, self.size = path, int(held)
        largest = max((int(part.max()) for part in self.blocks()), default=0)
        if largest >= vocab:
            raise GlassError(f"{path} is damaged: the id {largest} is above {vocab - 1}")

    @property
    def flat(self) -> NDArray[Any]:
        """All ids, mapped into memory: every page that is looked at stays there."""
        empty = np.empty(0, dtype=self.kind)
        return np.memmap(self.path, dtype=self.kind, mode="r") if self.size else empty

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Some of the ids, without a trace in memory."""
        at = int(start) * self.kind.itemsize
        return np.fromfile(self.path, self.kind, int(stop - start), offset=at).astype(np.int64)

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """All ids, a part at a time."""
        for start in range(0, self.size, BLOCK):
            yield self.read(start, min(start + BLOCK, self.size))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        return self.read(self.starts[i], self.starts[i + 1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


class StoreWriter:
    """Writes a `Store`, a sequence at a time, in constant memory."""

    def __init__(self, path: Path, vocab: int) -> None:
        self.path, self.vocab = path, vocab
        self.kind = np.uint16 if vocab <= 2**16 else np.uint32
        self.file, self.lengths = path.open("wb"), []  # type: ignore[var-annotated]

    def add(self, ids: Sequence[int]) -> None:
        self.file.write(np.asarray(ids, dtype=self.kind).tobytes())
        self.lengths.append(len(ids))

    def close(self) -> Store:
        self.file.close()
        starts = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))
        np.save(self.path.with_suffix(".starts.npy"), starts.astype(np.int64))
        np.save(self.path.with_suffix(".width.npy"), np.dtype(self.kind).itemsize)
        return Store(self.path, self.vocab)
