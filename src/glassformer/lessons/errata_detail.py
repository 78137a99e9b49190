"""Corrections of “Transformer: every detail explained”."""

import torch
from torch import Tensor, nn

from glassformer.lessons import attention, machines_decoder, norm, thrones_decoder
from glassformer.lessons.errata_bloem import weigh_later_words
from glassformer.lessons.lesson import Values, as_tensor
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.lessons.rows import row
from glassformer.lessons.thrones_network import SOURCE, TutorialTransformer, ids_of
from glassformer.models.translator import Config
from glassformer.nn.attention import Attention
from glassformer.nn.masks import causal, full
from glassformer.nn.positions import Learned, Sinusoidal
from glassformer.trace import Trace

SHORT_TARGET = thrones_decoder.TARGET[:4]  # of another length than the source
POSITIONS = 100


@torch.no_grad()
def compute_values() -> Values:
    data = read_matrices("attention")["x"]
    paper = Config()
    with Trace(network := TutorialTransformer(), "decoder.cross.?") as trace:
        network(ids_of(SOURCE), ids_of(SHORT_TARGET))
    heads = Attention(paper.dim, paper.heads)
    return {
        **read_matrices("errata_detail"),
        "short_target": " ".join(SHORT_TARGET),
        "cross_printed": row(len(SOURCE), len(SHORT_TARGET), len(SOURCE)),
        "cross": row(*(trace[f"decoder.cross.{name}"].shape[2] for name in "qkv")),
        "causal_printed": weigh_later_words(data, full),
        "causal": weigh_later_words(data, causal),
        "head_size": row(heads.head_dim),
        "own_key": row(count_own_matches()),
        **compute_softmax(),
        "skewness": row(measure_skewness()),
        "join_printed": row(heads.head_dim),
        "join": row(heads.out.in_features),
        "n_positions": POSITIONS,
        "learnable_printed": row(count_parameters(Learned(POSITIONS, paper.dim))),
        "learnable": row(count_parameters(Sinusoidal(paper.dim))),
    }


def count_own_matches() -> int:
    """How many of five words have a query that matches their own key best."""
    matrices = read_matrices("attention")
    words = read_words("attention")["words"]
    products = attention.compute_one_head(matrices["x"], words)["products"]
    return int((as_tensor(products).argmax(dim=1) == torch.arange(len(words))).sum())


def compute_softmax() -> Values:
    """A certain prediction after a second softmax, and its derivatives p (1 − p)."""
    values = machines_decoder.compute_softmax_twice()
    certain = as_tensor(values["certain_probs"])
    probs = as_tensor(values["softmax_again"])
    return {
        "twice_printed": as_tensor(values["losses"])[:, 2:],
        "twice": certain[:, 3:].log().abs(),
        "probs": probs,
        "gradient": probs * (1 - probs),
    }


def measure_skewness() -> Tensor:
    """The skewness of a normalized row: 0 if it were normally distributed."""
    normalized = as_tensor(norm.compute_values()["layer_norm"])[0]
    return (normalized / normalized.std(correction=0)).pow(3).mean()


def count_parameters(module: nn.Module) -> int:
    return sum(weights.numel() for weights in module.parameters())
