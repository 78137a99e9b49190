"""Corrections of Khan's tutorial; most numbers are computed by the lesson thrones."""

import torch
from torch import Tensor

from glassformer.lessons import thrones, thrones_decoder, thrones_input, thrones_remarks
from glassformer.lessons.errata_bloem import measure_divisor
from glassformer.lessons.lesson import Values, as_tensor
from glassformer.lessons.printed import count_correct, read_matrices
from glassformer.lessons.rows import row
from glassformer.lessons.thrones_network import (
    DIM,
    HEAD_DIM,
    SOURCE,
    WORDS,
    TutorialTransformer,
    copy_weights,
    ids_of,
)
from glassformer.models.llama import Llama
from glassformer.nn.block import CrossBlock
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Trace

SMALL_STD, EPSILON = 1e-3, 1e-4  # of a row, and what the tutorial adds to it
SHORT_TARGET = thrones_decoder.TARGET[:4]  # of another length than the source


def compute_values() -> Values:
    printed = read_matrices("thrones")
    values = thrones_input.compute_values() | thrones.compute_values()
    probs = thrones_decoder.compute_printed_probs()
    return {
        **read_matrices("errata_khan"),
        "vocabulary_printed": printed["printed_vocab_size"],
        "vocabulary": values["vocab_size"],
        "words_with_case": values["words_with_case"],
        "sentence": row(len(WORDS["sentence"])),
        "position_printed": printed["printed_position"][1:2],
        "position": as_tensor(values["position"])[1:2],
        "cells_off_its_formula": values["cells_off_its_formula"],
        "cells_off_the_paper": values["cells_off_the_paper"],
        **compare_attention(printed, values),
        **compare_norms(printed, values),
        **compare_masks(),
        "five_words": probs["printed_words"],
        "probs_printed": probs["printed_probs"],
        "probs": probs["printed_logits_softmax"],
        "reproduced": count_reproduced(printed, values),
        **compute_embedding(),
        "llama": row(count_cross_attention()),
        **compute_decoder(),
    }


def compare_attention(printed: dict[str, Tensor], values: Values) -> Values:
    """The first row of the head's output, and the divisor of the scores."""
    return {
        "v_printed": printed["printed_q"][:1],
        "v": take_rows(values, "v", 1),
        "v_cells_correct": values["v_cells_correct"],
        "divisor_printed": measure_divisor(DIM),
        "divisor": measure_divisor(HEAD_DIM),
        "head_features": values["head_features"],
        "output_printed": printed["printed_attention_output"][:1],
        "output": take_rows(values, "attention_output", 1),
    }


def compare_norms(printed: dict[str, Tensor], values: Values) -> Values:
    small = SMALL_STD * torch.tensor([[1.0, -1, 1, -1, 1, -1]], dtype=torch.float64)
    layer = LayerNorm(DIM).double()
    return {
        "mean_1": row(values["arithmetic_mean"]),
        "words": SOURCE,
        "feedforward": row(len(SOURCE)),
        "std_2_printed": printed["printed_std_2"].T,
        "std_2": take_rows(values, "std_2", len(SOURCE)).T,
        "features": values["features"],
        "norm_2_printed": printed["printed_norm_2"][:1],
        "norm_2": take_rows(values, "norm_2", 1),
        "norm_2_cells_wrong": values["norm_2_cells_wrong"],
        "scale_and_shift": row(sum(weights.numel() for weights in layer.parameters())),
        "epsilon_printed": (small / (SMALL_STD + EPSILON))[:, :1],
        "epsilon": layer(small)[:, :1].detach(),
    }


def take_rows(values: Values, name: str, count: int) -> Tensor:
    return as_tensor(values[name])[:count]


def compare_masks() -> Values:
    """The example of masked attention: its products, and the weights of the first word."""
    masked = thrones_remarks.compute_masked()
    return {
        "products_printed": take_rows(masked, "x_transposed", 3),
        "products": take_rows(masked, "products", 3),
        "hidden_printed": take_rows(masked, "printed_mask_1_softmax", 1),
        "past_printed": take_rows(masked, "printed_mask_2_softmax", 1),
        "hidden": take_rows(masked, "pattern", 1),
    }


def count_reproduced(printed: dict[str, Tensor], values: Values) -> Tensor:
    """For matrices that are printed correctly: how many cells are right, and how many there are."""
    projected = printed["printed_attention_output"].round(decimals=2) @ printed["w_o"]
    pairs: list[tuple[Tensor, Tensor, int]] = [
        (printed["printed_position"][:1], take_rows(values, "position", 1), 4),
        (printed["printed_input"], printed["embedding"] + printed["printed_position"], 2),
        (printed["printed_q"], take_rows(values, "q", 6), 2),
        (printed["printed_k"], take_rows(values, "k", 6), 2),
        (printed["printed_products"], take_rows(values, "products", 6), 4),
        (printed["printed_projection"], projected, 2),
        (printed["printed_sum_2"], take_rows(values, "sum_2", 6), 2),
    ]
    counts = [(count_correct(*pair), pair[0].numel()) for pair in pairs]
    return torch.tensor(counts, dtype=torch.float64)


def compute_embedding() -> Values:
    """The width of an input, added and concatenated, and the embedding size by a rule."""
    word = torch.zeros(1, DIM)
    sizes = take_rows(thrones_remarks.compute_embedding_sizes(), "embedding_sizes", 1)
    return {
        "addition_printed": row(torch.cat((word, word), dim=1).shape[1]),
        "addition": row((word + word).shape[1]),
        "rule": sizes[:, :2],
    }


def count_cross_attention() -> int:
    """The number of layers with cross-attention in a Llama."""
    with torch.device("meta"):
        network = Llama(Llama.Config(vocab=100))
    return sum(isinstance(module, CrossBlock) for module in network.modules())


def compute_decoder() -> Values:
    """The shapes of the decoder, and how it is trained."""
    network = TutorialTransformer()
    target = thrones_decoder.TARGET[:-1]
    with torch.no_grad(), Trace(network, "decoder.cross.?") as trace:
        network(ids_of(SOURCE), ids_of(SHORT_TARGET))
    trained = thrones_decoder.compute_many_updates(network)
    linear = [name for name in copy_weights(network.decoder.feedforward) if name[0] == "w"]
    return {
        "short_target": " ".join(SHORT_TARGET),
        "cross_printed": row(len(SOURCE), len(SOURCE), len(SHORT_TARGET)),
        "cross": row(*(trace[f"decoder.cross.{name}"].shape[2] for name in "qkv")),
        "linear": row(len(linear)),
        "target": " ".join(target),
        "decoder_input": row(len(target)),
        "trained_positions": row(len(network(ids_of(SOURCE), ids_of(target)))),
        "flatten": row(network.head.weight.numel()),
        "updates": trained["updates"],
        "overfitted": trained["final_loss"],
        "loss": thrones_decoder.compute_one_update(TutorialTransformer())["loss_before_and_after"],
    }
