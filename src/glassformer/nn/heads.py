"""Pooling and output heads, which follow the last block.

Shapes: b batch, t tokens, d features, v vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.feedforward import Activation
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Tap, tap

POOLED = {"pooled": Tap("b d", "mean over the tokens")}  # for modules that call `mean_pool`


def mean_pool(x: Tensor, keep: Tensor | None = None) -> Tensor:
    """The mean over the real tokens of each sequence: b t d -> b d."""
    if keep is None:
        return tap("pooled", x.mean(dim=1))
    weights = keep[..., None].to(x.dtype)
    return tap("pooled", (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1))


class Pooler(nn.Module):
    """BERT's pooler: tanh of a dense layer on the first real token, b t d -> b d."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return torch.tanh(self.dense(x[:, 0]))
        rows = torch.arange(x.shape[0], device=x.device)
        return torch.tanh(self.dense(x[rows, keep.int().argmax(dim=1)]))


class MaskedHead(nn.Module):
    """BERT's masked-LM head, tied to the token embedding: b t d -> b t v."""

    def __init__(self, dim: int, vocab: int, *, activation: Activation, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.norm = LayerNorm(dim, eps=eps)
        self.activation = activation
        self.offset = nn.Parameter(torch.zeros(vocab))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        return F.linear(self.norm(self.activation(self.dense(x))), embedding, self.offset)
