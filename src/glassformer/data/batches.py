"""Which examples go together in which step: pure functions of a seed and a step.

A run that was stopped therefore goes on with the batch that would have come.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.data.store import Store


def sample_windows(store: Store, seed: int, step: int, batch: int, length: int) -> Tensor:
    """Random stretches of one long text, b t."""
    if store.size < length:
        raise GlassError(
            f"{store.size} tokens are too few for a window of {length}: give more text, or "
            "a smaller context (--set model.context=16)"
        )
    starts = np.random.default_rng((seed, step)).integers(0, store.size - length + 1, size=batch)
    return torch.from_numpy(np.stack([store.read(s, s + length) for s in starts]))


class Buckets:
    """Examples of like length together, with other neighbours in each epoch.

    A batch holds about `tokens`, counted with padding, and at least one example. Every epoch has
    the same number of batches.
    """

    def __init__(self, lengths: NDArray[np.int64], tokens: int, seed: int) -> None:
        self.lengths, self.seed = lengths, seed
        sizes = [
            len(b) for b in group_by_tokens(np.argsort(lengths, kind="stable"), lengths, tokens)
        ]
        self.cuts = np.cumsum(sizes)[:-1]
        self._epoch = lru_cache(maxsize=2)(self._make)

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def at(self, step: int) -> NDArray[np.int64]:
        """The examples of a step, counted from the first epoch on."""
        return self._epoch(step // len(self))[step % len(self)]

    def _make(self, epoch: int) -> list[NDArray[np.int64]]:
        random = np.random.default_rng((self.seed, epoch))
        about = self.lengths * random.uniform(0.9, 1.1, len(self.lengths))
        batches = np.split(np.argsort(about, kind="stable"), self.cuts)
        return [batches[i] for i in random.permutation(len(batches))]


def group_by_tokens(
    order: NDArray[np.int64], lengths: NDArray[np.int64], tokens: int
) -> list[NDArray[np.int64]]:
    """Cut an order of examples so that each piece, padded, holds at most so many tokens."""
    batches, start, longest = [], 0, 0
    for i, example in enumerate(order):
        longest = max(longest, int(lengths[example]))
        if i > start and longest * (i - start + 1) > tokens:
            batches.append(order[start:i])
            start, longest = i, int(lengths[example])
    return [*batches, order[start:]] if start < len(order) else batches


def choose_examples(size: int, most: int | None) -> NDArray[np.int64]:
    """All examples, or so many of them: always the same ones, wherever they stand."""
    if most is None or most >= size:
        return np.arange(size)
    return np.sort(np.random.default_rng(0).permutation(size)[:most])


def split_batch(batch: dict[str, Tensor], pieces: int) -> list[dict[str, Tensor]]:
    """A batch cut into so many parts, or into its rows if they are fewer."""
    rows = len(next(iter(batch.values())))
    parts = {name: value.tensor_split(min(pieces, rows)) for name, value in batch.items()}
    return [dict(zip(parts, part, strict=True)) for part in zip(*parts.values(), strict=True)]


def concatenate_texts(store: Store, rows: NDArray[np.int64]) -> Tensor:
    """Some of the texts, one after the other with -1 between them."""
    gap = np.full(1, -1)
    parts = [part for i in rows for part in (store[i], gap)]
    return torch.from_numpy(np.concatenate(parts)[:-1])


def pad_rows(rows: list[NDArray[np.int64]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different length as one tensor, b t, and where it is real."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), fill, dtype=torch.long)
    keep = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.from_numpy(row)
        keep[i, : len(row)] = True
    return ids, keep
