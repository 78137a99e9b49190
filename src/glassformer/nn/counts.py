"""Counting: what came after what, and how often."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap, watched


def previous_ids(ids: Tensor, far: int) -> list[Tensor]:
    """Each id, the one before it, and so on: b t -> columns of b * t; -1 where there is none."""
    length, none = ids.shape[1], ids.new_full((len(ids), far - 1), -1)
    longer = torch.cat((none, ids), dim=1)
    starts = range(far - 1, -1, -1)
    return [longer[:, start : start + length].flatten() for start in starts]


def int_parameter(values: Tensor | None = None) -> nn.Parameter:
    """Whole numbers that are kept with a model's weights, but learnt by no gradient."""
    values = torch.zeros(0, dtype=torch.int64) if values is None else values
    return nn.Parameter(values, requires_grad=False)


class CountModule(nn.Module):
    """A module with tables, which are as long as what was counted: they take the size of what is
    loaded."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, mine in self.named_parameters():
            loaded = state.get(prefix + name)
            if loaded is not None and mine.shape != loaded.shape:
                mine.data = torch.empty_like(loaded, device=mine.device)
        super()._load_from_state_dict(state, prefix, *rest)


def check_tables(sound: bool, what: str) -> None:
    """Tables that counting could not have made are refused when they are loaded."""
    if not sound:
        raise GlassError(f"its tables are damaged: {what}")


def is_increasing(keys: Tensor) -> bool:
    """Whether keys are one row of numbers, each above the one before and none below 0."""
    return keys.ndim == 1 and bool((keys[1:] > keys[:-1]).all() and (keys[:1] >= 0).all())


class NGramIndex(CountModule):
    """Sequences of ids that occurred, each with a number of its own among those of its length.

    They are given in columns, n ids each; one that ends early has -1 from there on. For each
    length there is a sorted table of keys: (number of the sequence without its last id) * vocab +
    last id. A sequence's number is its place there.
    """

    def __init__(self, vocab: int, longest: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.keys = nn.ParameterList(int_parameter() for _ in range(longest))

    def check(self) -> None:
        check_tables(all(map(is_increasing, self.keys)), "keys are not in order")

    @torch.no_grad()
    def fit(self, columns: Sequence[Tensor], min_count: int = 1) -> Iterator[Tensor]:
        """Note all sequences that occur so often; give their numbers, n, as `find` does."""
        number = torch.zeros_like(columns[0])
        for length, column in enumerate(columns):
            there = (number >= 0) & (column >= 0)
            keys = number[there] * self.vocab + column[there]
            keys, found, counts = torch.unique(keys, return_inverse=True, return_counts=True)
            often = counts >= min_count
            self.keys[length].data = keys[often]
            renamed = torch.where(often, often.cumsum(0) - 1, -1)
            number = torch.full_like(number, -1).masked_scatter(there, renamed[found])
            yield number

    def find(self, columns: Sequence[Tensor]) -> Iterator[Tensor]:
        """The number of each sequence, n, for every length; -1 where it never occurred."""
        number = torch.zeros_like(columns[0])
        for keys, column in zip(self.keys, columns, strict=True):
            place, found = search(keys, number * self.vocab + column)
            number = torch.where((number >= 0) & (column >= 0) & found, place, -1)
            yield number


class NGramCounts(CountModule):
    """How often each answer came with each context, for contexts of every length up to `order`.

    A context is given in columns, the most telling id first. Answers have the key (number of the
    context) * vocab + answer in a sorted table, and `upto` says how many were counted before each:
    one search finds all that followed a context.
    """

    def __init__(self, vocab: int, order: int) -> None:
        super().__init__()
        self.vocab, self.order = vocab, order
        self.contexts = NGramIndex(vocab, order)
        self.answers = nn.ParameterList(int_parameter() for _ in range(order + 1))
        self.cumulative = nn.ParameterList(int_parameter() for _ in range(order + 1))

    def check(self) -> None:
        check_tables(all(map(is_increasing, self.answers)), "answers are not in order")
        for answers, cumulative in zip(self.answers, self.cumulative, strict=True):
            counted = cumulative.ndim == 1 and len(cumulative) == (
                len(answers) + 1 if len(cumulative) else 0
            )
            check_tables(counted and bool((cumulative.diff() > 0).all()), "counts are not in order")

    @torch.no_grad()
    def fit(self, columns: Sequence[Tensor], answers: Tensor) -> None:
        """Count each answer, n, with its context."""
        numbers = chain([torch.zeros_like(answers)], self.contexts.fit(columns))
        for length, number in enumerate(numbers):
            keys = (number * self.vocab + answers)[number >= 0]
            keys, counts = torch.unique(keys, return_counts=True)
            self.answers[length].data = keys
            self.cumulative[length].data = torch.cat((counts.new_zeros(1), counts.cumsum(0)))

    def find(self, columns: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each length of context: its number, n, and where its answers begin and end.

        What never occurred has no answers.
        """
        numbers = (torch.zeros_like(columns[0]), *self.contexts.find(columns))
        for number, answers in zip(numbers, self.answers, strict=True):
            first = torch.searchsorted(answers, number * self.vocab)
            last = torch.searchsorted(answers, (number + 1) * self.vocab)
            yield number, first, torch.where(number >= 0, last, first)

    def probs(self, columns: Sequence[Tensor]) -> Tensor:
        """The chance of every answer, n v, by Witten and Bell.

        A context with as many kinds of answer as occurrences is trusted by half, one with few kinds
        more; the rest of the trust is that in the next shorter context.
        """
        shape = len(columns[0]), self.vocab
        probs = torch.full(shape, 1 / self.vocab, device=columns[0].device)
        for length, (_, first, last) in enumerate(self.find(columns)):
            cumulative, distinct = self.cumulative[length], last - first
            seen = cumulative[last] - cumulative[first] + distinct
            probs *= torch.where(distinct > 0, distinct / seen.clamp(min=1), 1.0)[:, None]
            row, answer, count = self.answered(length, first, distinct)
            probs[row, answer] += count / seen[row]
            if watched(f"order{length}"):
                tap(f"order{length}", probs.clone())  # the next one changes it
        return probs

    @property
    def order_taps(self) -> dict[str, Tap]:
        """The values that `chances` names, for the module that calls it."""
        min_count = Tap("n v", tr("(count + kinds / vocab) / (seen + kinds)"))
        more = Tap("n v", tr("(count + kinds × chance knowing one less) / (seen + kinds)"))
        return {f"order{n}": more if n else min_count for n in range(self.order + 1)}

    def target_probs(self, columns: Sequence[Tensor], answers: Tensor) -> Tensor:
        """The chance of one answer each, n: what `chances` has in its place."""
        chance = torch.full(answers.shape, 1 / self.vocab, device=answers.device)
        for length, (number, first, last) in enumerate(self.find(columns)):
            cumulative, distinct = self.cumulative[length], last - first
            place, found = search(self.answers[length], number * self.vocab + answers)
            count = torch.where(found & (number >= 0), cumulative[place + 1] - cumulative[place], 0)
            seen = cumulative[last] - cumulative[first] + distinct
            chance = torch.where(
                distinct > 0, (count + distinct * chance) / seen.clamp(min=1), chance
            )
        return chance

    def shares(self, columns: Sequence[Tensor]) -> Tensor:
        """What share of all that followed the whole context each answer has, n v."""
        *_, (_, first, last) = self.find(columns)
        row, answer, count = self.answered(self.order, first, last - first)
        shares = torch.zeros(len(first), self.vocab, device=first.device)
        seen = self.cumulative[self.order][last] - self.cumulative[self.order][first]
        shares[row, answer] = count / seen[row]
        return shares

    def answered(
        self, length: int, first: Tensor, distinct: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All answers from `first` on, so many `kinds` for each row: row, answer and count."""
        row = torch.repeat_interleave(torch.arange(len(distinct), device=distinct.device), distinct)
        within = torch.arange(len(row), device=row.device) - (distinct.cumsum(0) - distinct)[row]
        place, cumulative = first[row] + within, self.cumulative[length]
        return (
            row,
            self.answers[length][place] % self.vocab,
            cumulative[place + 1] - cumulative[place],
        )


def search(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where each wanted key stands, and whether it is there at all."""
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return place, keys[place] == wanted
