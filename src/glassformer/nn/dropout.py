"""Dropout: while a model learns, some of what its layers say is 0, by chance."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDES = 2**16  # of the die: chances are rounded to that


def drop(x: Tensor, chance: float) -> Tensor:
    """x with a share of its numbers 0 and the others larger, so that the sum stays about the same.

    On a processor torch draws one number at a time; here one draw decides on four.
    """
    if not chance:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, chance)
    draws = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None)
    thrown = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(thrown, round(chance * SIDES) - SIDES // 2, out=torch.empty_like(x))
    return x * kept.mul_(1 / (1 - chance))


class Dropout(nn.Module):
    """`drop` while the model learns, and nothing afterwards."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.chance = chance

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.chance) if self.training else x
