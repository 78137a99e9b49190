"""A bag of phrases: which words and short phrases a text holds, each with a weight (NB-SVM).

A linear support vector machine over phrases, each scaled by how much more often it occurs under a
label than elsewhere (Wang and Manning, 2012). It knows nothing of order beyond a phrase, and is
hard to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor, nn

from glassformer.config import check_sizes
from glassformer.nn.counts import Sequences, Tables, before, refuse_unless
from glassformer.nn.span import Span

AGAIN = 40  # times that it goes over the texts, at the most


@dataclass(frozen=True)
class Config:
    vocab: int = 50_000
    classes: int = 2
    order: int = 3  # the longest phrase
    least: int = 2  # how often a phrase must occur
    strength: float = 0.1  # how much a mistake weighs, beside keeping weights small

    def __post_init__(self) -> None:
        check_sizes(self)


class Bag(Tables):
    """Its weights are learnt in one go."""

    Config: TypeAlias = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = c = config
        self.phrases = Sequences(c.vocab, c.order)
        self.weight = nn.Parameter(torch.zeros(0, c.classes), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(c.classes), requires_grad=False)

    def check(self) -> None:
        size = (sum(len(keys) for keys in self.phrases.keys), self.config.classes)
        refuse_unless(self.weight.shape == size, "phrases and weights are not equally many")

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Scores for the classes of each text: b t -> b c."""
        span = Span.of(ids, keep)
        known = ids if span.keep is None else ids.masked_fill(~span.keep, -1)
        numbers = [*self.phrases.find(before(known, self.config.order))]
        of = torch.arange(len(ids), device=ids.device).repeat_interleave(ids.shape[1])
        text, phrase = self.held(numbers, of)
        return self.bias.repeat(len(ids), 1).index_add(0, text, self.weight[phrase])

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

    @torch.enable_grad()
    def learn(self, ids: Tensor, labels: Tensor) -> None:
        """Learn from texts, one after the other with -1 between them, n, and their labels."""
        columns = before(ids[None], self.config.order)
        numbers = [*self.phrases.learn(columns, self.config.least)]
        text, phrase = self.held(numbers, (ids < 0).cumsum(0))
        size, c = sum(len(keys) for keys in self.phrases.keys), self.config
        weights, biases = zip(
            *(
                separate(text, phrase, size, labels == label, c.strength)
                for label in range(1 if c.classes == 2 else c.classes)
            ),
            strict=True,
        )
        if c.classes == 2:
            weights, biases = (*weights, -weights[0]), (*biases, -biases[0])
        self.weight.data, self.bias.data = torch.stack(weights, dim=1), torch.stack(biases)


def separate(
    text: Tensor, phrase: Tensor, size: int, ours: Tensor, strength: float
) -> tuple[Tensor, Tensor]:
    """Weights for phrases, and a bias, that tell our texts from others by as wide a gap as can be.

    Minimises |w|^2 / 2 + strength * (what lies inside the gap, squared).
    """
    often = 1 + torch.stack(
        [torch.bincount(phrase[ours[text] == side], minlength=size) for side in (1, 0)]
    )
    ratio = (often / often.sum(dim=1, keepdim=True)).log()
    ratio = ratio[0] - ratio[1]
    sign = torch.where(ours, 1.0, -1.0)
    weight = torch.zeros(size, requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=AGAIN,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-5,
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        scores = torch.zeros(len(ours)).index_add(0, text, (weight * ratio)[phrase]) + bias
        inside = (1 - sign * scores).clamp(min=0)
        total = weight.square().sum() / 2 + strength * inside.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return (weight * ratio).detach(), bias.detach()
