"""Matrix factorization: a rating is the dot product of a user's and an item's vector, plus biases.

Koren, Bell, Volinsky (2009). What the features mean is not given: they are learned from ratings.

Shapes: b ratings, i items, d features.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Generator, Tensor, nn

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.trace import Tap, tap

INITIAL_STD = 0.1  # of a user's dot product with an item: ratings start close to the biases


@dataclass(frozen=True)
class Config(ModelConfig):
    users: int = 1000
    items: int = 1000
    dim: int = 64  # features of a user and of an item
    l2: float = 0.1  # weight of the squared vectors of a rating's user and item in the loss
    bias_l2: float = 0.005  # the same for their biases


class Factorization(Network):
    """mean + bias of the user + bias of the item + user · item."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.RATER, Trait.COMPILABLE})
    embeddings = ("user", "item", "user_bias", "item_bias")
    forward_inputs = ("user", "item")
    taps: ClassVar[dict[str, Tap]] = {
        "user_vector": Tap("b d", "U[user]"),
        "item_vector": Tap("b d", "M[item]"),
        "products": Tap("b d", "user vector × item vector"),
        "biases": Tap("b d", "bias of the user, bias of the item"),
        "score": Tap("b", "mean + Σ biases + Σ products"),
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.user = nn.Embedding(c.users, c.dim)
        self.item = nn.Embedding(c.items, c.dim)
        self.user_bias = nn.Embedding(c.users, 1)
        self.item_bias = nn.Embedding(c.items, 1)
        self.mean = nn.Parameter(torch.zeros(()))
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=INITIAL_STD**0.5 * c.dim**-0.25)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)
        self.penalty: Tensor | None = None  # of the last pass in training

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Ratings: b, b -> b. A user or item that was never seen, -1, has no vector and no bias."""
        user_vector = tap("user_vector", look_up(self.user, user))  # b d
        item_vector = tap("item_vector", look_up(self.item, item))
        biases = torch.cat((look_up(self.user_bias, user), look_up(self.item_bias, item)), dim=1)
        biases = tap("biases", biases)  # b 2
        products = tap("products", user_vector * item_vector)
        if self.training:
            squares = (user_vector.square() + item_vector.square()).sum(dim=1)
            bias_squares = biases.square().sum(dim=1)
            c = self.config
            self.penalty = (c.l2 * squares + c.bias_l2 * bias_squares).mean()
        return tap("score", self.mean + biases.sum(dim=1) + products.sum(dim=1))

    def rate_items(self, user: Tensor) -> Tensor:
        """The ratings of all items: b -> b i."""
        products = look_up(self.user, user) @ self.item.weight.T
        return self.mean + look_up(self.user_bias, user) + self.item_bias.weight[:, 0] + products

    def extra_loss(self) -> Tensor | None:
        """The L2 penalty per rating: it is larger for users and items with more ratings."""
        penalty, self.penalty = self.penalty, None
        return penalty

    def item_vectors(self) -> Tensor:
        """The features of every item: i d."""
        return self.item.weight

    def random_inputs(self, batch: int, length: int, generator: Generator) -> dict[str, Tensor]:
        sizes = {"user": self.config.users, "item": self.config.items}
        return {n: torch.randint(size, (batch,), generator=generator) for n, size in sizes.items()}


def look_up(table: nn.Embedding, index: Tensor) -> Tensor:
    """Rows of a table: b -> b d; zeros for the index -1."""
    rows: Tensor = table(index.clamp(min=0))
    return rows * (index >= 0)[:, None].to(rows.dtype)
