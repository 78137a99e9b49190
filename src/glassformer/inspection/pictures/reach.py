"""Plots of networks that read further or deeper than others: memory and number of steps.

Shapes: t tokens, s keys, h heads, n steps.
"""

from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.draw import heat_map
from glassformer.inspection.traced_text import TracedText
from glassformer.models.network import Network, Trait
from glassformer.trace import Trace


def halting(traced: TracedText, layer: int | str | None = None) -> Any:
    """How much each step counts in the output of each token of a Universal Transformer."""
    loops = [name.removesuffix(".n_steps") for name in traced.trace if name.endswith(".n_steps")]
    if not loops:
        raise GlassError(
            "this model does not choose its number of steps: train one with --model universal"
        )
    if layer is not None and layer not in loops:
        raise GlassError(f"there is no loop {layer!r}; available: {', '.join(loops)}")
    name = loops[-1] if layer is None else str(layer)
    weights = torch.stack(traced.trace.visits[f"{name}.weight"])[:, 0]  # n t
    mean = float(traced.trace[f"{name}.n_steps"].mean())
    return heat_map(
        weights,
        [f"{n}" for n in range(1, len(weights) + 1)],
        traced.tokens_of(name),
        title=tr(
            "{name}: weight of each step in the output; {mean} steps on average",
            name=name,
            mean=f"{mean:.2f}",
        ),
        axis_names=(tr("step"), ""),
    )


def memory(traced: TracedText, network: Network) -> Any:
    """Attention of each token to its segment and to the memory before it, in each layer."""
    if not network.has(Trait.SEGMENT_MEMORY):
        raise GlassError("this model has no memory: train one with --model transformer_xl")
    ids, size = traced.inputs["ids"], network.context or 1
    length = ids.shape[1]
    if length <= size:
        raise GlassError(
            f"the text has {length} tokens, which is not more than the {size} of one segment: use "
            "a longer text"
        )
    patterns = read_segments(network, ids, size)
    chart, axes = subplots(1, len(patterns), figsize=(3.6 * len(patterns) + 0.6, 4), squeeze=False)
    for ax, (name, pattern) in zip(axes[0], patterns.items(), strict=True):
        image = ax.imshow(pattern.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)
        for start in range(size, length, size):
            ax.axhline(start - 0.5, color="C1", linewidth=0.8)
            ax.axvline(start - 0.5, color="C1", linewidth=0.8)
        past = float(sum(pattern[i, : i // size * size].sum() for i in range(size, length)))
        share = f"{past / (length - size):.0%}"
        ax.set_title(tr("{name}: {share} on the memory", name=name, share=share), fontsize=9)
        ax.set(xlabel=tr("key"), ylabel=tr("query"))
    chart.colorbar(image, ax=list(axes[0]), shrink=0.6, label=tr("√ of the attention weight"))
    title = tr("segments of {size} tokens, attention weights (mean of the heads)", size=size)
    chart.suptitle(title, fontsize=10)
    return chart


@torch.no_grad()
def read_segments(network: Network, ids: Tensor, size: int) -> dict[str, Tensor]:
    """The attention weights of each layer, averaged over heads, with all tokens as keys: t t."""
    length = ids.shape[1]
    patterns: dict[str, Tensor] = {}
    for segment, start in enumerate(range(0, length, size)):
        chunk = ids[:, start : start + size]
        with Trace(network, "*.pattern") as trace:
            stream = torch.zeros(1, dtype=torch.long, device=ids.device)
            network(chunk, streams=stream, segment=stream + segment)
        for name, value in trace.items():
            pattern = value[0].mean(dim=0).float().cpu()  # t s
            end = start + chunk.shape[1]
            whole = patterns.setdefault(name.removesuffix(".pattern"), torch.zeros(length, length))
            whole[start:end, end - pattern.shape[1] : end] = pattern
    return patterns
