"""Layer normalization and batch normalization, based on Hung-yi Lee's lectures."""

import torch
from torch import nn

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Trace


@torch.no_grad()
def compute_values() -> Values:
    layer = LayerNorm(4).double()
    batch = nn.BatchNorm1d(4).double()
    matrices = read_matrices("norm")
    x = matrices["x"]
    with Trace(layer) as trace:
        layer_norm = layer(x)
    return {
        **matrices,
        "features": ["f0", "f1", "f2", "f3"],
        "row_mean": trace["mean"],
        "row_std": trace["std"],
        "layer_norm": layer_norm,
        "first_text_only": layer(x[:1]),
        "column_mean": x.mean(dim=0)[None],
        "column_std": x.std(dim=0, correction=0)[None],
        "batch_norm": batch(x),
        "two_texts_only": batch(x[:2]),
        "scaled_and_shifted": layer_norm * matrices["scale"] + matrices["shift"],
        "equal_numbers": layer(torch.full((1, 4), 5.0, dtype=torch.float64)),
    }
