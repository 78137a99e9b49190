"""From the corpus to the output of the encoder: the tutorial's numbers and the correct ones.

Shapes: t words, d features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.inspection.sheet import equal_when_rounded
from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices
from glassformer.lessons.thrones_network import (
    DIM,
    FEATURES,
    HEAD_FEATURES,
    SOURCE,
    VOCABULARY,
    WORDS,
    TutorialTransformer,
    copy_weights,
    to_matrix,
)
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Sinusoidal
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
        **printed,
        **compute_vocabulary(),
        **compute_input(printed),
        **compute_encoder(printed),
        **check_attention(printed),
        **check_norm_1(printed),
        **check_norm_2(printed),
    }


def compute_vocabulary() -> Values:
    corpus = WORDS["corpus"]
    return {
        "words": SOURCE,
        "features": FEATURES,
        "head_features": HEAD_FEATURES,
        "sentence": " ".join(WORDS["sentence"]),
        "vocab_size": torch.tensor([[float(len(VOCABULARY))]]),
        "words_ignoring_case": len({word.lower() for word in corpus}),
        "words_with_case": len(set(corpus)),
        "word_ids": torch.tensor([[VOCABULARY.index(word) + 1.0 for word in SOURCE]]),  # from 1
    }


# --- positional encoding --------------------------------------------------------------------------


def compute_input(printed: dict[str, Tensor]) -> Values:
    position, by_formula = compute_position(), compute_printed_formula()
    return {
        "position": position,
        "position_by_its_formula": by_formula,
        "cells_off_its_formula": count_wrong(printed["printed_position"], by_formula, 4),
        "cells_off_the_paper": count_wrong(printed["printed_position"], position, 4),
        "input": printed["embedding"] + position,
    }


def compute_position() -> Tensor:
    """The positional encoding of the words as in the paper: t d."""
    position: Tensor = Sinusoidal(DIM)(SequenceLayout(len(SOURCE), len(SOURCE)))
    return position.double()


def compute_printed_formula() -> Tensor:
    """The tutorial's positional encoding, with the index of the feature as the exponent: t d."""
    p, i = torch.arange(len(SOURCE))[:, None].double(), torch.arange(DIM)
    angles = p / 10_000.0 ** (2 * i / DIM)
    return torch.where(i % 2 == 0, angles.sin(), angles.cos())


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


def count_correct(printed: Tensor, correct: Tensor, decimals: int) -> int:
    return int(equal_when_rounded(printed, correct, decimals).sum())


def count_wrong(printed: Tensor, correct: Tensor, decimals: int) -> int:
    return printed.numel() - count_correct(printed, correct, decimals)
