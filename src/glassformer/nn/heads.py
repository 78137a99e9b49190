"""What stands behind the last block: from features of tokens to an answer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.feedforward import Activation
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Tap, tap

POOLED = {"pooled": Tap("b d", "mean over the tokens")}  # the tap of whoever calls `mean_pool`


def mean_pool(x: Tensor, keep: Tensor | None = None) -> Tensor:
    """The mean over a text's real tokens: b t d -> b d."""
    if keep is None:
        return tap("pooled", x.mean(dim=1))
    kept = keep[..., None].to(x.dtype)
    return tap("pooled", (x * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1))


class Pooler(nn.Module):
    """The features of the first real token, as BERT reads a whole text: b t d -> b d."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return torch.tanh(self.dense(x[:, 0]))
        rows = torch.arange(len(x), device=x.device)
        return torch.tanh(self.dense(x[rows, keep.int().argmax(dim=1)]))


class MaskedHead(nn.Module):
    """BERT's guess at hidden tokens, compared with the embedding: b t d -> b t v."""

    def __init__(self, dim: int, vocab: int, *, activation: Activation, eps: float) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(dim, dim), LayerNorm(dim, eps=eps)
        self.activation, self.offset = activation, nn.Parameter(torch.zeros(vocab))

    def forward(self, x: Tensor, token: Tensor) -> Tensor:
        return F.linear(self.norm(self.activation(self.dense(x))), token, self.offset)
