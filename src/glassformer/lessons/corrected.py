"""The code blocks of two tutorials, corrected: plain PyTorch, equal to the layers in `nn/`.

Modules have the names of Glassformer's, so that each can load the other's weights.

Shapes: b batch, t tokens, k features, h heads, e features of a head, c classes.
"""

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def score(x: Tensor) -> Tensor:
    return x @ x.mT  # b t k -> b t t


def normalize(scores: Tensor) -> Tensor:
    return scores.softmax(dim=2)  # each row sums to 1


def mix(weights: Tensor, x: Tensor) -> Tensor:
    return weights @ x  # b t t, b t k -> b t k


class SelfAttention(nn.Module):
    def __init__(self, k: int, heads: int = 4, mask: bool = False) -> None:
        super().__init__()
        if k % heads:
            raise ValueError(f"{k} features cannot be divided among {heads} heads")
        self.heads, self.mask = heads, mask
        self.query, self.key, self.value = (nn.Linear(k, k, bias=False) for _ in range(3))
        self.out = nn.Linear(k, k)

    def project(self, x: Tensor) -> list[Tensor]:
        layers = (self.query, self.key, self.value)
        projected = [layer(x) for layer in layers]  # each b t k
        return [torch.unflatten(y, 2, (self.heads, -1)) for y in projected]  # b t h e

    def fold(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(0, 1)  # b t h e -> b*h t e

    def weigh(self, q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
        scores = q @ k.mT / math.sqrt(q.shape[2])  # b*h t t, divided by √e
        return scores.masked_fill(hidden, -math.inf).softmax(dim=2)

    def hide(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        b, t, _ = x.shape
        hidden = torch.zeros(b, t, t, dtype=torch.bool, device=x.device)
        if self.mask:  # later tokens
            hidden |= torch.ones_like(hidden).triu(1)
        if keep is not None:  # padding
            hidden |= ~keep[:, None]
        return hidden.repeat_interleave(self.heads, dim=0)  # b*h t t

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        q, k, v = (self.fold(y) for y in self.project(x))
        y = self.weigh(q, k, self.hide(x, keep)) @ v  # b*h t e
        y = torch.unflatten(y, 0, (-1, self.heads))  # b h t e
        joined: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return joined  # b t k


class TransformerBlock(nn.Module):
    def __init__(self, k: int, heads: int, mask: bool = False) -> None:
        super().__init__()
        self.attention = SelfAttention(k, heads, mask)
        self.attention_norm = nn.LayerNorm(k)
        up = nn.Linear(k, 4 * k)
        down = nn.Linear(4 * k, k)
        layers = OrderedDict(up=up, activation=nn.ReLU(), down=down)
        self.feedforward = nn.Sequential(layers)
        self.feedforward_norm = nn.LayerNorm(k)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        x = self.attention_norm(x + self.attention(x, keep))
        y: Tensor = self.feedforward_norm(x + self.feedforward(x))
        return y


class Classifier(nn.Module):
    def __init__(
        self, k: int, heads: int, depth: int, context: int, vocab: int, classes: int
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, k)
        self.position = nn.Embedding(context, k)
        blocks = (TransformerBlock(k, heads) for _ in range(depth))
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(k, classes)

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.token(ids) + self.position(positions)  # b t k
        for block in self.blocks:
            x = block(x, keep)
        real = keep[:, :, None]  # b t 1: false at padding
        mean = (x * real).sum(dim=1) / real.sum(dim=1)  # b k
        return F.log_softmax(self.head(mean), dim=1)  # b c


def compare_scaling(products: Tensor, head_dim: int) -> Tensor:
    scaled = products / math.sqrt(head_dim)
    return torch.stack((products.softmax(dim=0), scaled.softmax(dim=0)))
