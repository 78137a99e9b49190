"""What all five tutorials leave out.

Shapes: t tokens, d features, v vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.rows import row
from glassformer.models.translator import Config, Translator
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, Residual, post_norm, pre_norm
from glassformer.nn.dropout import drop
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.init import xavier
from glassformer.nn.labels import label_loss
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Sinusoidal
from glassformer.tasks import TASKS
from glassformer.training.settings import TrainingSettings, lr_at

PAPER = Config()  # the sizes of the paper
WORDS, DEPTH, SMOOTHING = 5, 12, 0.1  # the smoothing is the paper's
STEPS, FRACTIONS = 1000, (0, 0.05, 0.1, 0.5, 1)  # of a training


def compute_values() -> Values:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            **compute_embedding_scale(),
            **compute_dropout(),
            **compute_smoothing(),
            **compute_warmup(),
            **compute_tying(),
            "depth": DEPTH,
            "norms": row(measure_growth(post_norm), measure_growth(pre_norm)),
        }


@torch.no_grad()
def compute_embedding_scale() -> Values:
    """How much larger the embedded words are than the rows of the embedding."""
    network = Translator(Config(vocab=WORDS, dim=PAPER.dim, depth=1, hidden=8)).eval()
    ids = torch.arange(WORDS)[None]
    layout = SequenceLayout(WORDS, WORDS)
    words = network.embed(network.token, ids, layout) - Sinusoidal(PAPER.dim)(layout)
    return {"paper_dim": PAPER.dim, "scale": row(words.norm() / network.token.weight.norm())}


def compute_dropout() -> Values:
    """The fraction of 0 among many ones after dropout, and what the others become."""
    ones = drop(torch.ones(100_000), PAPER.dropout)
    return {
        "dropout": PAPER.dropout,
        "dropped": row((ones == 0).double().mean(), ones.max()),
    }


def compute_smoothing() -> Values:
    """The targets that a smoothed loss compares with: the softmax minus the loss's gradient."""
    logits = torch.zeros(1, WORDS, dtype=torch.float64, requires_grad=True)
    loss = label_loss(logits, torch.tensor([0]), label_smoothing=SMOOTHING)
    (gradient,) = torch.autograd.grad(loss, logits)
    return {"smoothing": SMOOTHING, "smoothed": logits.detach().softmax(dim=1) - gradient}


def compute_warmup() -> Values:
    """The learning rate of a translator along a training, as a fraction of its peak."""
    settings = TrainingSettings(lr=1.0, warmup=TASKS["translate"].train_settings["warmup"])
    return {
        "fractions": [f"{fraction:.0%}" for fraction in FRACTIONS],
        "warmup": row(*(lr_at(fraction * STEPS, STEPS, settings) for fraction in FRACTIONS)),
    }


def compute_tying() -> Values:
    """The parameters of a translator of the paper's size, and those that tying saves."""
    with torch.device("meta"):
        network = Translator(PAPER)
    total = sum(weights.numel() for weights in network.parameters())
    return {"tying": row(total, network.token.weight.numel())}


@torch.no_grad()
def measure_growth(residual: Residual) -> Tensor:
    """The standard deviation of the features after many blocks, for an input with 1."""
    dim, heads = 64, 4
    x = torch.randn(1, 16, dim)
    layout = SequenceLayout(16, 16)
    for _ in range(DEPTH):
        block = Block(
            dim,
            Attention(dim, heads),
            FeedForward(dim, 4 * dim, activation=F.relu),
            residual=residual,
        )
        xavier(block)
        x = block(x, layout)
    return x.std()
