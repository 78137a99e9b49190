"""A user's own sentence and its reverse, with and without positional encoding."""

import torch

from glassformer.lessons.attention_text import DIM, embed_words, read_sentence
from glassformer.lessons.lesson import Values
from glassformer.lessons.position import compare
from glassformer.nn.positions import sinusoid


@torch.no_grad()
def compute_values(text: str) -> Values:
    words = read_sentence(text)
    x = embed_words(words)
    order = list(reversed(range(len(words))))
    positions = sinusoid(torch.arange(len(words)).double(), DIM)
    output, reversed_output, difference = compare(x, x[order], order)
    with_positions = compare(x + positions, x[order] + positions, order)
    return {
        "words": words,
        "reversed_words": words[::-1],
        "reversed_text": " ".join(words[::-1]),
        "x": x,
        "output": output,
        "reversed_output": reversed_output,
        "difference": difference,
        "position_numbers": [str(p) for p in range(len(words))],
        "positions": positions,
        "output_with_positions": with_positions[0],
        "reversed_output_with_positions": with_positions[1],
        "difference_with_positions": with_positions[2],
    }
