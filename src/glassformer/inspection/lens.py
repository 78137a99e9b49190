"""The logit lens: what a model would predict after each block, skipping the later ones.

Shapes: t tokens, v vocabulary, n blocks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.inspection.traced_text import TracedText
from glassformer.models.network import Network
from glassformer.trace import Trace


@dataclass(frozen=True)
class Lens:
    """The most likely token after each block, at each position."""

    blocks: list[str]
    probs: Tensor  # n t
    ids: Tensor  # n t


@torch.inference_mode()
def read_lens(traced: TracedText, network: Network) -> Lens:
    """Predict from the output of each block, as if it were the output of the last."""
    is_single = len(network.stacks) == 1
    blocks = [n for n in traced.trace if is_single and n.rpartition(".")[0] == network.stacks[0]]
    if not blocks or traced.output.ndim != 2:
        raise GlassError(
            "the logit lens needs a model with one stack of blocks that predicts tokens"
        )
    probs, ids = [], []
    for block in blocks:
        with Trace(network, edit={blocks[-1]: traced.trace[block]}):
            best = network(**traced.inputs)[0].float().softmax(dim=-1).max(dim=-1)
        probs.append(best.values)
        ids.append(best.indices)
    return Lens(blocks, torch.stack(probs), torch.stack(ids))
