"""Recurrence in depth: one block, applied several times, with adaptive computation time (ACT).

Shapes: b batch, t tokens, d features.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Sinusoidal, sinusoid
from glassformer.trace import Tap, tap

Apply = Callable[[Tensor, int], Tensor]  # the block on its input (b t d) in one of the steps


class DepthLoop(nn.Module):
    """Applies a block up to `depth` times; signals tell it the position and the step.

    If it is adaptive, each token has its own number of steps (Graves, 2016; Dehghani et al., 2018).
    Before each step n, a gate gives the probability p_n that it is the last. A token stops as soon
    as the probabilities of its steps add up to more than `threshold`, or at the last step; its
    remainder R is what is missing to 1 before that step. Its output is the mean of its states after
    each step, weighted by p_n and, for the last, R; its state stays as it is. `ponder` is the mean
    over tokens of the number of steps plus R, which a loss can keep small.
    """

    taps: ClassVar[dict[str, Tap]] = {
        "halting": Tap("b t", "p = sigmoid(h · w + b)"),
        "weight": Tap("b t", "p, R in the last step, 0 after it"),
        "n_steps": Tap("b t", "number of steps"),
    }

    def __init__(
        self, block: nn.Module, dim: int, depth: int, *, adaptive: bool, threshold: float
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block])
        self.position = Sinusoidal(dim)
        self.depth = depth
        self.threshold = threshold
        self.gate = nn.Linear(dim, 1) if adaptive else None
        self.ponder: Tensor | None = None  # of the last pass in training

    def forward(self, x: Tensor, layout: SequenceLayout, apply: Apply) -> Tensor:
        """b t d -> b t d."""
        if self.gate is None:
            for step in range(self.depth):
                x = apply(x + self.signal(layout, step, x), step)
            return x
        dtype = torch.promote_types(x.dtype, torch.float32)  # sums in half precision are too coarse
        total = x.new_zeros(x.shape[:2], dtype=dtype)  # of the probabilities so far: b t
        is_running = torch.ones_like(total, dtype=torch.bool)
        n_steps = total
        remainder = total
        output = torch.zeros_like(x)
        for step in range(self.depth):
            h = x + self.signal(layout, step, x)
            prob = tap("halting", self.gate(h)[..., 0].to(dtype).sigmoid())
            stops = is_running & ((total + prob > self.threshold) | (step == self.depth - 1))
            weight = tap("weight", torch.where(stops, 1 - total, prob) * is_running)
            remainder = remainder + weight * stops
            n_steps = n_steps + is_running
            total = total + weight

            y = apply(h, step)
            output = output + weight[..., None].to(y.dtype) * y
            x = torch.where(is_running[..., None], y, x)
            is_running = is_running & ~stops
        tap("n_steps", n_steps)
        if self.training:
            self.ponder = mean_of_tokens(n_steps + remainder, layout)
        return output

    def signal(self, layout: SequenceLayout, step: int, x: Tensor) -> Tensor:
        """Sinusoids of the positions plus those of the step: t d, or b t d with padding."""
        dim, key = self.position.dim, ("universal", x.dtype)
        position: Tensor = layout.compute_once(key, lambda: self.position(layout))
        return (position + sinusoid(torch.tensor([step], device=x.device), dim)).to(x.dtype)

    def take_ponder(self) -> Tensor | None:
        """The ponder cost of the last pass in training, once."""
        ponder, self.ponder = self.ponder, None
        return ponder


def mean_of_tokens(value: Tensor, layout: SequenceLayout) -> Tensor:
    """The mean of a value (b t) over the real tokens of a pass."""
    if layout.keep is None:
        return value.mean()
    keep = layout.keep[:, -layout.queries :]
    return (value * keep).sum() / keep.sum().clamp(min=1)
