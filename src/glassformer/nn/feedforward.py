"""Feed-forward layers, applied to each token separately.

Shapes: b batch, t tokens, d features, f hidden features.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.attention import bias_term
from glassformer.nn.dropout import Dropout
from glassformer.trace import Tap, tap

Activation = Callable[[Tensor], Tensor]


def relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's approximation
    "silu": F.silu,
    "relu_squared": relu_squared,
}

DISPLAY_NAMES = {
    "relu": "ReLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU_tanh",
    "silu": "SiLU",
    "relu_squared": "ReLU²",
}


def activation_name(activation: Activation) -> str:
    """The display name of an activation.

    Activations are compared by their outputs, because a deep copy of a partial is not equal to it.
    """
    x = torch.linspace(-2, 2, 9)
    names = (name for name, other in ACTIVATIONS.items() if torch.equal(other(x), activation(x)))
    return DISPLAY_NAMES.get(next(names, ""), tr("activation"))


class FeedForward(nn.Module):
    """down(activation(up(x)))."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Activation = F.gelu,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = tap("hidden", self.activation(self.up(x)))  # b t f
        y: Tensor = self.dropout(self.down(hidden))  # b t d
        return y

    @property
    def taps(self) -> dict[str, Tap]:
        up = f"X W₁{bias_term(self.up, '₁')}"
        return {"hidden": Tap("b t f", f"{activation_name(self.activation)}({up})")}


class GatedFeedForward(nn.Module):
    """down(activation(gate(x)) * up(x)) (Shazeer, 2020)."""

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
        self.gate, self.up = (nn.Linear(dim, hidden, bias=bias) for _ in range(2))
        self.down = nn.Linear(hidden, dim, bias=bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = tap("hidden", self.activation(self.gate(x)) * self.up(x))  # b t f
        y: Tensor = self.dropout(self.down(hidden))  # b t d
        return y

    @property
    def taps(self) -> dict[str, Tap]:
        up, gate = f"X W₁{bias_term(self.up, '₁')}", f"X W_g{bias_term(self.gate, '_g')}"
        return {"hidden": Tap("b t f", f"{activation_name(self.activation)}({gate}) × ({up})")}
