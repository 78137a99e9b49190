"""From the corpus to the input of the encoder: the tutorial's numbers and the correct ones.

Shapes: t words, d features.
"""

import torch
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import count_wrong, read, read_matrices
from glassformer.lessons.thrones_network import DIM, FEATURES, SOURCE, VOCABULARY, WORDS
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Sinusoidal

# the matrices of printed/thrones.toml that this chapter shows; the next chapter shows the others
INPUT_MATRICES = ("printed_vocab_size", "embedding", "printed_position", "printed_input")
FIRST, SECOND = 0, 1  # the positions that are computed cell by cell


@torch.no_grad()
def compute_values() -> Values:
    printed = read_matrices("thrones")
    return {
        **{name: printed[name] for name in INPUT_MATRICES},
        **read_matrices("thrones_input"),
        **compute_vocabulary(),
        **compute_cells(printed),
        **compute_input(printed),
    }


def compute_vocabulary() -> Values:
    corpus = WORDS["corpus"]
    sentences = [line.split() for line in read("thrones")["words"]["corpus"].strip().splitlines()]
    lengths = [float(len(words)) for words in sentences]
    return {
        "words": SOURCE,
        "features": FEATURES,
        "sentences": ". ".join(" ".join(words) for words in sentences) + ".",
        "sentence_lengths": torch.tensor([[*lengths, sum(lengths)]]),
        "all_words": ", ".join(corpus),
        "distinct_words": ", ".join(dict.fromkeys(word.lower() for word in corpus)),
        "sentence": " ".join(WORDS["sentence"]),
        "vocab_size": torch.tensor([[float(len(VOCABULARY))]]),
        "words_ignoring_case": len({word.lower() for word in corpus}),
        "words_with_case": len(set(corpus)),
        "vocabulary": VOCABULARY,
        "numbering": torch.arange(1.0, len(VOCABULARY) + 1)[None],
        "word_ids": torch.tensor([[VOCABULARY.index(word) + 1.0 for word in SOURCE]]),  # from 1
    }


# --- positional encoding --------------------------------------------------------------------------


def compute_cells(printed: dict[str, Tensor]) -> Values:
    """The positional encoding of the first and of the second word, feature by feature (d)."""
    i = torch.arange(DIM).double()
    by_index = 10_000.0 ** (2 * i / DIM)
    by_pair = 10_000.0 ** (2 * (i // 2) / DIM)
    angles = FIRST / by_pair
    embedding = printed["embedding"]
    position = compute_position()
    return {
        "first_cells": torch.stack(
            (embedding[FIRST], angles, position[FIRST], embedding[FIRST] + position[FIRST]), dim=1
        ),
        "second_angles": torch.stack((SECOND / by_index, SECOND / by_pair), dim=1),
        "printed_second": printed["printed_position"][SECOND][:, None],
        "second": position[SECOND][:, None],
    }


def compute_input(printed: dict[str, Tensor]) -> Values:
    position = compute_position()
    by_formula = compute_printed_formula()
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
    p = torch.arange(len(SOURCE))[:, None].double()
    i = torch.arange(DIM)
    angles = p / 10_000.0 ** (2 * i / DIM)
    return torch.where(i % 2 == 0, angles.sin(), angles.cos())
