"""From similarity weights to multi-head attention, based on Peter Bloem's tutorial."""

import math

import torch
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import Attention, PlainAttention, scaled_dot
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Trace

DIM = 256  # as in the tutorial, with 4 heads
FEATURE_COUNTS = (4, 16, 64, 256)
CONSTANT = 0.5  # each feature of the vectors whose lengths are compared


@torch.no_grad()
def compute_values() -> Values:
    matrices = read_matrices("attention")
    words = read_words("attention")["words"]
    x = matrices["x"]
    return {
        **matrices,
        "words": words,
        "movie_scores": matrices["viewers"] @ matrices["movies"].T,
        **compute_plain(x),
        **compute_one_head(x, words),
        **compute_two_heads(x),
        **compute_product_std(),
        **compute_constant_lengths(),
        **count_parameters(),
    }


def compute_plain(x: Tensor) -> Values:
    """Attention without parameters, and how its output changes if the words are reversed."""
    layer = PlainAttention()
    layout = SequenceLayout(len(x), len(x))
    with Trace(layer) as trace:
        output = layer(x[None], layout)[0]
    reversed_output = layer(x.flip(0)[None], layout)[0].flip(0)
    return {
        "plain_scores": trace["scores"][0, 0],
        "plain_pattern": trace["pattern"][0, 0],
        "plain_output": output,
        "reversed_difference": (reversed_output - output).abs().max()[None, None],
    }


def make_attention(heads: int) -> Attention:
    """Attention over 4 features, with random weights of one decimal."""
    layer = Attention(4, heads, bias=False, out_bias=False).double()
    random = torch.Generator()
    random.manual_seed(1)
    for weights in layer.parameters():
        sample = torch.randn(weights.shape, dtype=torch.float64, generator=random)
        weights.copy_(sample.round(decimals=1))
    return layer


def compute_one_head(x: Tensor, words: list[str]) -> Values:
    layer = make_attention(1)
    with Trace(layer) as trace:
        layer(x[None], SequenceLayout(len(x), len(x)))
    q, k, v = (trace[name] for name in "qkv")
    products = (q @ k.mT)[0, 0]
    best_matches = [words[int(i)] for i in products.argmax(dim=1)]
    first_mismatch, second_mismatch = (
        word for word, match in zip(words, best_matches, strict=True) if word != match
    )
    return {
        "w_q": layer.query.weight.T,
        "w_k": layer.key.weight.T,
        "w_v": layer.value.weight.T,
        "q": q[0, 0],
        "k": k[0, 0],
        "v": v[0, 0],
        "unscaled_pattern": (scaled_dot(q, k) * 2).softmax(dim=-1)[0, 0],
        "pattern": trace["pattern"][0, 0],
        "products": products,
        "first_mismatch": first_mismatch,
        "second_mismatch": second_mismatch,
    }


def compute_two_heads(x: Tensor) -> Values:
    layer = make_attention(2)
    with Trace(layer) as trace:
        layer(x[None], SequenceLayout(len(x), len(x)))
    return {
        "w_o": layer.out.weight.T,
        "head_1_pattern": trace["pattern"][0, 0],
        "head_2_pattern": trace["pattern"][0, 1],
        "heads_output": trace["output"][0],
    }


def compute_product_std() -> Values:
    """The standard deviation of dot products of random vectors with k features, next to √k."""
    random = torch.Generator().manual_seed(0)
    std = []
    for k in FEATURE_COUNTS:
        std.append(torch.randn(2, 10_000, k, generator=random).prod(0).sum(1).std())
    roots = torch.tensor([math.sqrt(k) for k in FEATURE_COUNTS])
    return {
        "feature_counts": [f"k={k}" for k in FEATURE_COUNTS],
        "product_std": torch.stack((torch.stack(std), roots)),
    }


def compute_constant_lengths() -> Values:
    """The length of a vector of k equal features, and the same divided by √k."""
    lengths = torch.stack([torch.full((k,), CONSTANT).norm() for k in FEATURE_COUNTS])
    roots = torch.tensor([math.sqrt(k) for k in FEATURE_COUNTS])
    return {"constant": CONSTANT, "constant_lengths": torch.stack((lengths, lengths / roots))}


def count_parameters() -> Values:
    """The parameters in query, key and value together, and in the output, for 1 and 4 heads."""
    counts = []
    for heads in (1, 4):
        layer = Attention(DIM, heads, bias=False, out_bias=False)
        n_inputs = sum(linear.weight.numel() for linear in (layer.query, layer.key, layer.value))
        counts.append([n_inputs, layer.out.weight.numel()])
    return {"dim": DIM, "parameter_counts": torch.tensor(counts, dtype=torch.float64)}
