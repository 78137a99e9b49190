"""Corrections of the notes on Hung-yi Lee's lecture."""

import torch

from glassformer.lessons import thrones_decoder
from glassformer.lessons.lesson import Values
from glassformer.nn.masks import causal

SCORES = torch.tensor([[2.0, 1, 0, 1]], dtype=torch.float64)  # of the second of four words


def compute_values() -> Values:
    hidden = ~causal.matrix(4, 4)[1:2]
    return {
        "scores": SCORES,
        "zero_printed": SCORES.masked_fill(hidden, 0).softmax(dim=1),
        "zero": SCORES.masked_fill(hidden, -torch.inf).softmax(dim=1),
        "target": " ".join(thrones_decoder.TARGET[:-1]),
    }
