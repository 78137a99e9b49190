"""Corrections of P. Bloem's tutorial, in a Chinese edition of 2024."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glassformer.lessons import attention, thrones_decoder
from glassformer.lessons.lesson import Values, as_tensor
from glassformer.lessons.printed import read_matrices
from glassformer.lessons.rows import row
from glassformer.nn.attention import Attention, PlainAttention, dot, scaled_dot
from glassformer.nn.heads import mean_pool
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal, full, strided, window
from glassformer.trace import Trace
from glassformer.training.cost import GRIDS, grid_bytes

HEADS = 4
CONTEXT = 1024  # tokens of the sparse grid
BATCH, TOKENS = 16, 1000  # grids of scores, and their side


def compute_values() -> Values:
    return {
        **read_matrices("errata_bloem"),
        **compute_scaling(),
        **compute_weights(),
        **compute_pooling(),
        **attention.compute_product_std(),
        "decoder_input": " ".join(thrones_decoder.TARGET[:-1]),
        **compute_sizes(),
        **compute_accumulation(),
    }


def compute_scaling() -> Values:
    head = Attention(attention.DIM, HEADS)
    counts = as_tensor(attention.count_parameters()["parameter_counts"])
    return {
        "scaling_printed": measure_divisor(attention.DIM),
        "scaling": measure_divisor(head.head_dim),
        "parameters_printed": 3.0 * HEADS * attention.DIM**head.head_dim,
        "parameters": counts[1:, :1],
    }


def measure_divisor(features: int) -> Tensor:
    """What the dot product of two vectors is divided by before the softmax."""
    ones = torch.ones(1, 1, 1, features, dtype=torch.float64)
    return row(dot(ones, ones) / scaled_dot(ones, ones))


@torch.no_grad()
def compute_weights() -> Values:
    """The weights of attention without parameters, over the five words of the tutorial."""
    x = read_matrices("attention")["x"]
    plain = attention.compute_plain(x)
    blocks = read_matrices("code")["blocks"][:-1]
    pattern = as_tensor(plain["plain_pattern"])
    return {
        "mask_printed": weigh_later_words(x, full),
        "mask": weigh_later_words(x, causal),
        "own_key": pattern[:1, :1],
        "content": plain["reversed_difference"],
        "dense": row(pattern.count_nonzero()),
        "code": row((blocks[:, 0] == 0).sum()),
    }


def weigh_later_words(x: Tensor, mask: Mask) -> Tensor:
    """The attention weight of the first word on all later words."""
    with Trace(layer := PlainAttention(mask=mask)) as trace:
        layer(x[None], SequenceLayout(len(x), len(x)))
    return row(trace["pattern"][0, 0, 0, 1:].sum())


def compute_pooling() -> Values:
    """The mean of a text of two words, 1 and 3, in a batch with a text of three words."""
    words = torch.tensor([[[1.0], [3.0], [0.0]]], dtype=torch.float64)
    keep = torch.tensor([[True, True, False]])
    return {"pooling_printed": mean_pool(words), "pooling": mean_pool(words, keep)}


def compute_sizes() -> Values:
    """Sizes whose superscripts were lost, and the memory of the scores."""
    mask = (window(math.isqrt(CONTEXT)) | strided(math.isqrt(CONTEXT))) & causal
    batch = grid_bytes(BATCH, TOKENS) / 1e6
    bits, gpt2_bits = read_matrices("errata_bloem")["bits_printed"][0].tolist()
    return {
        "enwik8": row(10.0**8),
        "context": CONTEXT,
        "sparse": row(CONTEXT**1.5),
        "sparse_cells": row(CONTEXT**2, mask.matrix(CONTEXT, CONTEXT).sum()),
        "memory": row(batch / GRIDS),
        "memory_of_layer": batch,
        "bits_more": 100 * (bits / gpt2_bits - 1),
        "bits": row(100 * (bits / gpt2_bits - 1)),
    }


def compute_accumulation() -> Values:
    """The gradient of the sum and of the mean of four losses, relative to the whole batch's."""
    layer = nn.Linear(1, 1, bias=False).double()
    x = torch.arange(1, 9, dtype=torch.float64)[:, None]

    def differentiate(parts: Sequence[Tensor], scale: float = 1) -> Tensor:
        losses = torch.stack([layer(part).square().mean() * scale for part in parts])
        return torch.autograd.grad(losses.sum(), layer.weight)[0]

    batch, parts = differentiate([x]), x.chunk(4)
    return {
        "accumulation_printed": differentiate(parts) / batch,
        "accumulation": differentiate(parts, 1 / len(parts)) / batch,
    }
