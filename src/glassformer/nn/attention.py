"""Attention: `attend` is the mathematics, `Attention` the layer around it."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import say
from glassformer.nn.cache import Past
from glassformer.nn.dropout import drop
from glassformer.nn.masks import Mask, causal, everything
from glassformer.nn.positions import Position
from glassformer.nn.span import Span
from glassformer.trace import Tap, tap, watched

Score = Callable[[Tensor, Tensor], Tensor]  # q, b h t e, and k, b h s e, to b h t s


def dot(q: Tensor, k: Tensor) -> Tensor:
    """How alike each query and each key are; it grows with the number of features."""
    return q @ k.mT


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """The same, held to the size of one feature: divided by the root of the head's width."""
    return dot(q, k) / math.sqrt(q.shape[3])


class Additive(nn.Module):
    """Bahdanau's score: a small network looks at query and key together."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.vote = nn.Parameter(torch.randn(heads, width, 1) * width**-0.5)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        together = torch.tanh(q[:, :, :, None] + k[:, :, None])  # b h t s e
        return (together @ self.vote[:, None]).squeeze(-1)  # b h t s


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = everything,
    span: Span | None = None,
    *,
    score: Score = scaled_dot,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(score(q, k) + bias) v, over the keys that the mask and the span's `keep` allow.

    q is b h t e, k and v are b g s e: each of the g key heads serves h / g queries. A query that
    may see no key reads zero. A fused kernel does this, unless a trace asks for the scores or the
    pattern, which the kernel never makes; nor has a processor one that drops some of the pattern.
    """
    span = span or Span(q.shape[2], k.shape[2], device=q.device)
    fused = score is scaled_dot and not (dropout and q.device.type == "cpu")
    if not fused or watched("scores", "pattern"):
        return attend_openly(q, k, v, mask, span, score=score, bias=bias, dropout=dropout)

    grouped, attn_mask = k.shape[1] != q.shape[1], bias
    whole = mask == causal and span.queries == span.keys and span.keep is bias is None
    if not whole and not span.open(mask):
        allowed = span.grid(mask)
        attn_mask = allowed if bias is None else bias.masked_fill(~allowed, -float("inf"))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask, dropout_p=dropout, is_causal=whole, enable_gqa=grouped
    )


def attend_openly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    span: Span,
    *,
    score: Score = scaled_dot,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The definition of `attend`, each value by its name."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    allowed = span.grid(mask)
    some = allowed.any(dim=-1, keepdim=True)  # a softmax over nothing would be NaN

    scores = score(q, k) if bias is None else score(q, k) + bias
    scores = tap("scores", scores.masked_fill(~allowed & some, -float("inf")))  # b h t s
    pattern = tap("pattern", scores.softmax(dim=-1) * some)
    return drop(pattern, dropout) @ v  # b h t e


class Attention(nn.Module):
    """Multi-head attention. Wiring is fixed here; `forward` takes only data."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_heads: int | None = None,
        width: int | None = None,
        mask: Mask = everything,
        position: Position | None = None,
        score: Score = scaled_dot,
        dropout: float = 0.0,
        bias: bool = True,
        out_bias: bool = True,
    ) -> None:
        super().__init__()
        key_heads, width = key_heads or heads, width or dim // heads
        self.width, self.mask, self.score, self.dropout = width, mask, score, dropout
        self.position = position or Position()
        self.query = nn.Linear(dim, heads * width, bias=bias)
        self.key = nn.Linear(dim, key_heads * width, bias=bias)
        self.value = nn.Linear(dim, key_heads * width, bias=bias)
        self.out = nn.Linear(heads * width, dim, bias=out_bias)

    def forward(
        self,
        x: Tensor,
        span: Span,
        *,
        source: Tensor | None = None,
        past: Past | None = None,
    ) -> Tensor:
        """Let x, b t d, read from itself or, in cross-attention, from `source`, b s d.

        The span is that of what is read. A past that holds the whole source is read as it is.
        """
        q = tap("q", self.split(self.query(x)))  # b h t e
        bias = self.position.bias(q, span)
        if past is not None and past.complete:
            k, v = past.so_far()
            q, _ = self.position.rotate(q, k, span)
        else:
            read = x if source is None else source
            k = tap("k", self.split(self.key(read)))  # b g s e
            v = tap("v", self.split(self.value(read)))
            q, k = self.position.rotate(q, k, span)
            k, v = (k, v) if past is None else past.extend(k, v)

        dropout = self.dropout if self.training else 0.0
        y = attend(q, k, v, self.mask, span, score=self.score, bias=bias, dropout=dropout)
        y = self.out(tap("heads", y).transpose(1, 2).flatten(2))  # b t d
        return drop(y, dropout)

    def split(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (-1, self.width)).transpose(1, 2)

    @property
    def taps(self) -> dict[str, Tap]:
        products: dict[object, str] = {scaled_dot: f"Q Kᵀ / √{self.width}", dot: "Q Kᵀ"}
        product = self.position.formula(products.get(self.score, "vᵀ tanh(q + k)"))
        return {
            "q": Tap("b h t e", f"Q = X W_q{bias_term(self.query)}"),
            "k": Tap("b g s e", f"K = X W_k{bias_term(self.key)}"),
            "v": Tap("b g s e", f"V = X W_v{bias_term(self.value)}"),
            "scores": Tap("b h t s", say("{product}, −∞ where hidden", product=product)),
            "pattern": Tap("b h t s", say("softmax(scores)")),
            "heads": Tap("b h t e", say("pattern V")),
        }


def bias_term(layer: nn.Linear, mark: str = "") -> str:
    """The end of a layer's formula: its bias, if it has one."""
    return "" if layer.bias is None else f" + b{mark}"


class PlainAttention(nn.Module):
    """Attention without parameters: each token becomes a mixture of those that are like it."""

    def __init__(self, *, mask: Mask = everything) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor, span: Span, *, past: Past | None = None) -> Tensor:
        x = x[:, None]  # b 1 t d: one head
        k, v = (x, x) if past is None else past.extend(x, x)
        return attend(x, k, v, self.mask, span, score=dot)[:, 0]

    @property
    def taps(self) -> dict[str, Tap]:
        scores = say("{product}, −∞ where hidden", product="X Xᵀ")
        return {"scores": Tap("b h t s", scores), "pattern": Tap("b h t s", say("softmax(scores)"))}
