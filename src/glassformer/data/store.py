"""Sequences of ids on disk. Only the needed ids are read, so a store may be larger than memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors

BLOCK_SIZE = 1 << 20  # ids


def read_array(path: Path, *, ndim: int = 1) -> NDArray[Any]:
    """Read an array of integers from a .npy file."""
    with wrap_read_errors(path):
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    if values.ndim != ndim or values.dtype.kind not in "iu":
        raise GlassError(
            f"{path} is corrupted: expected an integer array with ndim={ndim}, "
            f"got {values.dtype} with ndim={values.ndim}"
        )
    return values


class Store:
    """Sequences of ids below `vocab`, read from a file of ids and a file of start positions."""

    def __init__(self, path: Path, vocab: int) -> None:
        self.starts: NDArray[np.int64] = read_array(path.with_suffix(".starts.npy"))
        itemsize = read_array(path.with_suffix(".width.npy"), ndim=0)
        self.dtype = np.dtype(np.uint16 if itemsize == 2 else np.uint32)
        with wrap_read_errors(path):
            size = path.stat().st_size // self.dtype.itemsize
        starts = self.starts
        is_valid = len(starts) > 0 and starts[0] == 0 and (np.diff(starts) >= 0).all()
        if not is_valid or self.starts[-1] != size:
            raise GlassError(
                f"{path} is corrupted: its {size} ids do not match its start positions"
            )
        self.path, self.size = path, int(size)
        max_id = max((int(block.max()) for block in self.blocks()), default=0)
        if max_id >= vocab:
            raise GlassError(f"{path} is corrupted: the id {max_id} is above {vocab - 1}")

    @property
    def flat(self) -> NDArray[Any]:
        """All ids, memory-mapped: every page that is read stays in memory."""
        empty = np.empty(0, dtype=self.dtype)
        return np.memmap(self.path, dtype=self.dtype, mode="r") if self.size else empty

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """A copy of the ids from `start` to `stop`, read without memory mapping."""
        offset = int(start) * self.dtype.itemsize
        ids = np.fromfile(self.path, self.dtype, int(stop - start), offset=offset)
        return ids.astype(np.int64)

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """All ids, in blocks."""
        for start in range(0, self.size, BLOCK_SIZE):
            yield self.read(start, min(start + BLOCK_SIZE, self.size))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        return self.read(self.starts[i], self.starts[i + 1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


class StoreWriter:
    """Writes a `Store` one sequence at a time, in constant memory."""

    def __init__(self, path: Path, vocab: int) -> None:
        self.path, self.vocab = path, vocab
        self.dtype = np.uint16 if vocab <= 2**16 else np.uint32
        self.file, self.lengths = path.open("wb"), []  # type: ignore[var-annotated]

    def add(self, ids: Sequence[int]) -> None:
        self.file.write(np.asarray(ids, dtype=self.dtype).tobytes())
        self.lengths.append(len(ids))

    def close(self) -> Store:
        self.file.close()
        starts = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))
        np.save(self.path.with_suffix(".starts.npy"), starts.astype(np.int64))
        np.save(self.path.with_suffix(".width.npy"), np.dtype(self.dtype).itemsize)
        return Store(self.path, self.vocab)
