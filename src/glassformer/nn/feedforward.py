"""Feed-forward layers, applied to each token separately.

Shapes: b batch, t tokens, d features, f hidden features.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.attention import bias_term
from glassformer.nn.dropout import Dropout
from glassformer.trace import Tap, tap

Activation = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")  # GPT-2's approximation


def relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "relu_squared": relu_squared,
}

DISPLAY_NAMES: dict[Activation, str] = {
    F.relu: "ReLU",
    F.gelu: "GELU",
    gelu_tanh: "GELU_tanh",
    F.silu: "SiLU",
    relu_squared: "ReLU²",
}


def activation_name(activation: Activation) -> str:
    """The name of an activation in formulas."""
    return DISPLAY_NAMES.get(activation, tr("activation"))


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
        self.activation = activation
        self.dropout = Dropout(dropout)

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
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = tap("hidden", self.activation(self.gate(x)) * self.up(x))  # b t f
        y: Tensor = self.dropout(self.down(hidden))  # b t d
        return y

    @property
    def taps(self) -> dict[str, Tap]:
        up = f"X W₁{bias_term(self.up, '₁')}"
        gate = f"X W_g{bias_term(self.gate, '_g')}"
        return {"hidden": Tap("b t f", f"{activation_name(self.activation)}({gate}) × ({up})")}
