"""N-gram counts: which tokens followed a context, how often, and the resulting probabilities.

Shapes: b batch, t tokens, n contexts (or n-grams), m followers of all n contexts, v vocabulary,
f folds + 1. A context is passed as columns: one tensor of n ids for each of its positions, with -1
where a context has fewer ids.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap, watched


def previous_ids(ids: Tensor, count: int, past_ids: Tensor | None = None) -> list[Tensor]:
    """The last `count` ids up to each token, latest first: b t -> columns of n = b * t ids.

    The first column is each token itself, the second the token before it: [[5, 6, 7]] and a
    count of 2 give [5, 6, 7] and [-1, 5, 6]. `past_ids` (b p) are the ids before the first token:
    with [[3, 4]], the second column is [4, 5, 6].
    """
    length = ids.shape[1]
    padding = ids.new_full((len(ids), count - 1), -1)
    if past_ids is not None and count > 1:
        padding = torch.cat((padding, past_ids), dim=1)[:, 1 - count :]
    padded = torch.cat((padding, ids), dim=1)
    starts = range(count - 1, -1, -1)
    return [padded[:, start : start + length].flatten() for start in starts]


class IntTables(nn.Module):
    """A list of int64 tensors that are saved with a model's weights but not trained.

    They are saved as int32 if all their values fit, and resized on loading to match the state dict.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        for i in range(count):
            self.register_buffer(str(i), torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self._buffers)

    def __getitem__(self, i: int) -> Tensor:
        return self.get_buffer(str(i))

    def __setitem__(self, i: int, table: Tensor) -> None:
        setattr(self, str(i), table)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "IntTables":
        """Share the tensors, which are large and never modified in place."""
        copy = IntTables(len(self))
        for i, table in enumerate(self):
            copy[i] = table
        return copy

    def _save_to_state_dict(self, state: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for i, table in enumerate(self):
            fits = table.numel() and -(2**31) <= int(table.min()) <= int(table.max()) < 2**31
            state[f"{prefix}{i}"] = table.int() if fits else table

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for i, table in enumerate(self):
            if (loaded := state.get(f"{prefix}{i}")) is not None:
                state[f"{prefix}{i}"] = loaded.long()
                self[i] = torch.empty_like(loaded, dtype=torch.int64, device=table.device)
        super()._load_from_state_dict(state, prefix, *rest)


def check_tables(is_valid: bool, problem: str) -> None:
    """Raise an error for loaded tables that `fit` could not have produced."""
    if not is_valid:
        raise GlassError(f"the count tables are corrupted: {problem}")


def is_increasing(keys: Tensor) -> bool:
    """Whether keys are a vector of strictly increasing integers >= 0."""
    return keys.ndim == 1 and bool((keys[1:] > keys[:-1]).all() and (keys[:1] >= 0).all())


class NGramIndex(nn.Module):
    """Assigns an index to every n-gram of each length up to `max_length`.

    `keys` holds one sorted table per length. The key of an n-gram is

        (index of its prefix, the n-gram without its last id) * vocab + last id

    and its index is the position of the key in the table. With a vocab of 10, fitting the n-grams
    (1, 5) and (2, 5) gives

        keys[0] = [1, 2]     (1,) -> 0, (2,) -> 1; the empty prefix has the index 0
        keys[1] = [5, 15]    (1, 5) -> 0, (2, 5) -> 1
    """

    def __init__(self, vocab: int, max_length: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.keys = IntTables(max_length)

    def check(self) -> None:
        check_tables(all(map(is_increasing, self.keys)), "the n-gram keys are not sorted")

    @torch.no_grad()
    def fit(self, columns: Sequence[Tensor], min_count: int = 1) -> Iterator[Tensor]:
        """Index all n-grams that occur at least `min_count` times; yield what `find` yields."""
        index = torch.zeros_like(columns[0])
        for i, column in enumerate(columns):
            is_known = (index >= 0) & (column >= 0)
            keys = index[is_known] * self.vocab + column[is_known]
            keys, inverse, counts = unique(keys)
            is_frequent = counts >= min_count
            self.keys[i] = keys[is_frequent]
            new_index = torch.where(is_frequent, is_frequent.cumsum(0) - 1, -1)
            index = torch.full_like(index, -1).masked_scatter(is_known, new_index[inverse])
            yield index

    def find(self, columns: Sequence[Tensor]) -> Iterator[Tensor]:
        """For each length, the indexes of the n-grams (n); -1 for those that were not indexed."""
        index = torch.zeros_like(columns[0])
        for keys, column in zip(self.keys, columns, strict=True):
            position, is_found = search(keys, index * self.vocab + column)
            index = torch.where((index >= 0) & (column >= 0) & is_found, position, -1)
            yield index


class NGramCounts(nn.Module):
    """Counts of the tokens that followed each context, for contexts of 0 to `order` ids.

    Contexts are columns with the most informative id first (for text, the latest), because a
    context is shortened by dropping its last column. For each length there are two tables:
    `followers`, the sorted keys (index of the context) * vocab + token, and `cumulative`, the sum
    of the counts before each key. The followers of a context are thus a slice of the table. After
    the text a b a b a c (ids 0 1 0 1 0 2, vocab 3) the tables of length 1 are

        followers[1]  = [1, 2, 3]       a -> b, a -> c, b -> a
        cumulative[1] = [0, 2, 3, 5]    so their counts are 2, 1, 2
    """

    def __init__(self, vocab: int, order: int) -> None:
        super().__init__()
        self.vocab, self.order = vocab, order
        self.contexts = NGramIndex(vocab, order)
        self.followers = IntTables(order + 1)
        self.cumulative = IntTables(order + 1)
        self.n_folds = 0  # 0 if there are no counts per fold, which are not saved
        self.fold_counts: list[Tensor] = []  # for each length: m folds

    def check(self) -> None:
        check_tables(all(map(is_increasing, self.followers)), "the follower keys are not sorted")
        for followers, cumulative in zip(self.followers, self.cumulative, strict=True):
            is_valid = cumulative.ndim == 1 and len(cumulative) in (0, len(followers) + 1)
            is_valid = is_valid and bool((cumulative.diff() > 0).all())
            check_tables(is_valid, "the cumulative counts do not match the followers")

    @torch.no_grad()
    def fit(self, columns: Sequence[Tensor], targets: Tensor, folds: Tensor | None = None) -> None:
        """Count the target (n) that followed each context.

        With `folds` (n), the index of the fold that each target belongs to, the counts of every
        fold are stored as well, so that they can be left out (see `list_followers`).
        """
        folds = torch.zeros_like(targets) if folds is None else folds
        n_folds = int(folds.max()) + 1 if len(folds) else 1
        self.n_folds = n_folds if n_folds > 1 else 0
        self.fold_counts = []
        indexes = chain([torch.zeros_like(targets)], self.contexts.fit(columns))
        for length, index in enumerate(indexes):
            keys = (index * self.vocab + targets) * n_folds + folds
            keys, _, counts = unique(keys[index >= 0])
            followers, row, _ = unique(keys // n_folds)
            shape = len(followers), n_folds
            fold_counts = torch.zeros(shape, dtype=torch.int32, device=followers.device)
            fold_counts[row, keys % n_folds] = counts.int()
            self.followers[length] = followers
            self.cumulative[length] = F.pad(fold_counts.sum(dim=1).cumsum(0), (1, 0))
            if self.n_folds:
                self.fold_counts.append(fold_counts)

    def find(self, columns: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each context length: the contexts' indexes, and the start and end of their followers.

        All three have the shape n. A context that never occurred has an empty slice.
        """
        indexes = (torch.zeros_like(columns[0]), *self.contexts.find(columns))
        for index, followers in zip(indexes, self.followers, strict=True):
            start = torch.searchsorted(followers, index * self.vocab)
            end = torch.searchsorted(followers, (index + 1) * self.vocab)
            yield index, start, torch.where(index >= 0, end, start)

    def probs(self, columns: Sequence[Tensor], held_out_fold: Tensor | None = None) -> Tensor:
        """The probability of every token after each context (n v), with Witten-Bell smoothing.

        From the empty context to the longest, starting with 1 / vocab:

            P(token | context) = (count + distinct * P(token | context shortened by one id))
                                 / (total + distinct)

        where `total` is the number of tokens that followed the context and `distinct` the number
        of different ones: the more of these, the more weight the shortened context gets.
        `held_out_fold` (n) is a fold to leave out for each context.
        """
        *_, probs = self.probs_by_length(columns, held_out_fold)
        return probs

    def probs_by_length(
        self, columns: Sequence[Tensor], held_out_fold: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield `probs` for contexts of up to 0, 1, ... ids: the same tensor, changed in place."""
        unigrams = self.unigram_probs()
        folds = columns[0].new_full((len(columns[0]),), len(unigrams) - 1)
        probs = unigrams[folds if held_out_fold is None else held_out_fold]
        self.tap_probs(0, probs)
        yield probs
        by_length = self.list_followers(columns, held_out_fold)
        for length, followers in enumerate(by_length, start=1):
            row = followers.row
            token = followers.token
            denominator = followers.denominator
            probs *= followers.backoff[:, None]
            probs[row, token] += followers.count / denominator[row]
            self.tap_probs(length, probs)
            yield probs

    def unigram_probs(self) -> Tensor:
        """The probability of every token without context (f v).

        The rows correspond to the columns of `counts_without_folds`.
        """
        counts = torch.zeros(self.vocab, self.n_folds + 1, device=self.followers[0].device)
        counts[self.followers[0]] = self.counts_without_folds(0).float()
        total = counts.sum(dim=0)
        distinct = (counts > 0).sum(dim=0)
        probs = (counts + distinct / self.vocab) / (total + distinct).clamp(min=1)
        return torch.where(total > 0, probs, 1 / self.vocab).T

    def counts_without_folds(self, length: int) -> Tensor:
        """The count of each follower of contexts of this length, without each fold (m f).

        Column i leaves out fold i. The last column leaves out nothing; without folds, it is the
        only one.
        """
        counts = self.cumulative[length].diff()[:, None]
        if not self.n_folds:
            return counts
        return torch.cat((counts - self.fold_counts[length], counts), dim=1)

    def free_fold_counts(self) -> None:
        """Free the memory used by the counts per fold."""
        self.n_folds, self.fold_counts = 0, []

    def tap_probs(self, length: int, probs: Tensor) -> None:
        if watched(f"order{length}"):
            tap(f"order{length}", probs.clone())  # the next length changes probs in place

    @property
    def order_taps(self) -> dict[str, Tap]:
        """The taps of `probs`, for the module that calls it."""
        first = Tap("n v", tr("(count + distinct / vocab) / (total + distinct)"))
        other = Tap(
            "n v", tr("(count + distinct × prob with one fewer token) / (total + distinct)")
        )
        return {f"order{n}": other if n else first for n in range(self.order + 1)}

    def target_probs(self, columns: Sequence[Tensor], targets: Tensor) -> Tensor:
        """The probability of a target for each context (n): `probs` at the targets, but faster."""
        prob = torch.full(targets.shape, 1 / self.vocab, device=targets.device)
        for length, (index, start, end) in enumerate(self.find(columns)):
            cumulative, distinct = self.cumulative[length], end - start
            i, is_found = search(self.followers[length], index * self.vocab + targets)
            count = torch.where(is_found & (index >= 0), cumulative[i + 1] - cumulative[i], 0)
            denominator = cumulative[end] - cumulative[start] + distinct
            smoothed = (count + distinct * prob) / denominator.clamp(min=1)
            prob = torch.where(distinct > 0, smoothed, prob)
        return prob

    def fractions(self, columns: Sequence[Tensor]) -> Tensor:
        """count / total for every token after each full context (n v): unsmoothed, 0 if unseen."""
        *_, last = self.list_followers(columns)
        fractions = torch.zeros(len(last.total), self.vocab, device=last.total.device)
        fractions[last.row, last.token] = last.count / last.total[last.row]
        return fractions

    def list_followers(
        self, columns: Sequence[Tensor], held_out_fold: Tensor | None = None
    ) -> Iterator["Followers"]:
        """For contexts of 1, 2, ... ids: their followers, and how often each followed.

        `held_out_fold` (n) is a fold to leave out for each context.
        """
        for length, (_, start, end) in enumerate(self.find(columns)):
            if length:
                yield self.read_followers(length, start, end, held_out_fold)

    def read_followers(
        self, length: int, start: Tensor, end: Tensor, held_out_fold: Tensor | None = None
    ) -> "Followers":
        distinct = end - start
        row = torch.repeat_interleave(torch.arange(len(distinct), device=distinct.device), distinct)
        offset = torch.arange(len(row), device=row.device) - (distinct.cumsum(0) - distinct)[row]
        i, cumulative = start[row] + offset, self.cumulative[length]
        token = self.followers[length][i] % self.vocab
        count = cumulative[i + 1] - cumulative[i]
        total = cumulative[end] - cumulative[start]
        if held_out_fold is not None:
            left_out = self.fold_counts[length][i, held_out_fold[row]]
            total = total.index_add(0, row, left_out.long(), alpha=-1)
            remains = count > left_out
            row = row[remains]
            token = token[remains]
            count = (count - left_out)[remains]
            distinct = torch.bincount(row, minlength=len(start))
        return Followers(row, token, count, total, distinct)


@dataclass(frozen=True)
class Followers:
    """The tokens that followed n contexts of one length, in one list of m tokens."""

    row: Tensor  # m: the index of the context
    token: Tensor  # m
    count: Tensor  # m: how often the token followed the context
    total: Tensor  # n: the sum of the counts of a context
    distinct: Tensor  # n: the number of different tokens that followed a context

    @property
    def denominator(self) -> Tensor:
        """The denominator of Witten-Bell smoothing (n)."""
        return (self.total + self.distinct).clamp(min=1)

    @property
    def backoff(self) -> Tensor:
        """The weight of the context shortened by one id (n); 1 if the context never occurred."""
        return torch.where(self.distinct > 0, self.distinct / self.denominator, 1.0)


def unique(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sorted distinct keys, the index of each key among them, and their counts.

    On the CPU, NumPy sorts integers several times as fast as torch.
    """
    parts = np.unique(keys.cpu().numpy(), return_inverse=True, return_counts=True)
    values, inverse, counts = (torch.from_numpy(part).to(keys.device) for part in parts)
    return values, inverse, counts


def search(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The position of each wanted key in a sorted table, and whether it is in the table."""
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    position = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return position, keys[position] == wanted
