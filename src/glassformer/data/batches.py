"""The batch of each training step, as a pure function of seed and step.

A resumed run therefore continues with the batch that would have come next.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.data.store import Store


def sample_windows(store: Store, seed: int, step: int, batch_size: int, length: int) -> Tensor:
    """Random windows of one long text (b t): `batch_size` windows of `length` tokens."""
    return read_windows(store, sample_starts(store, seed, step, batch_size, length), length)


def sample_starts(
    store: Store, seed: int, step: int, batch_size: int, length: int
) -> NDArray[np.int64]:
    """The positions (b) at which random windows of `length` tokens start."""
    check_window(store, length)
    return np.random.default_rng((seed, step)).integers(0, store.size - length + 1, size=batch_size)


def check_window(store: Store, length: int) -> None:
    """Raise an error if the text is shorter than a window of `length` tokens."""
    if store.size < length:
        raise GlassError(
            f"too few tokens ({store.size}) for a window of {length} tokens: provide more text, or "
            "reduce the context (--set model.context=16)"
        )


def read_windows(store: Store, starts: NDArray[np.int64], length: int, before: int = 0) -> Tensor:
    """Windows of `length` tokens, and `before` tokens before each: b before+t.

    Tokens before the start of the text are -1.
    """
    windows = np.full((len(starts), before + length), -1)
    for window, start in zip(windows, starts.tolist(), strict=True):
        ids = store.read(max(start - before, 0), start + length)
        window[before + length - len(ids) :] = ids
    return torch.from_numpy(windows)


class Buckets:
    """Batches of examples of similar length, grouped differently in each epoch.

    A batch has about `tokens` tokens including padding, and at least one example. Every epoch has
    the same number of batches.
    """

    def __init__(self, lengths: NDArray[np.int64], tokens: int, seed: int) -> None:
        self.lengths, self.seed = lengths, seed
        sizes = [
            len(b) for b in group_by_tokens(np.argsort(lengths, kind="stable"), lengths, tokens)
        ]
        self.cuts = np.cumsum(sizes)[:-1]
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def at(self, step: int) -> NDArray[np.int64]:
        """The indices of the examples in a step; the step count continues across epochs."""
        return self._epoch(step // len(self))[step % len(self)]

    def _make_epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = np.random.default_rng((self.seed, epoch))
        noisy_lengths = self.lengths * rng.uniform(0.9, 1.1, len(self.lengths))
        batches = np.split(np.argsort(noisy_lengths, kind="stable"), self.cuts)
        return [batches[i] for i in rng.permutation(len(batches))]


class BucketBatches:
    """Training batches of examples of similar length.

    Args:
        gather: returns the batch of the examples with these indices.
        truncated: the number of examples that do not fit in the context.
    """

    def __init__(
        self,
        gather: Callable[[NDArray[np.int64]], dict[str, Tensor]],
        lengths: NDArray[np.int64],
        tokens: int,
        seed: int,
        truncated: int = 0,
    ) -> None:
        self.gather, self.truncated = gather, truncated
        self.buckets = Buckets(lengths, tokens, seed)
        self.per_epoch = len(self.buckets)

    def at(self, step: int) -> dict[str, Tensor]:
        return self.gather(self.buckets.at(step))


def group_by_length(
    lengths: NDArray[np.int64], limit: int | None, tokens: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of all examples, or of `limit` of them, in batches of similar length."""
    chosen = choose_examples(len(lengths), limit)
    order = np.argsort(lengths[chosen], kind="stable")
    for rows in group_by_tokens(order, lengths[chosen], tokens):
        yield chosen[rows]


def group_by_tokens(
    order: NDArray[np.int64], lengths: NDArray[np.int64], tokens: int
) -> list[NDArray[np.int64]]:
    """Split examples, in this order, into batches of at most `tokens` tokens including padding.

    An example that is longer than that is a batch of its own.
    """
    batches = []
    start = 0
    max_length = 0
    for i, example in enumerate(order):
        max_length = max(max_length, int(lengths[example]))
        if i > start and max_length * (i - start + 1) > tokens:
            batches.append(order[start:i])
            start, max_length = i, int(lengths[example])
    return [*batches, order[start:]] if start < len(order) else batches


def choose_examples(size: int, limit: int | None) -> NDArray[np.int64]:
    """The sorted indices of all examples, or of a fixed random subset of `limit` examples."""
    if limit is None or limit >= size:
        return np.arange(size)
    return np.sort(np.random.default_rng(0).permutation(size)[:limit])


def split_batch(batch: dict[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    """Split a batch into `count` micro-batches, or into single rows if it has fewer rows."""
    rows = len(next(iter(batch.values())))
    parts = {name: value.tensor_split(min(count, rows)) for name, value in batch.items()}
    return [dict(zip(parts, part, strict=True)) for part in zip(*parts.values(), strict=True)]


def concatenate_texts(store: Store, rows: NDArray[np.int64], eos: int | None = None) -> Tensor:
    """The ids of the texts with these indices, each ending with `eos`, with -1 between texts."""
    separator = np.array([-1] if eos is None else [eos, -1])
    ids, starts = np.asarray(store.flat), store.starts.tolist()  # one file opened, not one per text
    parts = [part for i in rows for part in (ids[starts[i] : starts[i + 1]], separator)]
    return torch.from_numpy(np.concatenate(parts, dtype=np.int64)[:-1])


def pad_rows(rows: list[NDArray[np.int64]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor padded with `fill`, and its mask `keep`; both b t."""
    max_length = max(map(len, rows))
    ids = torch.full((len(rows), max_length), fill, dtype=torch.long)
    keep = torch.zeros(len(rows), max_length, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.from_numpy(row)
        keep[i, : len(row)] = True
    return ids, keep
