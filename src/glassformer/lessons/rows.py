"""Tables with one row."""

from typing import Any

import torch
from torch import Tensor


def row(*values: Any) -> Tensor:
    return torch.tensor([[float(value) for value in values]], dtype=torch.float64)
