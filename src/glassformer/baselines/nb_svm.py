"""A bag of phrases: which words and short phrases a text holds, each with a weight (NB-SVM).

A linear support vector machine over phrases, each scaled by how much more often it occurs under a
label than elsewhere (Wang and Manning, 2012). It knows nothing of order beyond a phrase, and is
hard to beat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.counts import CountModule, NGramIndex, check_tables, previous_ids
from glassformer.nn.layout import SequenceLayout

AGAIN = 40  # times that it goes over the texts, at the most
AT_ONCE = 2**20  # weights that are learnt together, for the sake of memory


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_000
    classes: int = 2
    order: int = 3  # the longest phrase
    min_count: int = 2  # how often a phrase must occur
    svm_c: float = 0.1  # how much a mistake weighs, beside keeping weights small


class NBSVM(CountModule, Network):
    """Its weights are learnt in one go."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.FITTED, Trait.PADDED})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.phrases = NGramIndex(c.vocab, c.order)
        self.weight = nn.Parameter(torch.zeros(0, c.classes), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(c.classes), requires_grad=False)

    def check(self) -> None:
        size = (sum(len(keys) for keys in self.phrases.keys), self.config.classes)
        check_tables(self.weight.shape == size, "phrases and weights are not equally many")

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Scores for the classes of each text: b t -> b c."""
        layout = SequenceLayout.from_ids(ids, keep)
        known = ids if layout.keep is None else ids.masked_fill(~layout.keep, -1)
        numbers = [*self.phrases.find(previous_ids(known, self.config.order))]
        of = torch.arange(len(ids), device=ids.device).repeat_interleave(ids.shape[1])
        text, phrase = self.held(numbers, of)
        return self.bias + sum_rows(*rows_of(text, phrase, len(ids)), self.weight)

    def held(self, numbers: Sequence[Tensor], of: Tensor) -> tuple[Tensor, Tensor]:
        """Which text holds which phrase, each once; `of`, n, is the text of each place."""
        sizes = [len(keys) for keys in self.phrases.keys]
        starts, total = [0, *accumulate(sizes)], max(sum(sizes), 1)  # of each length, in one row
        both = [
            (of * total + number + start)[number >= 0]
            for number, start in zip(numbers, starts, strict=False)
        ]
        once = torch.cat([torch.unique(some) for some in both])
        return once // total, once % total

    def fit(self, ids: Tensor, labels: Tensor) -> None:
        """Learn from texts, one after the other with -1 between them, n, and their labels."""
        columns = previous_ids(ids[None], self.config.order)
        numbers = [*self.phrases.fit(columns, self.config.min_count)]
        text, phrase = self.held(numbers, (ids < 0).cumsum(0))
        size, c = sum(len(keys) for keys in self.phrases.keys), self.config
        holds = IncidenceMatrix(text, phrase, len(labels), size)
        classes = torch.arange(1 if c.classes == 2 else c.classes)
        found = [
            separate(holds, labels[:, None] == some, c.svm_c)
            for some in torch.split(classes, max(AT_ONCE // max(size, 1), 1))
        ]
        weight, bias = (torch.cat(parts, dim=-1) for parts in zip(*found, strict=True))
        if c.classes == 2:
            weight, bias = (torch.cat((x, -x), dim=-1) for x in (weight, bias))
        self.weight.data, self.bias.data = weight, bias


class IncidenceMatrix:
    """Which text holds which phrase, each pair once: a matrix of 0 and 1, texts x phrases."""

    def __init__(self, text: Tensor, phrase: Tensor, texts: int, phrases: int) -> None:
        self.of_text = rows_of(text, phrase, texts)
        self.of_phrase = rows_of(phrase, text, phrases)

    def times(self, values: Tensor) -> Tensor:
        """For each text the sum over its phrases: phrases c -> texts c."""
        return sum_rows(*self.of_text, values)

    def transposed_times(self, values: Tensor) -> Tensor:
        """For each phrase the sum over the texts that hold it: texts c -> phrases c."""
        return sum_rows(*self.of_phrase, values)


def sum_rows(columns: Tensor, starts: Tensor, values: Tensor) -> Tensor:
    """A matrix of 0 and 1, by the columns of its ones, times values: the sum of some of their rows.

    It is `values[columns]`, added up from each start to the next, without being made.
    """
    if not len(columns):
        return values.new_zeros(len(starts), values.shape[1])
    return F.embedding_bag(columns, values, starts, mode="sum")


def rows_of(row: Tensor, column: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The columns of the ones, row after row, and where each row starts."""
    counts = torch.bincount(row, minlength=rows)
    return column[row.argsort(stable=True)], counts.cumsum(0) - counts


@torch.no_grad()
def separate(holds: IncidenceMatrix, ours: Tensor, svm_c: float) -> tuple[Tensor, Tensor]:
    """For each class weights of phrases, and a bias, that tell its texts from all others by as wide
    a gap as can be: n c -> phrases c, c.

    Minimises |w|^2 / 2 + strength * (what lies inside the gap, squared).
    """
    often = [1 + holds.transposed_times(side.float()) for side in (ours, ~ours)]
    ratio = (often[0] / often[0].sum(dim=0)).log() - (often[1] / often[1].sum(dim=0)).log()
    sign = torch.where(ours, 1.0, -1.0)
    weight, bias = torch.zeros_like(ratio), torch.zeros(ours.shape[1])
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=AGAIN,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-5,
    )

    def loss() -> float:
        scores = holds.times(weight * ratio) + bias
        inside = (1 - sign * scores).clamp(min=0)
        slope = -2 * svm_c * sign * inside
        weight.grad = weight + ratio * holds.transposed_times(slope)
        bias.grad = slope.sum(dim=0)
        return float(weight.square().sum() / 2 + svm_c * inside.square().sum())

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return weight * ratio, bias
