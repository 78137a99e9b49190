"""Dropout, with a CPU implementation that draws four random numbers at a time."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16  # values of a 16-bit random number: p is rounded to a multiple of 1 / LEVELS


def drop(x: Tensor, p: float) -> Tensor:
    """x with each element set to 0 with probability p and the others divided by 1 - p.

    On the CPU torch draws one number per element; here one 64-bit draw decides four elements.
    """
    if not p:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    draws = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None)
    random = draws.view(torch.int16)[: x.numel()].view(x.shape)
    scale = torch.ge(random, round(p * LEVELS) - LEVELS // 2, out=torch.empty_like(x))
    return x * scale.mul_(1 / (1 - p))


class Dropout(nn.Module):
    """`drop` in training mode, the identity in eval mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training else x
