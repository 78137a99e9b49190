"""How strongly each input of a layer influences one output, by gradients through our layers.

Shapes: t tokens, d features.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.nn.attention import Attention
from glassformer.nn.convolution import convolutions
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal, full, window
from glassformer.nn.recurrence import Recurrence

DIM = 16
LENGTH, MAX_DEPTH = 64, 6  # of the plot of receptive fields
Layer = Callable[[Tensor], Tensor]


def layout(x: Tensor) -> SequenceLayout:
    return SequenceLayout(x.shape[1], x.shape[1])


def seeded(make: Callable[[], nn.Module]) -> Any:
    """A module with random weights that are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double().eval()


def recurrence() -> Layer:
    layer = seeded(lambda: Recurrence(DIM))
    return lambda x: layer(x, layout(x))


def both_directions() -> Layer:
    forward = seeded(lambda: Recurrence(DIM))
    backward = seeded(lambda: Recurrence(DIM, reverse=True))

    def add(x: Tensor) -> Tensor:
        y: Tensor = forward(x, layout(x)) + backward(x, layout(x))
        return y

    return add


def convolution(number: int) -> Layer:
    """A layer of 3 tokens; the dilation is 1 for number 1, and twice as large for each further."""
    layers = seeded(lambda: convolutions(DIM, number, 3, causal=False, dropout=0.0))
    return lambda x: layers[-1](x, layout(x))


def attention(mask: Mask) -> Layer:
    layer = seeded(lambda: Attention(DIM, 1, mask=mask))
    return lambda x: x + layer(x, layout(x))


def measure_influence(layers: Sequence[Layer], length: int, token: int) -> Tensor:
    """The norm of the gradient of one output with respect to each input: t."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(1, length, DIM, generator=random, dtype=torch.float64, requires_grad=True)
    y = x
    for layer in layers:
        y = layer(y)
    influence: Tensor = gradient_of(y[0, token], x)[0].norm(dim=-1)
    return influence


def gradient_of(output: Tensor, x: Tensor) -> Tensor:
    """The gradient of the squared norm of an output with respect to x."""
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    return gradient


def receptive_field() -> Any:
    """How many inputs the middle output sees, by the number of layers."""
    kinds: dict[str, Callable[[int], Layer]] = {
        tr("convolution of 3 tokens"): lambda _: convolution(1),
        tr("dilated convolution: 1, 2, 4, …"): convolution,
        tr("attention in a window of 4"): lambda _: attention(window(4)),
        tr("causal attention"): lambda _: attention(causal),
        tr("recurrence"): lambda _: recurrence(),
        tr("attention"): lambda _: attention(full),
    }
    chart, ax = subplots(figsize=(10, 4.2))
    depths = range(1, MAX_DEPTH + 1)
    for number, (name, make) in enumerate(kinds.items()):
        stack = [make(depth) for depth in depths]
        counts = [
            int((measure_influence(stack[:depth], LENGTH, LENGTH // 2) > 0).sum())
            for depth in depths
        ]
        style = "o-" if number % 2 else "o--"  # so that both of two equal lines are visible
        ax.plot(list(depths), counts, style, markersize=4, label=f"{name}: {counts[-1]}")
    ax.set(xlabel=tr("layers"), ylabel=tr("inputs that it sees"))
    ax.set_title(
        tr("the middle one of {n} outputs: the inputs that it sees", n=LENGTH), fontsize=10
    )
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    return chart
