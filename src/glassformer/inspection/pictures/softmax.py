"""The softmax: scale, temperature and derivatives."""

from typing import Any

import torch

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.pictures.canvas import format_number

SCORES = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0])
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 10.0)


def softmax() -> Any:
    """Why scores are divided by √d_k; what a temperature does; and the derivatives."""
    chart, ((left, right), (third, fourth)) = subplots(2, 2, figsize=(10, 7.6))
    draw_scaling(left, right)
    draw_temperatures(third)
    draw_derivatives(chart, fourth)
    for ax in (left, right, third):
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return chart


def draw_scaling(left: Any, right: Any) -> None:
    """The largest attention weight, and the gradient of the softmax, by head size."""
    random = torch.Generator().manual_seed(0)
    dims = [2**n for n in range(1, 11)]
    for name, power in ((tr("unscaled"), 0.0), (tr("divided by √d_k"), 0.5)):
        largest, slopes = [], []
        for dim in dims:
            q, k = torch.randn(2, 500, 8, dim, generator=random)
            weights = ((q * k).sum(-1) / dim**power).softmax(dim=-1)
            largest.append(float(weights.max(dim=-1).values.mean()))
            slopes.append(float((weights * (1 - weights)).mean()))
        left.plot(dims, largest, "o-", label=name)
        right.plot(dims, slopes, "o-", label=name)
    xlabel = tr("head size d_k")
    left.set(xscale="log", xlabel=xlabel, ylim=(0, 1.02))
    left.set_title(tr("largest of 8 attention weights"))
    right.set(xscale="log", xlabel=xlabel, title=tr("derivative of the softmax, p (1 − p)"))


def draw_temperatures(ax: Any) -> None:
    """The probabilities of the same scores at several temperatures."""
    names = [f"{score:g}" for score in SCORES.tolist()]
    width = 0.8 / len(TEMPERATURES)
    for i, temperature in enumerate(TEMPERATURES):
        probs = (SCORES / temperature).softmax(dim=0)
        places = torch.arange(len(SCORES)) + (i - (len(TEMPERATURES) - 1) / 2) * width
        ax.bar(places.numpy(), probs.numpy(), width, label=f"T = {temperature:g}", color=f"C{i}")
    ax.set_xticks(range(len(names)), names)
    ax.set(xlabel=tr("score"), title=tr("softmax(scores / T): each T sums to 1"), ylim=(0, 1.02))


def draw_derivatives(chart: Any, ax: Any) -> None:
    """The Jacobian of the softmax, by automatic differentiation."""
    jacobian = torch.func.jacrev(lambda x: x.softmax(dim=0))(SCORES)
    image = ax.imshow(jacobian.numpy(), cmap="RdBu", vmin=-0.3, vmax=0.3)
    names = [f"{score:g}" for score in SCORES.tolist()]
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(names)), names)
    for i, row in enumerate(jacobian.tolist()):
        for j, value in enumerate(row):
            color = "white" if abs(value) > 0.2 else "black"
            text = format_number(value, 2)
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=color)
    ax.set(xlabel=tr("score"), ylabel=tr("probability of the score"))
    ax.set_title(tr("∂p_i / ∂x_j = p_i (δ_ij − p_j)"))
    chart.colorbar(image, ax=ax)
