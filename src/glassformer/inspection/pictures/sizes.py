"""The shape of every value on the way from tokens to predictions.

The network runs without data, on torch's device `meta`, so that shapes cost nothing.

Shapes: n tokens, N vocabulary.
"""

import copy
import math
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.pictures.canvas import LINE, LIT, Canvas
from glassformer.models.network import Network, PriorNetwork, Trait
from glassformer.models.translator import Translator
from glassformer.trace import Trace

TOKENS = 10
VALUES = {  # endings of names, with what the values are
    ".q": "queries, keys and values of each head",
    ".pattern": "attention weights of each head",
    ".head_outputs": "output of each head",
    ".attention": "heads joined and projected",
    ".hidden": "hidden size of the feed-forward layer",
    ".feedforward": "output of the feed-forward layer",
}


def shapes(network: Network | None = None) -> Any:
    """The shapes in a network, by default in the Transformer of the paper."""
    network = network or build_paper_network()
    rows = list_shapes(network)
    canvas = Canvas(11.6, 0.85 * len(rows) + 1.0, title_of(network))
    for i, (text, shape) in enumerate(rows):
        draw_shape(canvas, 0.85 * i + 0.95, text, shape)
        if i:
            canvas.arrow((4.6, 0.85 * i + 0.42), (4.6, 0.85 * i + 0.62))
    return canvas.figure


def build_paper_network() -> Network:
    with torch.device("meta"):
        return Translator(Translator.Config())


def title_of(network: Network) -> str:
    c = network.config
    sizes = (("n", TOKENS), ("N", getattr(c, "vocab", None)), ("d", getattr(c, "dim", None)),
             ("h", getattr(c, "heads", None)))  # fmt: skip
    return ", ".join(f"{name} = {size:,}" for name, size in sizes if size is not None)


def list_shapes(network: Network) -> list[tuple[str, tuple[int, ...]]]:
    """What the values in a forward pass are, with their shapes (without the batch)."""
    vocab, dim = (getattr(network.config, name, None) for name in ("vocab", "dim"))
    if vocab is None or dim is None or network.has(Trait.FITTED):
        raise GlassError("`shapes` needs a network that reads tokens")
    trace = trace_shapes(network)
    found: list[tuple[str, tuple[int, ...]]] = [(tr("one-hot rows of the tokens"), (TOKENS, vocab)),
             (tr("embeddings, plus positions"), (TOKENS, dim))]  # fmt: skip
    for ending, text in VALUES.items():
        names = [name for name in trace if name.endswith(ending)]
        if names:
            found.append((tr(text), tuple(trace[names[0]].shape[1:])))
    return [*found, (tr("logits, then probabilities"), tuple(trace["output"].shape[1:]))]


@torch.no_grad()
def trace_shapes(network: Network) -> Trace:
    """A trace of a forward pass without data, and without the prior, which looks numbers up."""
    empty = copy.deepcopy(network).to("meta").eval()
    if isinstance(empty, PriorNetwork):
        empty.remove_prior()
    ids = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    inputs: dict[str, Tensor] = {"ids": ids}
    if network.has(Trait.SEQ2SEQ):
        inputs["source"] = ids
    with Trace(empty) as trace:
        empty(**inputs)
    return trace


def draw_shape(canvas: Canvas, y: float, text: str, shape: tuple[int, ...]) -> None:
    """A bar for each head, as wide as the logarithm of the number of features."""
    *heads, _, features = shape
    count = heads[0] if heads else 1
    width = 0.42 * math.log2(max(features, 2))
    width *= 1 if count == 1 else 1.2 / count
    gap = 0.09 if count > 1 else 0.0
    left = 4.6 - (count * width + (count - 1) * gap) / 2
    for i in range(count):
        x = left + i * (width + gap) + width / 2
        canvas.box(x, y, width, height=0.36, colors=LIT if count > 1 else ("#dfe9f6", LINE))
    canvas.text(9.7, y - 0.1, " × ".join(f"{size:,}" for size in shape), size=10)
    canvas.text(9.7, y + 0.13, text, size=8.5, color="#555")
