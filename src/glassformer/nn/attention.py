"""Attention: `attend` is the mathematics, `Attention` the layer around it."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.cache import LayerCache
from glassformer.nn.dropout import drop
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal, full
from glassformer.nn.positions import Position
from glassformer.trace import Tap, tap, watched

Score = Callable[[Tensor, Tensor], Tensor]  # q, b h t e, and k, b h s e, to b h t s


def dot(q: Tensor, k: Tensor) -> Tensor:
    """How alike each query and each key are; it grows with the number of features."""
    return q @ k.mT


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """The same, held to the size of one feature: divided by the root of the head's width."""
    return dot(q, k) / math.sqrt(q.shape[3])


class AdditiveScore(nn.Module):
    """Bahdanau's score: a small network looks at query and key together."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.randn(heads, head_dim, 1) * head_dim**-0.5)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        together = torch.tanh(q[:, :, :, None] + k[:, :, None])  # b h t s e
        return (together @ self.v[:, None]).squeeze(-1)  # b h t s


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = full,
    layout: SequenceLayout | None = None,
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
    layout = layout or SequenceLayout(q.shape[2], k.shape[2], device=q.device)
    fused = score is scaled_dot and not (dropout and q.device.type == "cpu")
    if not fused or watched("scores", "pattern"):
        return attend_reference(q, k, v, mask, layout, score=score, bias=bias, dropout=dropout)

    grouped, attn_mask = k.shape[1] != q.shape[1], bias
    whole = mask == causal and layout.queries == layout.keys and layout.keep is bias is None
    if not whole and not layout.is_unmasked(mask):
        allowed = layout.mask_matrix(mask)
        attn_mask = allowed if bias is None else bias.masked_fill(~allowed, -float("inf"))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask, dropout_p=dropout, is_causal=whole, enable_gqa=grouped
    )


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    layout: SequenceLayout,
    *,
    score: Score = scaled_dot,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The definition of `attend`, each value by its name."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    allowed = layout.mask_matrix(mask)
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
        kv_heads: int | None = None,
        head_dim: int | None = None,
        mask: Mask = full,
        position: Position | None = None,
        score: Score = scaled_dot,
        dropout: float = 0.0,
        bias: bool = True,
        out_bias: bool = True,
    ) -> None:
        super().__init__()
        kv_heads, head_dim = kv_heads or heads, head_dim or dim // heads
        self.head_dim, self.mask, self.score, self.dropout = head_dim, mask, score, dropout
        self.position = position or Position()
        self.query = nn.Linear(dim, heads * head_dim, bias=bias)
        self.key = nn.Linear(dim, kv_heads * head_dim, bias=bias)
        self.value = nn.Linear(dim, kv_heads * head_dim, bias=bias)
        self.out = nn.Linear(heads * head_dim, dim, bias=out_bias)

    def forward(
        self,
        x: Tensor,
        layout: SequenceLayout,
        *,
        source: Tensor | None = None,
        layer_cache: LayerCache | None = None,
    ) -> Tensor:
        """Let x, b t d, read from itself or, in cross-attention, from `source`, b s d.

        The span is that of what is read. A past that holds the whole source is read as it is.
        """
        q = tap("q", self.split(self.query(x)))  # b h t e
        bias = self.position.bias(q, layout)
        if layer_cache is not None and layer_cache.is_complete:
            k, v = layer_cache.contents()
            q, _ = self.position.rotate(q, k, layout)
        else:
            read = x if source is None else source
            k = tap("k", self.split(self.key(read)))  # b g s e
            v = tap("v", self.split(self.value(read)))
            q, k = self.position.rotate(q, k, layout)
            k, v = (k, v) if layer_cache is None else layer_cache.extend(k, v)

        dropout = self.dropout if self.training else 0.0
        y = attend(q, k, v, self.mask, layout, score=self.score, bias=bias, dropout=dropout)
        y = self.out(tap("head_outputs", y).transpose(1, 2).flatten(2))  # b t d
        return drop(y, dropout)

    def split(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (-1, self.head_dim)).transpose(1, 2)

    @property
    def taps(self) -> dict[str, Tap]:
        products: dict[object, str] = {scaled_dot: f"Q Kᵀ / √{self.head_dim}", dot: "Q Kᵀ"}
        product = self.position.formula(products.get(self.score, "vᵀ tanh(q + k)"))
        return {
            "q": Tap("b h t e", f"Q = X W_q{bias_term(self.query)}"),
            "k": Tap("b g s e", f"K = X W_k{bias_term(self.key)}"),
            "v": Tap("b g s e", f"V = X W_v{bias_term(self.value)}"),
            "scores": Tap("b h t s", tr("{product}, −∞ where hidden", product=product)),
            "pattern": Tap("b h t s", tr("softmax(scores)")),
            "head_outputs": Tap("b h t e", tr("pattern V")),
        }


def bias_term(layer: nn.Linear, mark: str = "") -> str:
    """The end of a layer's formula: its bias, if it has one."""
    return "" if layer.bias is None else f" + b{mark}"


class PlainAttention(nn.Module):
    """Attention without parameters: each token becomes a mixture of those that are like it."""

    def __init__(self, *, mask: Mask = full) -> None:
        super().__init__()
        self.mask = mask

    def forward(
        self, x: Tensor, layout: SequenceLayout, *, layer_cache: LayerCache | None = None
    ) -> Tensor:
        x = x[:, None]  # b 1 t d: one head
        k, v = (x, x) if layer_cache is None else layer_cache.extend(x, x)
        return attend(x, k, v, self.mask, layout, score=dot)[:, 0]

    @property
    def taps(self) -> dict[str, Tap]:
        scores = tr("{product}, −∞ where hidden", product="X Xᵀ")
        return {"scores": Tap("b h t s", scores), "pattern": Tap("b h t s", tr("softmax(scores)"))}
