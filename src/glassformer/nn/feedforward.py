"""The feed-forward layer: the same matrices at every position."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.dropout import Dropout
from glassformer.trace import tap

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's, before erf was fast
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Widen, activate, narrow."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Activation = F.gelu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = tap("hidden", self.activation(self.widen(x)))  # b t f
        y: Tensor = self.dropout(self.narrow(hidden))  # b t d
        return y


class GatedFeedForward(nn.Module):
    """Widen twice, let one activate the other, narrow (Shazeer, 2020)."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Activation = F.silu,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.gate, self.widen = (nn.Linear(dim, hidden, bias=bias) for _ in range(2))
        self.narrow = nn.Linear(hidden, dim, bias=bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = tap("hidden", self.activation(self.gate(x)) * self.widen(x))  # b t f
        y: Tensor = self.dropout(self.narrow(hidden))  # b t d
        return y
