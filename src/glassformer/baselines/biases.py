"""Predict a rating as the mean plus an item bias and a user bias.

Shapes: b or n ratings, i items.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Generator, Tensor

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.trace import Tap, tap

SWEEPS = 20  # of alternating least squares; the biases change by less than 0.001 after a few


@dataclass(frozen=True)
class Config(ModelConfig):
    users: int = 1000
    items: int = 1000
    user_damping: float = 5.0  # a bias is a mean over the ratings and this many zeros
    item_damping: float = 3.0


class Biases(Network):
    """mean + bias of the user + bias of the item, fitted without gradients."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.RATER, Trait.FITTED})
    forward_inputs = ("user", "item")
    taps: ClassVar[dict[str, Tap]] = {
        "biases": Tap("b d", "bias of the user, bias of the item"),
        "score": Tap("b", "mean + Σ biases"),
    }
    mean: Tensor
    user_bias: Tensor
    item_bias: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("user_bias", torch.zeros(config.users))
        self.register_buffer("item_bias", torch.zeros(config.items))

    def fit(self, user: Tensor, item: Tensor, rating: Tensor) -> None:
        """Minimize the squared errors plus damping × squared biases, by alternating sweeps: n."""
        rating = rating.double()
        mean = rating.mean()
        user_bias = self.user_bias.double() * 0
        item_bias = self.item_bias.double() * 0
        for _ in range(SWEEPS):
            rest = rating - mean - user_bias[user]
            item_bias = damped_mean(rest, item, len(item_bias), self.config.item_damping)
            rest = rating - mean - item_bias[item]
            user_bias = damped_mean(rest, user, len(user_bias), self.config.user_damping)
        self.mean = mean.to(self.mean)
        self.user_bias, self.item_bias = user_bias.to(self.mean), item_bias.to(self.mean)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Ratings: b, b -> b. A user or item that was never seen, -1, has no bias."""
        tables = ((self.user_bias, user), (self.item_bias, item))
        biases = [table[index.clamp(min=0)] * (index >= 0) for table, index in tables]
        return tap("score", self.mean + tap("biases", torch.stack(biases, dim=1)).sum(dim=1))

    def rate_items(self, user: Tensor) -> Tensor:
        """The ratings of all items: b -> b i."""
        user_bias = self.user_bias[user.clamp(min=0)] * (user >= 0)
        return self.mean + user_bias[:, None] + self.item_bias

    def random_inputs(self, batch: int, length: int, generator: Generator) -> dict[str, Tensor]:
        sizes = {"user": self.config.users, "item": self.config.items}
        return {n: torch.randint(size, (batch,), generator=generator) for n, size in sizes.items()}


def damped_mean(values: Tensor, group: Tensor, size: int, damping: float) -> Tensor:
    """The mean of the values in each group and of `damping` zeros: n, n -> size."""
    sums = torch.zeros(size, dtype=values.dtype).index_add_(0, group, values)
    return sums / (torch.bincount(group, minlength=size) + max(damping, 1e-9))
