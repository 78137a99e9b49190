"""A linear classifier over the n-grams that a text contains: NB-SVM.

A linear support vector machine whose inputs are scaled by how much more often an n-gram occurs in
one class than in the others (Wang and Manning, 2012).

Shapes: b batch, t tokens, n positions or texts, c classes.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.counts import NGramIndex, check_tables, previous_ids

MAX_ITERATIONS = 40  # of L-BFGS
MAX_WEIGHTS = 2**20  # weights that are fitted at once, to limit memory


class NGramClassifier(nn.Module):
    """Sums a weight for each n-gram of up to `order` tokens that occurs in a text.

    The weights are fitted directly, without training steps, to the n-grams that occur at least
    `min_count` times. `svm_c` is the weight of the squared hinge loss relative to the L2 penalty.
    """

    weight: Tensor  # n-grams c
    bias: Tensor  # c

    def __init__(
        self, vocab: int, classes: int, *, order: int = 3, min_count: int = 2, svm_c: float = 0.1
    ) -> None:
        super().__init__()
        self.classes = classes
        self.order = order
        self.min_count = min_count
        self.svm_c = svm_c
        self.ngrams = NGramIndex(vocab, order)
        self.register_buffer("weight", torch.zeros(0, classes))
        self.register_buffer("bias", torch.zeros(classes))

    @property
    def size(self) -> int:
        """The number of n-grams."""
        return sum(len(keys) for keys in self.ngrams.keys)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if (weight := state.get(f"{prefix}weight")) is not None:  # as many rows as n-grams
            self.weight = torch.empty_like(weight, device=self.weight.device)
        super()._load_from_state_dict(state, prefix, *rest)

    def check(self) -> None:
        is_valid = self.weight.shape == (self.size, self.classes)
        check_tables(is_valid, "the numbers of n-grams and weights differ")

    def forward(self, ids: Tensor) -> Tensor:
        """Class logits of each text, whose ids are -1 at padding: b t -> b c."""
        indexes = [*self.ngrams.find(previous_ids(ids, self.order))]
        text_of = torch.arange(len(ids), device=ids.device).repeat_interleave(ids.shape[1])
        text, ngram = self.unique_pairs(indexes, text_of)
        return self.bias + sum_rows(*compress_rows(text, ngram, len(ids)), self.weight)

    def list_ngrams(self, ids: Tensor) -> dict[tuple[int, ...], Tensor]:
        """The n-grams of one text (t) that have weights (c): those that `forward` sums."""
        ngrams = dict[tuple[int, ...], Tensor]()
        start = 0
        for i, index in enumerate(self.ngrams.find(previous_ids(ids[None], self.order))):
            for end in (index >= 0).nonzero()[:, 0].tolist():
                ngram = tuple(ids[end - i : end + 1].tolist())
                ngrams[ngram] = self.weight[start + int(index[end])]
            start += len(self.ngrams.keys[i])
        return ngrams

    def unique_pairs(self, indexes: Sequence[Tensor], text_of: Tensor) -> tuple[Tensor, Tensor]:
        """Each pair of a text and an n-gram in it, once: two vectors of the same length.

        `indexes` holds, for each n-gram length, the index of the n-gram that ends at each position
        (n); `text_of` (n) holds the index of the text each position belongs to. N-grams of all
        lengths are numbered consecutively, shortest first.
        """
        sizes = [len(keys) for keys in self.ngrams.keys]
        starts = [0, *accumulate(sizes)]
        total = max(sum(sizes), 1)
        keys_by_length = [
            (text_of * total + index + start)[index >= 0]
            for index, start in zip(indexes, starts, strict=False)
        ]
        keys = torch.cat([torch.unique(keys) for keys in keys_by_length])
        return keys // total, keys % total

    def fit(self, ids: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> None:
        """Fit to texts, which are concatenated with -1 between them, and their labels.

        Labels are class indices (n), or 0/1 for each class (n c). `class_weights` (c) multiply the
        loss of the texts of each class.
        """
        columns = previous_ids(ids[None], self.order)
        indexes = [*self.ngrams.fit(columns, self.min_count)]
        text, ngram = self.unique_pairs(indexes, (ids < 0).cumsum(0))
        matrix = IncidenceMatrix(text, ngram, len(labels), self.size)
        is_class = labels.bool() if labels.dim() == 2 else F.one_hot(labels, self.classes).bool()
        loss_weights = weigh_texts(is_class, labels.dim() == 2, class_weights)
        has_one_boundary = self.classes == 2 and labels.dim() == 1
        classes = torch.arange(1 if has_one_boundary else self.classes)
        fits = [
            fit_svm(matrix, is_class[:, chunk], self.svm_c * loss_weights[:, chunk])
            for chunk in torch.split(classes, max(MAX_WEIGHTS // max(self.size, 1), 1))
        ]
        weight, bias = (torch.cat(parts, dim=-1) for parts in zip(*fits, strict=True))
        if has_one_boundary:
            weight, bias = (torch.cat((x, -x), dim=-1) for x in (weight, bias))
        self.weight, self.bias = weight, bias


def weigh_texts(is_class: Tensor, multi_label: bool, class_weights: Tensor | None) -> Tensor:
    """The weight of each text in the loss of each class: n c -> n c.

    With one label per text, a text has the weight of its class everywhere; with several, only the
    loss of the classes that it has is weighted.
    """
    if class_weights is None:
        return torch.ones(is_class.shape)
    if multi_label:
        return torch.where(is_class, class_weights, 1.0)
    return (is_class.float() @ class_weights)[:, None].expand(is_class.shape)


class IncidenceMatrix:
    """A sparse 0/1 matrix, texts x n-grams: which text contains which n-gram."""

    def __init__(self, text: Tensor, ngram: Tensor, n_texts: int, n_ngrams: int) -> None:
        self.ngrams_by_text = compress_rows(text, ngram, n_texts)
        self.texts_by_ngram = compress_rows(ngram, text, n_ngrams)

    def times(self, values: Tensor) -> Tensor:
        """For each text, the sum over its n-grams: n-grams c -> texts c."""
        return sum_rows(*self.ngrams_by_text, values)

    def transposed_times(self, values: Tensor) -> Tensor:
        """For each n-gram, the sum over the texts that contain it: texts c -> n-grams c."""
        return sum_rows(*self.texts_by_ngram, values)


def sum_rows(columns: Tensor, starts: Tensor, values: Tensor) -> Tensor:
    """The product of a sparse 0/1 matrix, given by `compress_rows`, with values.

    Its rows are sums of `values[columns]` from each start to the next; the lookup itself is never
    materialized.
    """
    if not len(columns):
        return values.new_zeros(len(starts), values.shape[1])
    return F.embedding_bag(columns, values, starts, mode="sum")


def compress_rows(row: Tensor, column: Tensor, n_rows: int) -> tuple[Tensor, Tensor]:
    """Compressed sparse rows: the columns of the ones, row by row, and the start of each row."""
    counts = torch.bincount(row, minlength=n_rows)
    return column[row.argsort(stable=True)], counts.cumsum(0) - counts


@torch.no_grad()
def fit_svm(matrix: IncidenceMatrix, is_class: Tensor, svm_c: Tensor) -> tuple[Tensor, Tensor]:
    """N-gram weights and biases that separate each class from all others: n c -> n-grams c, c.

    Minimizes |w|^2 / 2 + svm_c (n c) * the squared hinge loss, summed over the texts. N-grams are
    scaled by their log count ratio between the class and the rest.
    """
    counts = [1 + matrix.transposed_times(side.float()) for side in (is_class, ~is_class)]
    ratio = (counts[0] / counts[0].sum(dim=0)).log() - (counts[1] / counts[1].sum(dim=0)).log()
    sign = torch.where(is_class, 1.0, -1.0)
    weight = torch.zeros_like(ratio)
    bias = torch.zeros(is_class.shape[1])
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=MAX_ITERATIONS,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-5,
    )

    def loss() -> float:
        logits = matrix.times(weight * ratio) + bias
        hinge = (1 - sign * logits).clamp(min=0)
        logits_grad = -2 * svm_c * sign * hinge
        weight.grad = weight + ratio * matrix.transposed_times(logits_grad)
        bias.grad = logits_grad.sum(dim=0)
        return float(weight.square().sum() / 2 + (svm_c * hinge.square()).sum())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weight * ratio, bias
