"""Why attention needs positional encoding, and why adding it suffices.

Based on Hung-yi Lee's lectures.
"""

import torch
from torch import Tensor, nn

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import PlainAttention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import sinusoid


@torch.no_grad()
def compute_values() -> Values:
    x = read_matrices("position")["x"]
    sentences = read_words("position")
    first, second = sentences.values()
    order = [first.index(character) for character in second]
    positions = sinusoid(torch.arange(4), 4).double()
    output_1, output_2, difference = compare(x, x[order], order)
    with_positions = compare(x + positions, x[order] + positions, order)
    return {
        **sentences,
        "position_numbers": ["0", "1", "2", "3"],
        "x": x,
        "output_1": output_1,
        "output_2": output_2,
        "difference": difference,
        "positions": positions,
        "output_1_with_positions": with_positions[0],
        "output_2_with_positions": with_positions[1],
        "difference_with_positions": with_positions[2],
        **compute_adding(x),
    }


def compare(x: Tensor, other: Tensor, order: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs of attention for two sentences, and the largest difference for any character."""
    layer = PlainAttention()
    layout = SequenceLayout(len(x), len(x))
    output_1 = layer(x[None], layout)[0]
    output_2 = layer(other[None], layout)[0]
    return output_1, output_2, (output_1[order] - output_2).abs().max()[None, None]


def compute_adding(x: Tensor) -> Values:
    """Concatenating a one-hot position before a linear layer, compared with adding a vector."""
    layer = nn.Linear(8, 4, bias=False).double()
    random = torch.Generator().manual_seed(0)
    sample = torch.randn(4, 8, dtype=torch.float64, generator=random)
    layer.weight.copy_(sample.round(decimals=1))
    one_hot = torch.eye(4, dtype=torch.float64)
    concatenated = torch.cat((x, one_hot), dim=1)
    w_word = layer.weight[:, :4]
    w_position = layer.weight[:, 4:]
    return {
        "concatenated": concatenated,
        "w_word": w_word,
        "w_position": w_position,
        "position_vectors": one_hot @ w_position.T,
        "product": layer(concatenated),
        "sum": x @ w_word.T + one_hot @ w_position.T,
    }
