"""Memory-compressed attention: distant keys and values are compressed by a strided convolution.

A sequence is divided into windows of a few tokens. A query attends to the tokens of its own window
up to itself, and to each earlier window as a whole: to one key and one value, which a convolution
computes from those of the window's tokens (Liu et al., 2018). So every earlier token is seen once,
nothing of the future is, and the number of keys is divided by the size of a window.

In the scores and the pattern, a compressed window has the column of its last token.

Shapes: b batch, h heads, t queries, s keys, e features of a head, n windows, c tokens in a window.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.attention import bias_term
from glassformer.nn.cache import LayerCache
from glassformer.nn.dropout import drop
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal, chunk
from glassformer.nn.positions import Rotary, rotate_pairs
from glassformer.nn.sparse import join_chunks, split_chunks
from glassformer.trace import Tap, tap, watched


def earlier_windows(size: int) -> Mask:
    """The last key of each window of `size` positions before that of the query."""
    return Mask(
        f"earlier_windows({size})",
        lambda i, j: (j % size == size - 1) & (j // size < i // size),
    )


class Compression(nn.Linear):
    """A convolution that makes one key or value of each window; it starts as the mean."""

    def __init__(self, head_dim: int, window: int) -> None:
        super().__init__(window * head_dim, head_dim, bias=False)
        self.window = window
        with torch.no_grad():
            self.weight.copy_(torch.eye(head_dim).repeat(1, window) / window)

    def forward(self, x: Tensor) -> Tensor:
        """The windows one after another, without the last one if it is incomplete.

        b h s e -> b h n e.
        """
        return self.convolve(x, stride=self.window)

    def slide(self, x: Tensor, count: int) -> Tensor:
        """The windows that end at each of the last `count` tokens: b h s e -> b h count e.

        Positions before the first token count as zeros.
        """
        missing = count + self.window - 1 - x.shape[2]
        x = F.pad(x, (0, 0, missing, 0))  # a negative number cuts
        return self.convolve(x, stride=1)

    def convolve(self, x: Tensor, stride: int) -> Tensor:
        if x.shape[2] < self.window:
            return x[:, :, :0]
        windows = x.unfold(2, self.window, stride)  # b h n e c
        return super().forward(windows.transpose(3, 4).flatten(3))


class CompressedCache(LayerCache):
    """The keys and values of one layer, and those of the window that ends at each token."""

    def __init__(self, capacity: int | None) -> None:
        super().__init__(capacity)
        self.windows = LayerCache(capacity)

    def extend_windows(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the windows that end at the new tokens, after `extend` with their own k and v."""
        self.windows.length = self.length - k.shape[2]  # windows of a failed pass are overwritten
        return self.windows.extend(k, v)

    def select_rows(self, rows: Tensor) -> None:
        super().select_rows(rows)
        self.windows.select_rows(rows)


class CompressedAttention(nn.Module):
    """Causal multi-head attention to the query's own window and to compressed earlier windows."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        window: int,
        position: Rotary,
        norm: Callable[[int], nn.Module],
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.window = window
        self.dropout = dropout
        self.position = position
        self.query, self.key, self.value, self.out = (
            nn.Linear(dim, dim, bias=bias) for _ in range(4)
        )
        self.query_norm, self.key_norm, self.window_norm = (norm(self.head_dim) for _ in range(3))
        self.compress_key = Compression(self.head_dim, window)
        self.compress_value = Compression(self.head_dim, window)

    def forward(
        self, x: Tensor, layout: SequenceLayout, *, layer_cache: CompressedCache | None = None
    ) -> Tensor:
        """b t d -> b t d. A whole sequence without padding takes the fast path."""
        q, k, v = (self.split_heads(layer(x)) for layer in (self.query, self.key, self.value))
        q, k, v = tap("q", q), tap("k", k), tap("v", v)  # b h t e
        if layer_cache is not None:
            k, v = layer_cache.extend(k, v)  # b h s e
        q = self.rotate(self.query_norm(q), layout.positions())
        positions = layout.positions(layout.keys)
        token_k = self.rotate(self.key_norm(k), positions)
        is_whole = layout.queries == layout.keys and layout.keep is None
        use_fast_path = is_whole and not watched("scores", "pattern")
        if layer_cache is not None or not use_fast_path:
            window_k, window_v = self.slide(k, v, layout.queries, layer_cache)
        if use_fast_path:
            window_k = self.compress_key(k)
            window_v = self.compress_value(v)
            positions = positions[self.window - 1 :: self.window]
        window_k = self.rotate(self.window_norm(window_k), positions)
        windows = (window_k, window_v)
        if use_fast_path:
            y = attend_to_windows(q, token_k, v, *windows, size=self.window)
        else:
            y = self.attend_reference(q, token_k, v, *windows, layout)
        y = self.out(tap("head_outputs", y).transpose(1, 2).flatten(2))
        return drop(y, self.dropout if self.training else 0.0)

    def slide(
        self, k: Tensor, v: Tensor, new_tokens: int, layer_cache: CompressedCache | None
    ) -> tuple[Tensor, Tensor]:
        """The compressed keys and values of the window that ends at each token: b h s e."""
        count = k.shape[2] if layer_cache is None else new_tokens
        windows = self.compress_key.slide(k, count), self.compress_value.slide(v, count)
        return windows if layer_cache is None else layer_cache.extend_windows(*windows)

    def attend_reference(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        window_k: Tensor,
        window_v: Tensor,
        layout: SequenceLayout,
    ) -> Tensor:
        """Attention step by step: q (b h t e), all others b h s e -> b h t e.

        `window_k` and `window_v` are those of the window that ends at each token, whether or not
        windows end there; the mask selects.
        """
        own = layout.mask_matrix(causal & chunk(self.window))  # t s, or b 1 t s
        earlier = layout.mask_matrix(earlier_windows(self.window))
        has_key = own.any(dim=-1, keepdim=True)  # not at padding, where softmax would be NaN
        scores = torch.where(own, q @ k.mT, q @ window_k.mT) / math.sqrt(self.head_dim)
        hidden = ~(own | earlier) & has_key
        scores = tap("scores", scores.masked_fill(hidden, -float("inf")))
        pattern = tap("pattern", scores.softmax(dim=-1) * has_key)  # b h t s
        return (pattern * own) @ v + (pattern * earlier) @ window_v

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotate_pairs(x, *self.position.cos_and_sin(positions, x.dtype))

    def split_heads(self, x: Tensor) -> Tensor:
        """b t h*e -> b h t e."""
        return torch.unflatten(x, -1, (-1, self.head_dim)).transpose(1, 2)

    @property
    def taps(self) -> dict[str, Tap]:
        product = self.position.formula(f"Q Kᵀ / √{self.head_dim}")
        product = tr("{product} of normalized Q and K", product=product)
        product = tr("{product}, K compressed in earlier windows", product=product)
        return {
            "q": Tap("b h t e", f"Q = X W_q{bias_term(self.query)}"),
            "k": Tap("b h t e", f"K = X W_k{bias_term(self.key)}"),
            "v": Tap("b h t e", f"V = X W_v{bias_term(self.value)}"),
            "scores": Tap("b h t s", tr("{product}, −∞ where masked", product=product)),
            "pattern": Tap("b h t s", tr("softmax(scores)")),
            "head_outputs": Tap("b h t e", tr("pattern V, V compressed in earlier windows")),
        }


def attend_to_windows(
    q: Tensor, k: Tensor, v: Tensor, window_k: Tensor, window_v: Tensor, *, size: int
) -> Tensor:
    """Attention of t queries to the keys of their own window and to n compressed windows before it.

    q, k, v are b h t e, `window_k` and `window_v` b h n e -> b h t e. There are t * (n + c) scores
    instead of t².
    """
    t, n = q.shape[2], window_k.shape[2]
    q, k, v = (split_chunks(x, size) for x in (q / math.sqrt(q.shape[3]), k, v))
    own = (q @ k.mT).masked_fill(later_tokens(size, q.device), -float("inf"))  # b h chunks c c
    earlier = torch.unflatten(q.flatten(2, 3) @ window_k.mT, 2, (-1, size))  # b h chunks c n
    chunks = torch.arange(q.shape[2], device=q.device)[:, None, None]
    is_hidden = torch.arange(n, device=q.device) >= chunks
    scores = torch.cat((earlier.masked_fill(is_hidden, -float("inf")), own), dim=-1)
    on_windows, on_tokens = torch.split(scores.softmax(dim=-1), [n, size], dim=-1)
    y = torch.unflatten(on_windows.flatten(2, 3) @ window_v, 2, (-1, size)) + on_tokens @ v
    return join_chunks(y, t)


def later_tokens(size: int, device: torch.device) -> Tensor:
    """Which keys of a window come after each of its queries: c c."""
    index = torch.arange(size, device=device)
    return index > index[:, None]
