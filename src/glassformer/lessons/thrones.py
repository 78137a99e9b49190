"""From the queries to the output of the encoder: the tutorial's numbers and the correct ones.

Shapes: t words, d features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import count_correct, count_wrong, read_matrices
from glassformer.lessons.thrones_input import INPUT_MATRICES, compute_position
from glassformer.lessons.thrones_network import (
    DIM,
    FEATURES,
    HEAD_DIM,
    HEAD_FEATURES,
    SOURCE,
    TutorialTransformer,
    copy_weights,
    to_matrix,
)
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Trace

TAPS = {
    "q": "attention.q",
    "k": "attention.k",
    "v": "attention.v",
    "scores": "attention.scores",
    "pattern": "attention.pattern",
    "attention_output": "attention.head_outputs",
    "projection": "attention",
    "norm_1": "attention_norm",
}


@torch.no_grad()
def compute_values() -> Values:
    printed = read_matrices("thrones")
    return {
        **{name: matrix for name, matrix in printed.items() if name not in INPUT_MATRICES},
        "words": SOURCE,
        "features": FEATURES,
        "head_features": HEAD_FEATURES,
        **compute_encoder(printed),
        **check_attention(printed),
        **write_out_softmax(printed),
        **check_norm_1(printed),
        **compare_statistics(printed),
        **check_norm_2(printed),
    }


# --- the encoder ----------------------------------------------------------------------------------


def compute_encoder(printed: dict[str, Tensor]) -> Values:
    """Every value of the encoder, for the printed input and (`_corrected`) for the correct one."""
    network = TutorialTransformer()
    with Trace(network.encoder) as trace:
        network.encode(printed["printed_input"])
    with Trace(network.encoder) as corrected:
        network.encode(printed["embedding"] + compute_position())
    return {
        **{name: to_matrix(trace[tap]) for name, tap in TAPS.items()},
        **{f"{name}_corrected": to_matrix(corrected[tap]) for name, tap in TAPS.items()},
        "hidden": to_matrix(corrected["feedforward.hidden"]),
        "feedforward": to_matrix(corrected["feedforward"]),
        "encoded": to_matrix(corrected["feedforward_norm"]),
        **copy_weights(network.encoder.feedforward),
        "v_cells_correct": count_correct(printed["printed_q"], to_matrix(trace["attention.v"]), 2),
    }


# --- how the printed numbers follow from earlier printed numbers ----------------------------------


def check_attention(printed: dict[str, Tensor]) -> Values:
    q, scores, output = (printed[f"printed_{name}"] for name in ("q", "scores", "attention_output"))
    products = q @ printed["printed_k"].T
    by_root_6 = products / math.sqrt(DIM)
    projection = output.round(decimals=2) @ printed["w_o"]
    return {
        "products": products,
        "scores_by_root_6": by_root_6,
        "root_6_cells": count_correct(scores, by_root_6, 2),
        "attention_output_error": float((scores.softmax(dim=-1) @ q - output).abs().max()),
        "projection_cells": count_correct(printed["printed_projection"], projection, 2),
    }


def write_out_softmax(printed: dict[str, Tensor]) -> Values:
    """The softmax of the first row: of the printed scores, and of scores divided by √4."""
    products = printed["printed_products"][:1]
    rows = {"first": printed["printed_scores"][:1], "first_correct": products / HEAD_DIM**0.5}
    values: Values = {"first_word": SOURCE[:1]}
    for name, scores in rows.items():
        powers = scores.exp()
        values |= {
            f"{name}_scores": scores,
            f"{name}_powers": powers,
            f"{name}_sum": powers.sum(dim=1, keepdim=True),
            f"{name}_weights": scores.softmax(dim=-1),
            f"{name}_own": float(scores.softmax(dim=-1)[0, 0]),
        }
    return values


def compare_statistics(printed: dict[str, Tensor]) -> Values:
    """The numbers that go into the first cell of the first norm, and into all its rows."""
    total = printed["printed_input"] + printed["printed_projection"]
    layer = LayerNorm(DIM).double()
    with Trace(layer) as trace:
        layer(total[None])
    mean, std = trace["mean"][0], trace["std"][0]
    cell = [total[0, 0], mean[0, 0], std[0, 0], trace["normalized"][0, 0, 0]]
    return {
        "sum_1": total,
        "first_cell": torch.stack(cell)[None],
        "statistics": torch.cat((mean, total.log().mean(dim=1, keepdim=True).exp(), std), dim=1),
    }


def check_norm_1(printed: dict[str, Tensor]) -> Values:
    """The tutorial's first normalization, which uses a rounded geometric mean."""
    total = printed["printed_input"] + printed["printed_projection"]
    mean = total.log().mean(dim=1, keepdim=True).exp()
    std = total.std(dim=1, correction=0, keepdim=True).round(decimals=2)
    geometric = (total - mean.round(decimals=2)) / (std + 1e-4)
    arithmetic = F.layer_norm(total, (DIM,))
    return {
        "arithmetic_cells": count_correct(printed["printed_norm_1"], arithmetic, 2),
        "geometric_cells": count_correct(printed["printed_norm_1"], geometric, 2),
        "geometric_mean": float(mean[0]),
        "arithmetic_mean": float(total[0].mean()),
    }


def check_norm_2(printed: dict[str, Tensor]) -> Values:
    """The tutorial's second normalization, which uses the standard deviation of two rows."""
    total = printed["printed_sum_2"]
    std = total.std(dim=1, correction=0, keepdim=True)
    norm_2 = (total - total.mean(dim=1, keepdim=True)) / std
    of_two_rows = torch.stack([total[i : i + 2].std() for i in range(len(total))])[:, None]
    return {
        "sum_2": printed["printed_norm_1"] + printed["printed_feedforward"],
        "std_2": std,
        "std_of_two_rows": of_two_rows,
        "std_error": float((of_two_rows - printed["printed_std_2"]).abs().max()),
        "norm_2": norm_2,
        "norm_2_cells_wrong": count_wrong(printed["printed_norm_2"], norm_2, 2),
    }
