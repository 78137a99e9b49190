"""Several heads at the price of one: the same products in another order, with measured times.

Shapes: b batch, t tokens, k features, h heads, e features of a head.
"""

import time
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
    layer = Attention(DIM, HEADS, bias=False, out_bias=False)
    random = torch.Generator()
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
    maps = (layer.query, layer.key, layer.value)
    differences = [largest_difference(map_, split_map(map_, HEAD_DIM), x) for map_ in maps]
    return {"product_differences": torch.stack(differences)[None]}


def split_map(linear: nn.Linear, size: int) -> list[nn.Linear]:
    """Maps to `size` features each; side by side they have the weights of the large map."""
    maps = []
    for rows in torch.split(linear.weight, size):
        maps.append(nn.Linear(linear.in_features, size, bias=False))
        maps[-1].weight.copy_(rows)
    return maps


def largest_difference(linear: nn.Linear, maps: list[nn.Linear], x: Tensor) -> Tensor:
    """The largest difference between a map of x and the small maps of x, side by side."""
    difference: Tensor = torch.cat([small(x) for small in maps], dim=-1) - linear(x)
    return difference.abs().max()


def fold_heads(trace: Trace) -> Values:
    """The shapes from x W to a batch of heads, and attention weights computed in that batch."""
    q = trace["q"]
    k = trace["k"]
    pattern = trace["pattern"]
    folded_q = q.flatten(0, 1)
    folded_k = k.flatten(0, 1)
    folded = torch.bmm(folded_q, folded_k.mT / HEAD_DIM**0.5).softmax(dim=-1)
    joined = q.transpose(1, 2).flatten(2)
    split = q.transpose(1, 2)
    shapes = [joined.shape, split.shape, q.shape, folded_q.shape, folded.shape]
    return {
        "shapes": torch.tensor([[*shape, *[float("nan")] * (4 - len(shape))] for shape in shapes]),
        "folded_difference": (folded - pattern.flatten(0, 1)).abs().max()[None, None],
    }


def absorb_output(layer: Attention, x: Tensor, pattern: Tensor, output: Tensor) -> Values:
    """The output without W_o, from one k x k matrix for the values of each head."""
    w_v, w_o = layer.value.weight, layer.out.weight.T
    parts = zip(torch.split(w_v, HEAD_DIM), torch.split(w_o, HEAD_DIM), strict=True)
    absorbed = [values.T @ rows for values, rows in parts]
    without = sum(pattern[:, head] @ x @ w for head, w in enumerate(absorbed))
    return {
        "absorbed_difference": (without - output).abs().max()[None, None],
        "value_parameters": torch.tensor(
            [[w_v.numel() + w_o.numel(), sum(w.numel() for w in absorbed), w_v.numel()]]
        ).double(),
    }


@cache
@torch.no_grad()
def measure_times() -> Tensor:
    """Milliseconds for queries, keys and values in four ways, on this machine at this moment."""
    x = torch.randn(BATCH * TOKENS, DIM, generator=torch.Generator().manual_seed(0))
    small = [nn.Linear(DIM, HEAD_DIM, bias=False) for _ in range(3 * HEADS)]
    large = [nn.Linear(DIM, DIM, bias=False) for _ in range(3 * HEADS)]
    # one head, and small heads folded into one product, are the same computation: both rows of the
    # table are measured
    return torch.tensor([[measure(maps, x)] for maps in (large[:3], small, large[:3], large)])


def measure(maps: list[nn.Linear], x: Tensor) -> float:
    """The median duration in milliseconds of all maps of x."""
    durations = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for map_ in maps:
            map_(x)
        durations.append(time.perf_counter() - start)
    return 1000 * sorted(durations)[REPEATS // 2]
