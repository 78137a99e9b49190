"""Networks with and without skip connections, trained for the picture."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr

STEPS = 300  # training steps
OFFSETS = [i / 20 - 1 for i in range(41)]  # from the trained weights, in units of their norm
MIN_LOG_LOSS = -2  # log₁₀; lower losses are drawn at this value


class DeepNetwork(nn.Module):
    """Many small layers, with or without skip connections."""

    def __init__(self, depth: int, dim: int, *, skip: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.last, self.skip = nn.Linear(dim, 1), skip
        random = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            nn.init.uniform_(weights, -(dim**-0.5), dim**-0.5, generator=random)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + (x if self.skip else 0)
        y: Tensor = self.last(x)
        return y


def skips(depth: int = 24, dim: int = 16) -> Any:
    """Initial gradients by layer, and the loss around the trained weights, with and without skip
    connections."""
    chart, axes = subplots(1, 3, figsize=(13, 3.8))
    landscapes = []
    for skip, name in ((False, tr("without skips")), (True, tr("with skips"))):
        norms, loss, grid = measure(depth, dim, skip=skip)
        axes[0].semilogy(range(depth), norms, "o-", markersize=3, label=name)
        landscapes.append((name, loss, grid))
    losses = torch.stack([grid for _, _, grid in landscapes])
    levels = torch.linspace(float(losses.min()), float(losses.max()), 21).tolist()
    for ax, (name, loss, grid) in zip(axes[1:], landscapes, strict=True):
        image = ax.contourf(OFFSETS, OFFSETS, grid, levels=levels, cmap="viridis")
        ax.plot(0, 0, "w+")
        title = tr(
            "{name}, loss after {steps} steps: {loss}", name=name, steps=STEPS, loss=f"{loss:.2g}"
        )
        ax.set(title=title, xticks=[], yticks=[])
    chart.colorbar(image, ax=axes[2], label=tr("log₁₀ of the loss around the trained weights (+)"))
    axes[0].set(xlabel=tr("layer"), title=tr("gradient norm of each layer before training"))
    axes[0].grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return chart


@cache
def measure(depth: int, dim: int, *, skip: bool) -> tuple[list[float], float, Tensor]:
    """The norm of each layer's gradient before training, the loss after it, and the losses around
    the trained weights."""
    x = torch.randn(64, dim, generator=torch.Generator().manual_seed(1))
    y = x[:, :1].sin()
    network = DeepNetwork(depth, dim, skip=skip)
    (network(x) - y).square().mean().backward()
    norms = [float(layer.weight.grad.norm()) for layer in network.layers]  # type: ignore[operator, union-attr]
    return norms, train(network, x, y), loss_landscape(network, x, y)


def train(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Train the network and return its last loss."""
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = (network(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def loss_landscape(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The log₁₀ loss along two random directions, scaled to the norm of the weights."""
    weights = list(network.parameters())
    random = torch.Generator().manual_seed(2)
    start = [w.clone() for w in weights]
    samples = [[torch.randn(w.shape, generator=random) for w in weights] for _ in range(2)]
    directions = [
        [d * w.norm() / d.norm() for d, w in zip(sample, start, strict=True)] for sample in samples
    ]
    loss = torch.empty(len(OFFSETS), len(OFFSETS))
    for i, a in enumerate(OFFSETS):
        for j, b in enumerate(OFFSETS):
            for w, s, u, v in zip(weights, start, *directions, strict=True):
                w.copy_(s + a * u + b * v)
            loss[i, j] = (network(x) - y).square().mean()
    return loss.log10().clamp(min=MIN_LOG_LOSS)
