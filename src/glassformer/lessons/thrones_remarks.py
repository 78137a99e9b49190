"""Small examples after the Transformer by hand: masks, the size of an embedding."""

import math

import torch

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices
from glassformer.lessons.thrones_network import DIM, WORDS
from glassformer.nn.attention import PlainAttention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.trace import Trace


@torch.no_grad()
def compute_values() -> Values:
    return {**compute_masked(), **compute_embedding_sizes()}


def compute_masked() -> Values:
    """Causal attention without parameters: queries, keys and values are x."""
    printed = read_matrices("thrones_remarks")
    layer = PlainAttention(mask=causal)
    x = printed["x"]
    with Trace(layer) as trace:
        output = layer(x[None], SequenceLayout(3, 3))[0]
    concatenated = torch.cat((output, output), dim=1)
    softmax_1, softmax_2 = (printed[f"printed_mask_{head}"].softmax(dim=-1) for head in (1, 2))
    return {
        **printed,
        "x_transposed": x.T,
        "products": x @ x.T,
        "masked_scores": trace["scores"][0, 0],
        "printed_mask_1_softmax": softmax_1,
        "printed_mask_2_softmax": softmax_2,
        "own_weight": float(softmax_1[0, 0]),
        "later_weight": float(softmax_1[0, 1]),
        "pattern": trace["pattern"][0, 0],
        "attention_output": concatenated,
        "combined": concatenated @ printed["w_o"],
    }


def compute_embedding_sizes() -> Values:
    """The embedding size by the tutorial's rule, with either logarithm, and the size it uses."""
    count = len({word.lower() for word in WORDS["corpus"]})
    sizes = torch.tensor([[8.33 * math.log(count), 8.33 * math.log10(count), DIM]])
    return {"word_count": count, "embedding_sizes": sizes}
