"""Sparse attention: masks with kernels that never compute the full grid of scores.

Each mask has a rule, which defines it (nn/masks.py), and a kernel: tokens are rearranged so that
fused attention on small dense parts gives the same result. With a stride of about √t, time and
memory grow with t^1.5, where dense attention takes t². The patterns are those of the Sparse
Transformer (Child et al., 2019), in two halves that together reach every earlier token.

Shapes: b batch, h heads, t tokens, e features of a head, n chunks, c tokens in a chunk.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.nn.masks import Mask, causal, chunk, per_head, strided, summaries, window


def local_window(size: int) -> Mask:
    """The last `size` keys."""
    return replace(causal & window(size), kernel=partial(attend_to_window, size=size))


def local_stride(stride: int) -> Mask:
    """Every key at a multiple of `stride` positions before the query."""
    return replace(causal & strided(stride), kernel=partial(attend_to_stride, stride=stride))


def local_chunk(size: int) -> Mask:
    """The earlier keys in the same chunk of `size` positions."""
    return replace(causal & chunk(size), kernel=partial(attend_to_chunk, size=size))


def local_summaries(stride: int, count: int) -> Mask:
    """The last `count` keys of each chunk of `stride` positions."""
    kernel = partial(attend_to_summaries, stride=stride, count=count)
    return replace(causal & summaries(stride, count), kernel=kernel)


def share_heads(masks: Sequence[Mask], heads: int) -> Mask:
    """A mask that gives each of the masks an equal number of consecutive heads."""

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = zip(masks, *(torch.chunk(x, len(masks), dim=1) for x in (q, k, v)), strict=True)
        outputs = [mask.kernel(*group) for mask, *group in groups if mask.kernel]
        return torch.cat(outputs, dim=1)

    return replace(per_head(masks, heads), kernel=kernel)


# --- kernels: q, k, v (b h t e) -> b h t e --------------------------------------------------------


def split_chunks(x: Tensor, size: int) -> Tensor:
    """Chunks of `size` tokens, the last one padded with zeros: b h t e -> b h n c e."""
    padded = F.pad(x, (0, 0, 0, -x.shape[2] % size))
    return torch.unflatten(padded, 2, (-1, size))


def attend_to_chunk(q: Tensor, k: Tensor, v: Tensor, *, size: int) -> Tensor:
    """Causal attention inside each chunk."""
    q, k, v, t = *(split_chunks(x, size).flatten(1, 2) for x in (q, k, v)), q.shape[2]
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # b hn c e
    return join_chunks(torch.unflatten(y, 1, (-1, -(-t // size))), t)


def attend_to_window(q: Tensor, k: Tensor, v: Tensor, *, size: int) -> Tensor:
    """The queries of a chunk attend to the keys of their chunk and of the one before."""
    b, t = q.shape[0], q.shape[2]
    q, k, v = (split_chunks(x, size).flatten(0, 1) for x in (q, k, v))  # bh n c e
    # a chunk of zeros comes before the first one
    k, v = (torch.cat((F.pad(x, (0, 0, 0, 0, 1, -1)), x), dim=2) for x in (k, v))  # bh n 2c e
    i = torch.arange(size, 2 * size, device=q.device)[:, None]
    j = torch.arange(2 * size, device=q.device)
    allowed = ((j <= i) & (i - j < size)).repeat(q.shape[1], 1, 1)  # n c 2c
    allowed[0] &= j >= size
    y = F.scaled_dot_product_attention(q, k, v, allowed)
    return join_chunks(torch.unflatten(y, 0, (b, -1)), t)


def attend_to_stride(q: Tensor, k: Tensor, v: Tensor, *, stride: int) -> Tensor:
    """Causal attention among the tokens with the same index in their chunks."""
    t = q.shape[2]
    q, k, v = (split_chunks(x, stride).transpose(2, 3).flatten(1, 2) for x in (q, k, v))  # b hc n e
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return join_chunks(torch.unflatten(y, 1, (-1, stride)).transpose(2, 3), t)


def attend_to_summaries(q: Tensor, k: Tensor, v: Tensor, *, stride: int, count: int) -> Tensor:
    """All queries attend to the last `count` keys of each chunk; 0 where there is none yet."""
    k, v = (split_chunks(x, stride)[:, :, :, stride - count :].flatten(2, 3) for x in (k, v))
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)
    position = j // count * stride + stride - count + j % count
    return F.scaled_dot_product_attention(q, k, v, position <= i)


def join_chunks(y: Tensor, t: int) -> Tensor:
    """b h n c e -> b h t e, without the padding."""
    return y.flatten(2, 3)[:, :, :t]
