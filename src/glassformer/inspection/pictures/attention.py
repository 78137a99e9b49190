"""Plots of attention weights.

Shapes: h heads, t queries, s keys.
"""

from collections.abc import Sequence
from typing import Any

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.alignment import Alignment
from glassformer.inspection.draw import draw_lines, heat_map
from glassformer.inspection.traced_text import TracedText, attention_patterns, find_head


def attention(traced: TracedText, layer: int | str | None = None, head: int = 0) -> Any:
    """The attention weights of one head, as a heat map."""
    selected = find_head(traced, layer, head)
    return heat_map(
        selected.pattern,
        selected.rows,
        selected.columns,
        title=f"{selected.name}, {tr('head {n}', n=head)}",
        axis_names=(tr("query"), tr("key")),
    )


def lines(traced: TracedText, layer: int | str | None = None, head: int | Sequence[int] = 0) -> Any:
    """The attention weights of one head, or of several in colors, as lines from queries to keys."""
    chosen = [head] if isinstance(head, int) else head
    selected = [find_head(traced, layer, number) for number in chosen]
    name = selected[0].name
    rows = selected[0].rows
    columns = selected[0].columns
    chart, ax = subplots(figsize=(5, 0.32 * max(len(rows), len(columns)) + 1))
    for i, (number, one) in enumerate(zip(chosen, selected, strict=True)):
        draw_lines(ax, one.pattern, rows, columns, color=f"C{i}", offset=0.12 * i)
        if len(chosen) > 1:
            ax.plot([], [], color=f"C{i}", label=tr("head {n}", n=number))
    title = name if len(chosen) > 1 else f"{name}, {tr('head {n}', n=chosen[0])}"
    ax.set_title(tr("{name}: queries (left), keys (right)", name=title), fontsize=10)
    if len(chosen) > 1:
        ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(chosen))
    return chart


def heads(traced: TracedText) -> Any:
    """Small heat maps of the attention weights of every head in every layer."""
    patterns = attention_patterns(traced)
    n_heads = max(len(pattern) for pattern in patterns.values())
    size = (1.3 * n_heads + 0.8, 1.35 * len(patterns) + 0.6)
    chart, axes = subplots(len(patterns), n_heads, figsize=size, squeeze=False)
    for row, (name, pattern) in zip(axes, patterns.items(), strict=True):
        for head, ax in enumerate(row):
            ax.set(xticks=[], yticks=[])
            ax.imshow(pattern[head].float().cpu().numpy(), cmap="Blues", vmin=0, vmax=1)
        row[0].set_ylabel(name.removesuffix(".attention"), fontsize=8)
    for head, ax in enumerate(axes[0]):
        ax.set_title(tr("head {n}", n=head), fontsize=8)
    chart.suptitle(tr("attention weights: queries (rows), keys (columns)"), fontsize=9)
    return chart


def alignment(aligned: Alignment) -> Any:
    """The attention from each target token to the source."""
    return heat_map(
        aligned.pattern,
        aligned.target,
        aligned.source,
        title=tr("cross-attention, mean over heads"),
        axis_names=(tr("target"), tr("source")),
    )
