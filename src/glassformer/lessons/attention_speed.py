"""Several heads at the price of one: the same products in another order, with measured times.

Shapes: b batch, t tokens, k features, h heads, e features of a head.
"""

import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from glassformer.lessons.lesson import Values
from glassformer.nn.attention import Attention
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Trace

BATCH, TOKENS, DIM, HEADS = 2, 64, 256, 4  # the tutorial's sizes: 256 features, 4 heads
HEAD_DIM = DIM // HEADS
REPEATS = 7  # the median counts


@torch.no_grad()
def compute_values() -> Values:
    layer, random = Attention(DIM, HEADS, bias=False, out_bias=False), torch.Generator()
    random.manual_seed(0)
    for weights in layer.parameters():
        weights.copy_(torch.randn(weights.shape, generator=random) / DIM**0.5)
    x = torch.randn(BATCH, TOKENS, DIM, generator=random)
    layout = SequenceLayout(TOKENS, TOKENS)
    with Trace(layer) as trace:
        output = layer(x, layout)
    return {
        "dim": DIM,
        "heads": HEADS,
        **compare_products(layer, x),
        **fold_heads(trace),
        **absorb_output(layer, x, trace["pattern"], output),
        "times": measure_times(),
    }


def compare_products(layer: Attention, x: Tensor) -> Values:
    """The product of each large matrix, and those of its four parts put side by side."""
    maps = (layer.query, layer.key, layer.value)
    differences = [
        (torch.cat([x @ rows.T for rows in torch.split(map_.weight, HEAD_DIM)], dim=2) - map_(x))
        .abs()
        .max()
        for map_ in maps
    ]
    return {"product_differences": torch.stack(differences)[None]}


def fold_heads(trace: Trace) -> Values:
    """The shapes from x W to a batch of heads, and attention weights computed in that batch."""
    q, k, pattern = trace["q"], trace["k"], trace["pattern"]
    folded_q, folded_k = q.flatten(0, 1), k.flatten(0, 1)
    folded = torch.bmm(folded_q, folded_k.mT / HEAD_DIM**0.5).softmax(dim=-1)
    joined, split = q.transpose(1, 2).flatten(2), q.transpose(1, 2)
    shapes = [joined.shape, split.shape, q.shape, folded_q.shape, folded.shape]
    return {
        "shapes": torch.tensor([[*shape, *[float("nan")] * (4 - len(shape))] for shape in shapes]),
        "folded_difference": (folded - pattern.flatten(0, 1)).abs().max()[None, None],
    }


def absorb_output(layer: Attention, x: Tensor, pattern: Tensor, output: Tensor) -> Values:
    """The output without W_o, from one k x k matrix for the values of each head."""
    parts = zip(
        torch.split(layer.value.weight, HEAD_DIM),
        torch.split(layer.out.weight.T, HEAD_DIM),
        strict=True,
    )
    absorbed = [w_v.T @ w_o for w_v, w_o in parts]
    without = sum(pattern[:, head] @ x @ w for head, w in enumerate(absorbed))
    separate = layer.value.weight.numel() + layer.out.weight.numel()
    return {
        "absorbed_difference": (without - output).abs().max()[None, None],
        "value_parameters": torch.tensor(
            [[separate, sum(w.numel() for w in absorbed), layer.value.weight.numel()]]
        ).double(),
    }


@cache
@torch.no_grad()
def measure_times() -> Tensor:
    """Milliseconds for queries, keys and values in four ways, on this machine at this moment."""
    x = torch.randn(BATCH * TOKENS, DIM, generator=torch.Generator().manual_seed(0))
    small = [nn.Linear(DIM, HEAD_DIM, bias=False) for _ in range(3 * HEADS)]
    large = [nn.Linear(DIM, DIM, bias=False) for _ in range(3 * HEADS)]
    ways = (large[:3], small, large[:3], large)
    return torch.tensor([[measure(lambda maps=maps: [m(x) for m in maps])] for maps in ways])  # type: ignore[misc]


def measure(function: Callable[[], object]) -> float:
    """The median duration of a call in milliseconds."""
    durations = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        durations.append(time.perf_counter() - start)
    return 1000 * sorted(durations)[REPEATS // 2]
