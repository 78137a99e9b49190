"""The code blocks of two tutorials, next to corrected versions that equal Glassformer's layers."""

import inspect
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.lessons import corrected
from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.models import classifier
from glassformer.nn.attention import Attention, PlainAttention, attend
from glassformer.nn.block import Block, post_norm
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal, full
from glassformer.trace import Trace

DIM, HEADS = 8, 4
KEEP = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])  # the second text has padding: b t
HEAD_DIM = 64  # of the products


@torch.no_grad()
def compute_values() -> Values:
    printed = read_matrices("code")
    runs = printed["blocks"][:-1, 0]  # the last block is from the other tutorial
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            **printed,
            **read_words("code"),
            "n_blocks": len(runs),
            "n_failing": int((runs == 0).sum()),
            **compare_plain(),
            **compare_attention(),
            **compare_block(),
            **compare_classifier(),
            **compare_softmax(),
        }


def compare_plain() -> Values:
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    with Trace(layer := PlainAttention()) as trace:
        output = layer(x, layout_of(x))
    scores = corrected.score(x)
    weights = corrected.normalize(scores)
    return {
        "score": read_source(corrected.score),
        "score_difference": difference(scores, trace["scores"][:, 0]),
        "normalize": read_source(corrected.normalize),
        "normalize_difference": difference(weights, trace["pattern"][:, 0]),
        "mix": read_source(corrected.mix),
        "mix_difference": difference(corrected.mix(weights, x), output),
    }


def compare_attention() -> Values:
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    cls = corrected.SelfAttention
    mine, ours = make_attention(full)
    with Trace(ours) as trace:
        output = ours(x, layout_of(x))
    projected = mine.project(x)
    folded = torch.stack([mine.fold(y) for y in projected])  # q, k and v
    masked, ours_masked = make_attention(causal)
    with Trace(ours_masked) as masked_trace:
        ours_masked(x, layout_of(x))
    q, k, _ = (masked.fold(y) for y in masked.project(x))
    shown: dict[str, Callable[..., Any]] = {
        "init": cls.__init__, "project": cls.project, "fold": cls.fold, "weigh": cls.weigh,
        "hide": cls.hide, "forward": cls.forward,
    }  # fmt: skip
    traced = torch.stack([trace[name] for name in "qkv"])  # 3 b h t e
    return {
        **{name: read_source(method) for name, method in shown.items()},
        "project_difference": difference(torch.stack(projected), traced.transpose(2, 3)),
        "fold_difference": difference(folded, traced.flatten(1, 2)),
        "weigh_difference": difference(
            mine.weigh(folded[0], folded[1], mine.hide(x)), trace["pattern"].flatten(0, 1)
        ),
        "hide_difference": difference(
            masked.weigh(q, k, masked.hide(x)), masked_trace["pattern"].flatten(0, 1)
        ),
        "forward_difference": difference(mine(x), output),
    }


def make_attention(mask: Mask) -> tuple[corrected.SelfAttention, Attention]:
    """The corrected layer and ours, with the same weights."""
    mine = corrected.SelfAttention(DIM, HEADS, mask=mask is causal).double()
    ours = Attention(DIM, HEADS, mask=mask, bias=False).double()
    return mine, copy_weights(mine, ours)


def compare_block() -> Values:
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    mine = corrected.TransformerBlock(DIM, HEADS).double()
    attention = Attention(DIM, HEADS, bias=False)
    feedforward = FeedForward(DIM, 4 * DIM, activation=F.relu)
    ours = copy_weights(mine, Block(DIM, attention, feedforward, residual=post_norm).double())
    return {
        "block": read_source(corrected.TransformerBlock),
        "block_difference": difference(mine(x), ours(x, layout_of(x))),
    }


def compare_classifier() -> Values:
    sizes = {"heads": HEADS, "depth": 2, "context": 6, "vocab": 9, "classes": 3}
    ids = torch.randint(9, KEEP.shape)
    mine = corrected.Classifier(DIM, **sizes).double()
    config = classifier.Config(dim=DIM, **sizes)
    ours = copy_weights(mine, classifier.Classifier(config).double()).eval()
    log_probs = ours.classify(ids, KEEP).log_softmax(dim=1)
    return {
        "classifier": read_source(corrected.Classifier),
        "classifier_difference": difference(mine(ids, KEEP), log_probs),
    }


def compare_softmax() -> Values:
    """The weights of two keys: their values are one-hot, so that the output is the weights."""
    products = read_matrices("machines")["printed_products"]
    q = products.new_zeros(1, 1, 1, HEAD_DIM)
    k = products.new_zeros(1, 1, 2, HEAD_DIM)
    q[..., 0], k[..., 0] = 1, products
    scaled = attend(q, k, torch.eye(2, dtype=torch.float64)[None, None])[0, 0, 0]
    weights = corrected.compare_scaling(products[0], HEAD_DIM)
    return {
        "scaling": read_source(corrected.compare_scaling),
        "softmax_weights": weights,
        "scaling_difference": difference(weights[1], scaled),
    }


def layout_of(x: Tensor) -> SequenceLayout:
    return SequenceLayout(x.shape[1], x.shape[1])


def copy_weights(source: nn.Module, target: Any) -> Any:
    """The target with the weights of the source; they must have the same names."""
    target.load_state_dict(source.state_dict())
    return target


def difference(value: Tensor, expected: Tensor) -> Tensor:
    """The largest difference of two tensors of the same shape, as a matrix."""
    if value.shape != expected.shape:
        raise ValueError(f"expected shape {tuple(expected.shape)}, got {tuple(value.shape)}")
    return (value - expected).abs().max()[None, None]


def read_source(function: Callable[..., Any] | type) -> str:
    return dedent(inspect.getsource(function)).rstrip()
