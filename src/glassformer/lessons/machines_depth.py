"""Residual connections: the chain rule with and without the 1, by hand and in a network.

Shapes: n layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from glassformer.lessons.lesson import Values
from glassformer.nn.block import post_norm, pre_norm
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.norms import LayerNorm

SLOPES = {"f": 0.5, "g": 0.1, "k": 0.2}
DEPTH = 24
DEPTHS = (1, 2, 3, 6, 12, DEPTH)
CHAINS = [[0.5] * DEPTH, [0.1] * DEPTH, [0.5, -0.5] * (DEPTH // 2)]
DIM = 16
MEASURED = (24, 18, 12, 6, 1)

Connection = Callable[[str, Tensor, nn.Module, nn.Module], Tensor]


def compute_values() -> Values:
    names = list(SLOPES)
    return {
        "functions": names,
        "slopes": torch.tensor([list(SLOPES.values())], dtype=torch.float64),
        "slope_product": slope_of_chain(list(SLOPES.values()), without_residual)[None, None],
        "slope_product_with_residual": slope_of_chain(list(SLOPES.values()), pre_norm)[None, None],
        "depth": DEPTH,
        "depths": [str(depth) for depth in DEPTHS],
        "chain_without": compute_chains(without_residual),
        "chain_with": compute_chains(pre_norm),
        "measured_depths": [str(depth) for depth in MEASURED],
        "gradients": torch.stack(
            [measure_gradients(c) for c in (without_residual, post_norm, pre_norm)]
        ),
        **compute_norm(),
    }


def without_residual(name: str, x: Tensor, norm: nn.Module, layer: nn.Module) -> Tensor:
    """The layer alone, in place of `pre_norm` or `post_norm`."""
    y: Tensor = layer(x)
    return y


class Multiply(nn.Module):
    """x times a constant: a layer with this slope."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return x * self.slope


def slope_of_chain(slopes: list[float], connection: Connection) -> Tensor:
    """The derivative of a chain of layers with these slopes, computed by backpropagation."""
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    y: Tensor = x
    for slope in slopes:
        y = connection("layer", y, nn.Identity(), Multiply(slope))
    (gradient,) = torch.autograd.grad(y, x)
    return gradient


def compute_chains(connection: Connection) -> Tensor:
    rows = [[slope_of_chain(s[:depth], connection) for depth in DEPTHS] for s in CHAINS]
    return torch.stack([torch.stack(row) for row in rows])


def measure_gradients(connection: Connection) -> Tensor:
    """The length of the gradient at the input of some of 24 feed-forward layers (n)."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(1, 8, DIM, generator=random, dtype=torch.float64)
    target = torch.randn(x.shape, generator=random, dtype=torch.float64)
    y, inputs = x.requires_grad_(), []
    for _ in range(DEPTH):
        layer = FeedForward(DIM, 4 * DIM, activation=torch.relu, bias=False).double()
        for linear in (layer.up, layer.down):
            sample = torch.randn(linear.weight.shape, generator=random, dtype=torch.float64)
            linear.weight.data.copy_(sample * linear.in_features**-0.5)
        inputs.append(y)
        y = connection("layer", y, LayerNorm(DIM).double(), layer)
    loss = (y - target).square().mean()
    gradients = torch.autograd.grad(loss, inputs)
    return torch.stack([gradients[depth - 1].norm() for depth in MEASURED])


@torch.no_grad()
def compute_norm() -> Values:
    """A row with one large number, normalized: mean 0 and deviation 1, but only two values."""
    x = torch.tensor([[0.0, 0, 0, 8]], dtype=torch.float64)
    y = LayerNorm(4).double()(x)
    return {
        "row": x,
        "normalized_row": y,
        "row_statistics": torch.stack((y.mean(), y.std(correction=0)))[None],
    }
