"""N-gram counts: which tokens followed a context, how often, and the resulting probabilities.

Shapes: b batch, t tokens, n contexts (or n-grams), v vocabulary. A context is passed as columns:
one tensor of n ids for each of its positions, with -1 where a context has fewer ids.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap, watched


def previous_ids(ids: Tensor, count: int) -> list[Tensor]:
    """The last `count` ids up to each token, latest first: b t -> columns of n = b * t ids.

    The first column is each token itself, the second the token before it: [[5, 6, 7]] and a
    count of 2 give [5, 6, 7] and [-1, 5, 6].
    """
    length, padding = ids.shape[1], ids.new_full((len(ids), count - 1), -1)
    padded = torch.cat((padding, ids), dim=1)
    starts = range(count - 1, -1, -1)
    return [padded[:, start : start + length].flatten() for start in starts]


def int_parameter(values: Tensor | None = None) -> nn.Parameter:
    """Integers that are saved with a model's weights but have no gradient."""
    values = torch.zeros(0, dtype=torch.int64) if values is None else values
    return nn.Parameter(values, requires_grad=False)


class CountModule(nn.Module):
    """A module with count tables, which are resized to the tables of a state dict on loading."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, parameter in self.named_parameters():
            loaded = state.get(prefix + name)
            if loaded is not None and parameter.shape != loaded.shape:
                parameter.data = torch.empty_like(loaded, device=parameter.device)
        super()._load_from_state_dict(state, prefix, *rest)


def check_tables(is_valid: bool, problem: str) -> None:
    """Raise an error for loaded tables that `fit` could not have produced."""
    if not is_valid:
        raise GlassError(f"the count tables are corrupted: {problem}")


def is_increasing(keys: Tensor) -> bool:
    """Whether keys are a vector of strictly increasing integers >= 0."""
    return keys.ndim == 1 and bool((keys[1:] > keys[:-1]).all() and (keys[:1] >= 0).all())


class NGramIndex(CountModule):
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
        self.keys = nn.ParameterList(int_parameter() for _ in range(max_length))

    def check(self) -> None:
        check_tables(all(map(is_increasing, self.keys)), "the n-gram keys are not sorted")

    @torch.no_grad()
    def fit(self, columns: Sequence[Tensor], min_count: int = 1) -> Iterator[Tensor]:
        """Index all n-grams that occur at least `min_count` times; yield what `find` yields."""
        index = torch.zeros_like(columns[0])
        for i, column in enumerate(columns):
            is_known = (index >= 0) & (column >= 0)
            keys = index[is_known] * self.vocab + column[is_known]
            keys, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
            is_frequent = counts >= min_count
            self.keys[i].data = keys[is_frequent]
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


class NGramCounts(CountModule):
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
        self.followers = nn.ParameterList(int_parameter() for _ in range(order + 1))
        self.cumulative = nn.ParameterList(int_parameter() for _ in range(order + 1))

    def check(self) -> None:
        check_tables(all(map(is_increasing, self.followers)), "the follower keys are not sorted")
        for followers, cumulative in zip(self.followers, self.cumulative, strict=True):
            is_valid = cumulative.ndim == 1 and len(cumulative) in (0, len(followers) + 1)
            is_valid = is_valid and bool((cumulative.diff() > 0).all())
            check_tables(is_valid, "the cumulative counts do not match the followers")

    @torch.no_grad()
    def fit(self, columns: Sequence[Tensor], targets: Tensor) -> None:
        """Count the target (n) that followed each context."""
        indexes = chain([torch.zeros_like(targets)], self.contexts.fit(columns))
        for length, index in enumerate(indexes):
            keys = (index * self.vocab + targets)[index >= 0]
            keys, counts = torch.unique(keys, return_counts=True)
            self.followers[length].data = keys
            self.cumulative[length].data = torch.cat((counts.new_zeros(1), counts.cumsum(0)))

    def find(self, columns: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each context length: the contexts' indexes, and the start and end of their followers.

        All three have the shape n. A context that never occurred has an empty slice.
        """
        indexes = (torch.zeros_like(columns[0]), *self.contexts.find(columns))
        for index, followers in zip(indexes, self.followers, strict=True):
            start = torch.searchsorted(followers, index * self.vocab)
            end = torch.searchsorted(followers, (index + 1) * self.vocab)
            yield index, start, torch.where(index >= 0, end, start)

    def probs(self, columns: Sequence[Tensor]) -> Tensor:
        """The probability of every token after each context (n v), with Witten-Bell smoothing.

        From the empty context to the longest, starting with 1 / vocab:

            P(token | context) = (count + distinct * P(token | context shortened by one id))
                                 / (total + distinct)

        where `total` is the number of tokens that followed the context and `distinct` the number
        of different ones. The more different tokens followed, the less the counts are trusted.
        """
        shape = len(columns[0]), self.vocab
        probs = torch.full(shape, 1 / self.vocab, device=columns[0].device)
        for length, (_, start, end) in enumerate(self.find(columns)):
            cumulative, distinct = self.cumulative[length], end - start
            denominator = cumulative[end] - cumulative[start] + distinct
            probs *= torch.where(distinct > 0, distinct / denominator.clamp(min=1), 1.0)[:, None]
            row, token, count = self.list_followers(length, start, distinct)
            probs[row, token] += count / denominator[row]
            if watched(f"order{length}"):
                tap(f"order{length}", probs.clone())  # the next length changes probs in place
        return probs

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
        *_, (_, start, end) = self.find(columns)
        row, token, count = self.list_followers(self.order, start, end - start)
        fractions = torch.zeros(len(start), self.vocab, device=start.device)
        total = self.cumulative[self.order][end] - self.cumulative[self.order][start]
        fractions[row, token] = count / total[row]
        return fractions

    def list_followers(
        self, length: int, start: Tensor, distinct: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All followers of n contexts in one list: the row of the context, the token, the count."""
        row = torch.repeat_interleave(torch.arange(len(distinct), device=distinct.device), distinct)
        offset = torch.arange(len(row), device=row.device) - (distinct.cumsum(0) - distinct)[row]
        i, cumulative = start[row] + offset, self.cumulative[length]
        return row, self.followers[length][i] % self.vocab, cumulative[i + 1] - cumulative[i]


def search(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The position of each wanted key in a sorted table, and whether it is in the table."""
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    position = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return position, keys[position] == wanted
