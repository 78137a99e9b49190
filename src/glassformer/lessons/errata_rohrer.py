"""Corrections of B. Rohrer's tutorial."""

import math

import torch

from glassformer.lessons import markov, thrones_decoder
from glassformer.lessons.lesson import Values, as_tensor
from glassformer.lessons.rows import row
from glassformer.lessons.thrones_network import DIM, TutorialTransformer
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Sinusoidal

WORD = torch.tensor([3.0, 4.0])  # an embedding
HIDDEN = 2 * DIM


@torch.no_grad()
def compute_values() -> Values:
    logits = as_tensor(thrones_decoder.compute_decoder(TutorialTransformer())["logits"])
    return {
        "one_hot": as_tensor(markov.compute_first_order()["word_products"])[:1, :2],
        **compute_positions(),
        "logits_printed": row(1),  # a one-hot vector has one number other than 0
        "logits": row(logits[0].count_nonzero()),
        **compute_optima(),
    }


def compute_positions() -> Values:
    """The length of a word's vector, rotated and with positions added, and how far it moves."""
    moved = WORD + Sinusoidal(len(WORD))(SequenceLayout(4, 4))
    return {
        "position_numbers": ["0", "1", "2", "3"],
        "positions_printed": WORD.norm().expand(1, 4),  # a rotation does not change the length
        "positions": moved.norm(dim=1)[None],
        "distances": (moved - WORD).norm(dim=1)[None],
    }


def compute_optima() -> Values:
    """How many weights of one layer compute the same: those with hidden features reordered."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = FeedForward(DIM, HIDDEN).double()
        x = torch.randn(3, DIM, dtype=torch.float64)
    before = layer(x)
    order = torch.arange(HIDDEN).flip(0)
    layer.up.weight.copy_(layer.up.weight[order])
    layer.up.bias.copy_(layer.up.bias[order])
    layer.down.weight.copy_(layer.down.weight[:, order])
    return {
        "hidden_features": HIDDEN,
        "optima_printed": row(1),
        "optima": row(math.factorial(HIDDEN)),
        "optima_difference": row((layer(x) - before).abs().max()),
    }
