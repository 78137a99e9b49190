"""Attention: `attend` is the function, `Attention` the layer with its projections.

The scores are the values before the softmax; the pattern is the softmax's output, the attention
weights. `layout` holds the positions and the padding of the tokens (nn/layout.py). `tap` names a
value, so that a trace can record or edit it, and returns it, unchanged unless edited; `watched` is
true if an open trace records or edits that name (trace.py).

Shapes: b batch, t queries, s keys, d features, h heads, g key/value heads, e features of a head.
"""

import math
from collections.abc import Callable
from typing import Any

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

Score = Callable[[Tensor, Tensor], Tensor]  # q: b h t e, k: b h s e -> b h t s


def dot(q: Tensor, k: Tensor) -> Tensor:
    """Dot product of each query with each key; its variance grows with the head dimension."""
    return q @ k.mT


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """Dot product divided by √e, so that its variance does not grow with the head dimension."""
    return dot(q, k) / math.sqrt(q.shape[3])


class AdditiveScore(nn.Module):
    """Bahdanau's additive score: vᵀ tanh(q + k), with a learned vector v for each head."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.randn(heads, head_dim, 1) * head_dim**-0.5)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        hidden = torch.tanh(q[:, :, :, None] + k[:, :, None])  # b h t s e
        return (hidden @ self.v[:, None]).squeeze(-1)  # b h t s


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
    """softmax(score(q, k) + bias) v, over the keys that the mask and `layout.keep` allow.

    q is b h t e, k and v are b g s e: each key/value head serves h / g query heads. The output
    (b h t e) is 0 for a query with no allowed keys. A fused kernel is used, except when a trace
    watches the scores or the pattern, which the kernel does not materialize, and for dropout on
    the CPU, which has no fused kernel for it. For whole sequences without padding, that is the
    mask's own kernel, if it has one.
    """
    layout = layout or SequenceLayout(q.shape[2], k.shape[2], device=q.device)
    has_fused_kernel = score is scaled_dot and not (dropout and q.device.type == "cpu")
    if not has_fused_kernel or watched("scores", "pattern"):
        return attend_reference(q, k, v, mask, layout, score=score, bias=bias, dropout=dropout)

    is_square = layout.queries == layout.keys
    is_plain = is_square and layout.keep is None and bias is None
    if mask.kernel is not None and is_plain and not dropout and q.shape == k.shape:
        return mask.kernel(q, k, v)
    is_grouped = k.shape[1] != q.shape[1]
    is_causal = mask == causal and is_plain
    attn_mask = bias
    if not is_causal and not layout.is_unmasked(mask):
        allowed = layout.mask_matrix(mask)
        attn_mask = allowed if bias is None else bias.masked_fill(~allowed, -float("inf"))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=is_grouped
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
    """`attend` step by step, with taps for the scores and the pattern."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    allowed = layout.mask_matrix(mask)
    has_key = allowed.any(dim=-1, keepdim=True)  # softmax over no keys would be NaN

    scores = score(q, k) if bias is None else score(q, k) + bias
    scores = tap("scores", scores.masked_fill(~allowed & has_key, -float("inf")))  # b h t s
    pattern = tap("pattern", scores.softmax(dim=-1) * has_key)
    return drop(pattern, dropout) @ v  # b h t e


class Attention(nn.Module):
    """Multi-head attention. Its options are fixed at construction; `forward` takes only data.

    `dropout` applies to the output and, unless `pattern_dropout` is given, to the pattern.
    """

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
        norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
        pattern_dropout: float | None = None,
        bias: bool = True,
        out_bias: bool = True,
    ) -> None:
        super().__init__()
        kv_heads = kv_heads or heads
        head_dim = head_dim or dim // heads
        self.head_dim = head_dim
        self.mask = mask
        self.score = score
        self.dropout = dropout
        self.pattern_dropout = dropout if pattern_dropout is None else pattern_dropout
        self.position = position or Position()
        self.query = nn.Linear(dim, heads * head_dim, bias=bias)
        self.key = nn.Linear(dim, kv_heads * head_dim, bias=bias)
        self.value = nn.Linear(dim, kv_heads * head_dim, bias=bias)
        self.out = nn.Linear(heads * head_dim, dim, bias=out_bias)
        # norms over the features of each query and key, which bound the scores
        self.query_norm = norm(head_dim) if norm else None
        self.key_norm = norm(head_dim) if norm else None

    def forward(
        self,
        x: Tensor,
        layout: SequenceLayout,
        *,
        source: Tensor | None = None,
        layer_cache: LayerCache | None = None,
    ) -> Tensor:
        """Attend from x (b t d) to x itself or, in cross-attention, to `source` (b s d).

        Returns b t d. `layout` describes the keys. If `layer_cache` already holds the complete
        source, its keys and values are used, and `source` is not needed.
        """
        q = tap("q", self.split_heads(self.query(x)))  # b h t e
        q = q if self.query_norm is None else self.query_norm(q)
        bias = self.position.bias(q, layout)
        if layer_cache is not None and layer_cache.is_complete:
            k, v = layer_cache.contents()
            q, _ = self.position.rotate(q, k, layout)
        else:
            kv_input = x if source is None else source
            k = tap("k", self.split_heads(self.key(kv_input)))  # b g s e
            v = tap("v", self.split_heads(self.value(kv_input)))
            k = k if self.key_norm is None else self.key_norm(k)
            q, k = self.position.rotate(q, k, layout)
            k, v = (k, v) if layer_cache is None else layer_cache.extend(k, v)

        dropout = self.pattern_dropout if self.training else 0.0
        y = attend(q, k, v, self.mask, layout, score=self.score, bias=bias, dropout=dropout)
        y = self.out(tap("head_outputs", y).transpose(1, 2).flatten(2))  # b t d
        return drop(y, self.dropout) if self.training else y

    def split_heads(self, x: Tensor) -> Tensor:
        """b t h*e -> b h t e."""
        return torch.unflatten(x, -1, (-1, self.head_dim)).transpose(1, 2)

    @property
    def taps(self) -> dict[str, Tap]:
        products: dict[object, str] = {scaled_dot: f"Q Kᵀ / √{self.head_dim}", dot: "Q Kᵀ"}
        is_additive = isinstance(self.score, AdditiveScore)
        other = "vᵀ tanh(q + k)" if is_additive else "score(Q, K)"
        product = self.position.formula(products.get(self.score, other))
        if self.query_norm is not None:
            product = tr("{product} of normalized Q and K", product=product)
        return {
            "q": Tap("b h t e", f"Q = X W_q{bias_term(self.query)}"),
            "k": Tap("b g s e", f"K = X W_k{bias_term(self.key)}"),
            "v": Tap("b g s e", f"V = X W_v{bias_term(self.value)}"),
            "scores": Tap("b h t s", tr("{product}, −∞ where masked", product=product)),
            "pattern": Tap("b h t s", tr("softmax(scores)")),
            "head_outputs": Tap("b h t e", tr("pattern V")),
        }


class UnprojectedAttention(Attention):
    """Attention without W_o: its output is the concatenated outputs of the heads."""

    def __init__(self, dim: int, heads: int, **options: Any) -> None:
        super().__init__(dim, heads, **options)
        self.out = nn.Identity()  # type: ignore[assignment]


def bias_term(layer: nn.Linear, subscript: str = "") -> str:
    """The bias term in the formula of a layer; empty if the layer has no bias."""
    return "" if layer.bias is None else f" + b{subscript}"


class PlainAttention(nn.Module):
    """Attention without parameters: each token becomes a mixture of tokens similar to it."""

    def __init__(self, *, mask: Mask = full) -> None:
        super().__init__()
        self.mask = mask

    def forward(
        self, x: Tensor, layout: SequenceLayout, *, layer_cache: LayerCache | None = None
    ) -> Tensor:
        """b t d -> b t d."""
        x = x[:, None]  # b 1 t d: one head
        k, v = (x, x) if layer_cache is None else layer_cache.extend(x, x)
        return attend(x, k, v, self.mask, layout, score=dot)[:, 0]

    @property
    def taps(self) -> dict[str, Tap]:
        scores = tr("{product}, −∞ where masked", product="X Xᵀ")
        return {"scores": Tap("b h t s", scores), "pattern": Tap("b h t s", tr("softmax(scores)"))}
