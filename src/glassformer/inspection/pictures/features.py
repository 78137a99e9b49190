"""Plots of the features of tokens: their embeddings, and what the blocks make of them."""

from typing import Any

import torch

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.lens import read_lens
from glassformer.inspection.traced_text import TracedText
from glassformer.models.network import Network, Trait
from glassformer.text.tokenizer import Tokenizer


def residual(traced: TracedText) -> Any:
    """The norm of each block's output, and of the vectors its layers add to the residual stream."""
    blocks = [name for name in traced.trace if name.rpartition(".")[2].isdigit()]
    if not blocks:
        raise GlassError("this model has no blocks, so it has no residual stream to plot")

    def mean_norm(name: str) -> float:
        return float(traced.trace[name][0].float().norm(dim=-1).mean())

    chart, ax = subplots(figsize=(6.5, 3.6))
    for part, label in (("", tr("output of the block")), (".attention", tr("added by attention")),
                        (".feedforward", tr("added by feed-forward"))):  # fmt: skip
        names = [name for name in blocks if name + part in traced.trace]
        if names:
            ax.plot(names, [mean_norm(name + part) for name in names], "o-", label=label)
    ax.set_ylabel(tr("mean norm of a token's vector"))
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
    before = trace[residual_name]
    after = trace[f"{block}.{norm_name}"]
    chart, axes = subplots(1, 2, figsize=(9, 3.6))
    for ax, title, value in ((axes[0], tr("before"), before), (axes[1], tr("after"), after)):
        ax.boxplot(
            value[0].float().cpu().numpy().T,
            tick_labels=[*map(show_whitespace, traced.tokens_of(block))],
        )
        ax.tick_params(axis="x", rotation=60)
        ax.set_title(f"{title} {block}.{norm_name}", fontsize=9)
        ax.grid(axis="y", alpha=0.3)
    return chart


def lens(traced: TracedText, network: Network, tokenizer: Tokenizer) -> Any:
    """The logit lens: the model's prediction after each block, skipping the later ones."""
    found = read_lens(traced, network)
    blocks, grid = found.blocks, found.probs
    chart, ax = subplots(figsize=(0.8 * len(traced.tokens) + 1.5, 0.45 * len(blocks) + 1.4))
    ax.imshow(grid.cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(found.ids.tolist()):
        for j, token in enumerate(row):
            color = "white" if grid[i, j] > 0.6 else "black"
            name = show_whitespace(tokenizer.token(token))[:8]
            ax.text(j, i, name, ha="center", va="center", fontsize=8, color=color)
    ax.set_xticks(range(len(traced.tokens)), [*map(show_whitespace, traced.tokens)])
    ax.set_yticks(range(len(blocks)), blocks)
    what = tr("next token") if network.has(Trait.CACHED) else tr("token at each position")
    title = tr("most likely {what} after each block (darker: more probable)", what=what)
    ax.set_title(title, fontsize=10)
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
    share = f"{fraction:.0%}"
    ax.set_title(
        tr("embeddings in two dimensions ({share} of the variance)", share=share), fontsize=10
    )
    ax.grid(alpha=0.3)
    return chart
