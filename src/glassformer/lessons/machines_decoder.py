"""The decoder's part: who gives queries, keys and values, and why one softmax is enough."""

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.machines import embed_words
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import Attention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.trace import Trace

LARGE_INPUTS = (1.0, 10.0, 100.0)


def compute_values() -> Values:
    return {
        **read_words("machines_decoder"),
        "words": read_words("machines")["words"],
        "features": [f"f{i}" for i in range(4)],
        **compute_cross_attention(),
        **compute_softmax_twice(),
        **compute_softmax_slopes(),
    }


@torch.no_grad()
def compute_cross_attention() -> Values:
    decoder_x = read_matrices("machines_decoder")["decoder_x"]
    encoded = embed_words()
    layer = Attention(4, 1, head_dim=3, bias=False, out_bias=False).double()
    random = torch.Generator().manual_seed(1)
    for weights in layer.parameters():
        sample = torch.randn(weights.shape, dtype=torch.float64, generator=random)
        weights.copy_(sample.round(decimals=1))
    layout = SequenceLayout(len(decoder_x), len(encoded))
    with Trace(layer) as trace:
        output = layer(decoder_x[None], layout, source=encoded[None])[0]
    n_decoder = float(len(decoder_x))
    n_encoder = float(len(encoded))
    return {
        "decoder_x": decoder_x,
        "encoded": encoded,
        "mask": causal.matrix(len(decoder_x), len(decoder_x)).double(),
        "roles_printed": torch.tensor([[n_encoder, n_decoder, n_encoder]]),
        "roles": torch.tensor([[float(trace[name].shape[2]) for name in "qkv"]]),
        "w_q": layer.query.weight.T,
        "w_k": layer.key.weight.T,
        "w_v": layer.value.weight.T,
        "w_o": layer.out.weight.T,
        "cross_scores": trace["scores"][0, 0],
        "cross_pattern": trace["pattern"][0, 0],
        "cross_output": output,
    }


def compute_softmax_twice() -> Values:
    """The loss of logits, and of the probabilities that a first softmax makes of them."""
    certain = torch.eye(4, dtype=torch.float64)[3:]  # the last of four words
    logits, target = 10 * certain, torch.tensor([3])
    again = certain.softmax(dim=-1)
    losses = [F.cross_entropy(x, target) for x in (logits, logits.softmax(dim=-1), certain)]
    return {
        "sure_logits": logits,
        "losses": torch.stack(losses)[None],
        "certain_probs": certain,
        "softmax_again": again,
        "gradient_again": gradient_of_loss(certain, target),
        "gradient_once": gradient_of_loss(logits, target),
    }


@torch.enable_grad()
def gradient_of_loss(inputs: Tensor, target: Tensor) -> Tensor:
    inputs = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(inputs, target), inputs)
    return gradient


def compute_softmax_slopes() -> Values:
    """The derivatives of the softmax at [0, 0, 0, 1], and at larger last numbers."""
    inputs = torch.zeros(len(LARGE_INPUTS), 4, dtype=torch.float64)
    inputs[:, 3] = torch.tensor(LARGE_INPUTS)
    jacobians = [torch.func.jacrev(softmax)(x) for x in inputs]
    return {
        "softmax_of_inputs": softmax(inputs),
        "jacobian": jacobians[0],
        "own_slopes": torch.stack([jacobian[3, 3] for jacobian in jacobians])[None],
        "input_names": [f"[0, 0, 0, {x:.0f}]" for x in LARGE_INPUTS],
    }


def softmax(x: Tensor) -> Tensor:
    return x.softmax(dim=-1)
