"""Plots of traced values and of inspection results."""

import re
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import animate, subplots
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.alignment import Alignment
from glassformer.inspection.heads import ATTENTION_STATS, HeadStats
from glassformer.inspection.patch import PatchResult
from glassformer.inspection.traced_text import TracedText, attention_patterns, find_head
from glassformer.models.network import Network, Trait
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

CELL_SIZE, LETTER_WIDTH = 0.42, 0.11  # inches
MAX_GRID_SIZE = 16.0  # inches
MAX_LABELED_COLUMNS = 24  # with more columns, cells have no numbers
FIGURE_SUFFIXES, ANIMATION_SUFFIXES = (".png", ".svg", ".pdf"), (".gif",)
QUERY_KEY = ("query", "key")


def heat_map(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    axis_names: tuple[str, str] = ("", ""),
    signed: bool = False,
) -> Any:
    """A heat map of values from 0 to 1, or, if signed, from -1 (red) to 1 (blue).

    `rows` and `columns` label the cells; `axis_names` name the vertical and horizontal axis.
    """
    rows, columns = ([*map(show_whitespace, names)] for names in (rows, columns))
    cell = min(CELL_SIZE, MAX_GRID_SIZE / max(len(columns), len(rows)))
    letter = LETTER_WIDTH * cell / CELL_SIZE
    longest_row, longest_column = max(map(len, rows)), max(map(len, columns))
    width = cell * len(columns) + letter * longest_row + 1.8
    chart, axes = subplots(figsize=(width, cell * len(rows) + letter * longest_column + 1.2))
    style: dict[str, Any] = {"cmap": "RdBu", "vmin": -1} if signed else {"cmap": "Blues", "vmin": 0}
    image = axes.imshow(values.float().cpu().numpy(), vmax=1, aspect="auto", **style)
    rotation, fontsize = 45 if longest_column > 3 else 0, 10 * cell / CELL_SIZE
    axes.set_xticks(range(len(columns)), columns, rotation=rotation, fontsize=fontsize)
    axes.set_yticks(range(len(rows)), rows, fontsize=fontsize)
    axes.xaxis.tick_top()
    axes.set(ylabel=axis_names[0], xlabel=axis_names[1])
    chart.colorbar(image, ax=axes, shrink=0.6)
    if len(columns) <= MAX_LABELED_COLUMNS:
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                label = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
                color = "white" if abs(value) > 0.6 else "black"
                if abs(value) >= 0.005:
                    axes.text(j, i, label, ha="center", va="center", fontsize=7, color=color)
    if title:
        chart.suptitle(textwrap.fill(title, round(width / LETTER_WIDTH)), fontsize=10)
    return chart


def heads_figure(report: Sequence[HeadStats]) -> Any:
    """What each head attends to, and the effect of ablating it."""
    names, missing = ATTENTION_STATS[:-1], float("nan")  # all but the distance
    rows = [[head.row()[name] for name in names] for head in report]
    fractions = torch.tensor([[missing if v is None else v for v in row] for row in rows])
    size = (9, 0.22 * len(report) + 1.6)
    chart, (left, middle, right) = subplots(1, 3, figsize=size, sharey=True, width_ratios=(3, 2, 2))
    image = left.imshow(fractions.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    left.set_xticks(range(len(names)), names, rotation=30, ha="right")
    left.set_yticks(range(len(report)), [head.title for head in report], fontsize=8)
    left.set_title("mean attention weight", fontsize=10)
    chart.colorbar(image, ax=left, fraction=0.05)
    distances = [head.distance or 0.0 for head in report]
    middle.barh(range(len(report)), distances, color="C2")
    middle.set_title("mean distance, tokens", fontsize=10)
    right.barh(range(len(report)), [head.cost for head in report], color="C1")
    right.set_title("effect of ablation, nats", fontsize=10)
    for ax in (middle, right):
        ax.grid(axis="x", alpha=0.3)
    return chart


def patch_figure(result: PatchResult) -> Any:
    """The fraction of the difference that each value recovers, at each token."""
    fractions = torch.stack(list(result.positions.values()))
    title = f"{result.answers[0]!r} vs. {result.answers[1]!r}: fraction recovered by each value"
    return heat_map(fractions, list(result.positions), result.tokens, title=title, signed=True)


def save(chart: Any, file: Path) -> None:
    """Write a figure or an animation to a file; its suffix is the format."""
    is_animation = not hasattr(chart, "savefig")
    suffixes = ANIMATION_SUFFIXES if is_animation else FIGURE_SUFFIXES
    if file.suffix not in suffixes:
        raise GlassError(f"{file}: this plot can be written as {' or '.join(suffixes)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing glyphs: an .svg contains the text itself
        chart.save(file, writer="pillow", dpi=100) if is_animation else chart.savefig(file, dpi=130)
    if chart.missing:
        characters = "".join(sorted(chart.missing))[:20]
        message = tr(
            "{file}: no installed font has {characters}; drawn as code points instead. For "
            "Chinese, install Noto Sans CJK",
            file=file,
            characters=characters,
        )
        warnings.warn(message, stacklevel=2)


# --- one text's forward pass ----------------------------------------------------------------------


def attention(traced: TracedText, layer: int | str | None = None, head: int = 0) -> Any:
    """The attention weights of one head, as a heat map."""
    selected = find_head(traced, layer, head)
    title = f"{selected.name}, head {head}"
    return heat_map(
        selected.pattern, selected.rows, selected.columns, title=title, axis_names=QUERY_KEY
    )


def lines(traced: TracedText, layer: int | str | None = None, head: int = 0) -> Any:
    """The attention weights of one head, as lines from queries to keys."""
    selected = find_head(traced, layer, head)
    rows, columns = selected.rows, selected.columns
    chart, ax = subplots(figsize=(5, 0.32 * max(len(rows), len(columns)) + 1))
    draw_lines(ax, selected.pattern, rows, columns)
    ax.set_title(f"{selected.name}, head {head}: queries (left), keys (right)", fontsize=10)
    return chart


def draw_lines(ax: Any, pattern: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Draw lines from query tokens on the left to key tokens on the right, darker for larger
    weights."""
    for i, row in enumerate(pattern.tolist()):
        for j, weight in enumerate(row):
            if weight > 0.02:
                ax.plot((0, 1), (-i, -j), color="C0", alpha=min(weight, 1.0), linewidth=2)
    for x, tokens, side in ((-0.03, rows, "right"), (1.03, columns, "left")):
        for i, token in enumerate(tokens):
            ax.text(x, -i, show_whitespace(token), ha=side, va="center", fontsize=9)
    ax.set(xlim=(-0.5, 1.5), ylim=(-max(len(rows), len(columns)) + 0.5, 0.5))
    ax.axis("off")


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
        ax.set_title(f"head {head}", fontsize=8)
    chart.suptitle("attention weights: queries (rows), keys (columns)", fontsize=9)
    return chart


def residual(traced: TracedText) -> Any:
    """The norm of each block's output, and of the vectors its layers add to the residual stream."""
    blocks = [name for name in traced.trace if name.rpartition(".")[2].isdigit()]
    if not blocks:
        raise GlassError("this model has no blocks, so it has no residual stream to plot")

    def mean_norm(name: str) -> float:
        return float(traced.trace[name][0].float().norm(dim=-1).mean())

    chart, ax = subplots(figsize=(6.5, 3.6))
    for part, label in (("", "output of the block"), (".attention", "added by attention"),
                        (".feedforward", "added by feed-forward")):  # fmt: skip
        names = [name for name in blocks if name + part in traced.trace]
        if names:
            ax.plot(names, [mean_norm(name + part) for name in names], "o-", label=label)
    ax.set_ylabel("mean norm of a token's vector")
    ax.tick_params(axis="x", rotation=30)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return chart


def norm(traced: TracedText, layer: int | str = 0) -> Any:
    """The features of each token before and after a norm."""
    trace = traced.trace
    names = [n for n in trace if n.endswith(("attention_norm", "feedforward_norm"))]
    blocks = list(dict.fromkeys(n.rpartition(".")[0] for n in names))
    if not blocks:
        raise GlassError("this model has no attention or feed-forward norms to plot")
    matches = [name for name in blocks if name == layer or f".{layer}." in f".{name}."]
    if not matches:
        raise GlassError(f"there is no norm in block {layer}; available: {', '.join(blocks)}")
    block = matches[0]
    residual_name = f"{block}.attention_residual"
    order = [n for n in trace.order if n in (f"{block}.attention_norm", residual_name)]
    norm_name = "attention_norm" if order[0] == residual_name else "feedforward_norm"
    before, after = trace[residual_name], trace[f"{block}.{norm_name}"]
    chart, axes = subplots(1, 2, figsize=(9, 3.6))
    for ax, title, value in ((axes[0], "before", before), (axes[1], "after", after)):
        ax.boxplot(
            value[0].float().cpu().numpy().T,
            tick_labels=[*map(show_whitespace, traced.tokens_of(block))],
        )
        ax.tick_params(axis="x", rotation=60)
        ax.set_title(f"{title} {block}.{norm_name}", fontsize=9)
        ax.grid(axis="y", alpha=0.3)
    return chart


@torch.inference_mode()
def lens(traced: TracedText, network: Network, tokenizer: Tokenizer) -> Any:
    """The logit lens: the model's prediction after each block, skipping the later ones."""
    (stack, *others) = network.stacks or ("",)
    blocks = [] if others else [n for n in traced.trace if n.rpartition(".")[0] == stack]
    if not blocks or traced.output.ndim != 2:
        raise GlassError(
            "the logit lens needs a model with one stack of blocks that predicts tokens"
        )
    probs, predictions = [], []
    for block in blocks:
        with Trace(network, edit={blocks[-1]: traced.trace[block]}):
            best = network(**traced.inputs)[0].float().softmax(dim=-1).max(dim=-1)
        probs.append(best.values)
        predictions.append([tokenizer.token(int(i)) for i in best.indices])
    grid = torch.stack(probs)
    chart, ax = subplots(figsize=(0.8 * len(traced.tokens) + 1.5, 0.45 * len(blocks) + 1.4))
    ax.imshow(grid.cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(predictions):
        for j, token in enumerate(row):
            color = "white" if grid[i, j] > 0.6 else "black"
            ax.text(
                j, i, show_whitespace(token)[:8], ha="center", va="center", fontsize=8, color=color
            )
    ax.set_xticks(range(len(traced.tokens)), [*map(show_whitespace, traced.tokens)])
    ax.set_yticks(range(len(blocks)), blocks)
    what = "next token" if network.has(Trait.CACHED) else "token at each position"
    ax.set_title(f"most likely {what} after each block (darker: more probable)", fontsize=10)
    return chart


def words(traced: TracedText, network: Network) -> Any:
    """The embeddings of the text's tokens, in their first two principal components."""
    has_source = bool(traced.source)  # if so, plot the source tokens
    modules = dict(network.named_modules())
    tables = [name for name in network.embeddings if name in modules and name.endswith("token")]
    if not tables:
        raise GlassError("this model has no embeddings")
    table: Any = modules[tables[-1] if has_source else tables[0]]
    ids = traced.inputs["source" if has_source else "ids"][0].tolist()
    tokens = traced.source if has_source else traced.tokens
    names = list(dict.fromkeys(zip(tokens, ids, strict=True)))
    rows = table.weight.detach().float()[[i for _, i in names]]
    rows = rows - rows.mean(dim=0)
    if len(rows) < 3:
        raise GlassError(f"the text needs at least three different tokens, got {len(rows)}")
    u, s, _ = torch.linalg.svd(rows, full_matrices=False)
    x, y = (u * s)[:, :2].T.cpu().numpy()
    chart, ax = subplots(figsize=(6, 5))
    ax.scatter(x, y, s=12)
    for (name, _), a, b in zip(names, x, y, strict=True):
        ax.annotate(show_whitespace(name), (a, b), textcoords="offset points", xytext=(4, 3))
    fraction = float((s[:2] ** 2).sum() / (s**2).sum())
    ax.set_title(f"embeddings in two dimensions ({fraction:.0%} of the variance)", fontsize=10)
    ax.grid(alpha=0.3)
    return chart


def alignment(aligned: Alignment) -> Any:
    """The attention from each target token to the source."""
    title = "cross-attention, mean over heads"
    axis_names = ("target", "source")
    return heat_map(
        aligned.pattern, aligned.target, aligned.source, title=title, axis_names=axis_names
    )


def unfolding(aligned: Alignment) -> Any:
    """An animation of a translation: each token with its attention to the source."""
    length = max(len(aligned.source), len(aligned.target))
    chart, ax = subplots(figsize=(5, 0.36 * length + 1))

    def draw(step: int) -> None:
        ax.clear()
        draw_lines(ax, aligned.pattern[: step + 1], aligned.target[: step + 1], aligned.source)
        ax.set_ylim(-length + 0.5, 0.5)

    return animate(chart, draw, len(aligned.target))
