"""What attention means: weights on an input, exact and soft lookup, one sentence."""

import torch
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import PlainAttention, attend, dot
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Trace

SCALES = (1.0, 4.0, 16.0, 64.0)  # multiples of the second query


def compute_values() -> Values:
    matrices = read_matrices("attention_lookup")
    words = read_words("attention_lookup")
    return {
        **matrices,
        **words,
        "weighted_sums": matrices["numbers"] @ matrices["weights"].T,
        **compute_lookup(matrices["keys"], matrices["legs"], matrices["queries"]),
        **compute_sentence(matrices["x"], words["words"]),
    }


def compute_lookup(keys: Tensor, legs: Tensor, queries: Tensor) -> Values:
    """The first query is a key, the second one is not."""
    exact = (queries[:, None] == keys).all(dim=2).double()
    scaled = torch.stack([scale * queries[1] for scale in SCALES])

    def look_up(q: Tensor) -> Tensor:
        return attend(q[None, None], keys[None, None], legs[None, None], score=dot)[0, 0]

    return {
        "exact_weights": exact,
        "exact_values": (exact @ legs).where(exact.any(dim=1, keepdim=True), torch.nan),
        "soft_weights": dot(queries, keys).softmax(dim=-1),
        "soft_values": look_up(queries),
        "scales": [f"{scale:.0f} q" for scale in SCALES],
        "scaled_weights": dot(scaled, keys).softmax(dim=-1),
        "scaled_values": look_up(scaled),
    }


def compute_sentence(x: Tensor, words: list[str]) -> Values:
    layer = PlainAttention()
    with Trace(layer) as trace:
        output = layer(x[None], SequenceLayout(len(x), len(x)))[0]
    return {
        "sentence": " ".join(words),
        "scores": trace["scores"][0, 0],
        "pattern": trace["pattern"][0, 0],
        "output": output,
    }
