"""Pictures of what a trace holds: tensors in, a figure out."""

import re
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import moving, subplots
from glassformer.core.i18n import show_whitespace
from glassformer.inspection.alignment import Alignment
from glassformer.inspection.heads import ATTENTION_TARGETS, HeadStats
from glassformer.inspection.patch import PatchResult
from glassformer.inspection.traced_text import TracedText, attention_patterns, find_head
from glassformer.models.network import Network, Trait
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

SIDE, LETTER = 0.42, 0.11  # inches of a cell, and of a letter
WRITTEN = 24  # columns, up to which each cell has its number
LARGEST = 16.0  # inches, at most, of a grid
STILL, MOVING = (".png", ".svg", ".pdf"), (".gif",)  # the files that a picture can be written as
READS = ("reads (row)", "is read (column)")


def heat_map(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    sides: tuple[str, str] = ("", ""),
    signed: bool = False,
) -> Any:
    """A grid of shares, darker where they are larger, or, signed, blue above 0 and red below."""
    rows, columns = ([*map(show_whitespace, names)] for names in (rows, columns))
    cell = min(SIDE, LARGEST / max(len(columns), len(rows)))
    letter = LETTER * cell / SIDE
    beside, above = max(map(len, rows)), max(map(len, columns))
    size = (cell * len(columns) + letter * beside + 1.8, cell * len(rows) + letter * above + 1.2)
    chart, axes = subplots(figsize=size)
    look: dict[str, Any] = {"cmap": "RdBu", "vmin": -1} if signed else {"cmap": "Blues", "vmin": 0}
    image = axes.imshow(values.float().cpu().numpy(), vmax=1, aspect="auto", **look)
    small = 10 * cell / SIDE
    axes.set_xticks(range(len(columns)), columns, rotation=45 if above > 3 else 0, fontsize=small)
    axes.set_yticks(range(len(rows)), rows, fontsize=small)
    axes.xaxis.tick_top()
    axes.set(ylabel=sides[0], xlabel=sides[1])
    chart.colorbar(image, ax=axes, shrink=0.6)
    if len(columns) <= WRITTEN:
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                said = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
                color = "white" if abs(value) > 0.6 else "black"
                if abs(value) >= 0.005:
                    axes.text(j, i, said, ha="center", va="center", fontsize=7, color=color)
    if title:
        chart.suptitle(textwrap.fill(title, round(size[0] / LETTER)), fontsize=10)
    return chart


def role_map(measure_heads: Sequence[HeadStats]) -> Any:
    """Where each head looks, and what it costs to switch it off."""
    names, nothing = ATTENTION_TARGETS[:-1], float("nan")
    found = [[role.row()[name] for name in names] for role in measure_heads]
    shares = torch.tensor([[nothing if share is None else share for share in r] for r in found])
    size = (9, 0.22 * len(measure_heads) + 1.6)
    chart, (left, middle, right) = subplots(1, 3, figsize=size, sharey=True, width_ratios=(3, 2, 2))
    image = left.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    left.set_xticks(range(len(names)), names, rotation=30, ha="right")
    left.set_yticks(range(len(measure_heads)), [role.title for role in measure_heads], fontsize=8)
    left.set_title("share of attention", fontsize=10)
    chart.colorbar(image, ax=left, fraction=0.05)
    far = [role.distance or 0.0 for role in measure_heads]
    middle.barh(range(len(measure_heads)), far, color="C2")
    middle.set_title("how far it looks, tokens", fontsize=10)
    right.barh(range(len(measure_heads)), [role.cost for role in measure_heads], color="C1")
    right.set_title("cost of its silence, nats", fontsize=10)
    for ax in (middle, right):
        ax.grid(axis="x", alpha=0.3)
    return chart


def patch_map(found: PatchResult) -> Any:
    """How much of a difference each value brings back, at each token."""
    shares = torch.stack(list(found.positions.values()))
    title = f"{found.answers[0]!r} rather than {found.answers[1]!r}: what each value brings back"
    return heat_map(shares, list(found.positions), found.tokens, title=title, signed=True)


def save(chart: Any, file: Path) -> None:
    """Write a figure, or an animation, into a file whose name says its kind."""
    moves = not hasattr(chart, "savefig")
    kinds = MOVING if moves else STILL
    if file.suffix not in kinds:
        raise GlassError(f"{file}: this picture is written as {' or '.join(kinds)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in .svg a text stays a text, for whoever has the font
        chart.save(file, writer="pillow", dpi=100) if moves else chart.savefig(file, dpi=130)
    if chart.missing:
        signs = "".join(sorted(chart.missing))[:20]
        warnings.warn(
            f"{file}: no installed font has {signs}, shown by number; Noto Sans CJK has Chinese",
            stacklevel=2,
        )


# --- of one text's way through a model ------------------------------------------------------------


def attention(traced: TracedText, layer: int | str | None = None, head: int = 0) -> Any:
    """What each token (row) reads from which, as a heat map."""
    one = find_head(traced, layer, head)
    title = f"{one.name}, head {head}"
    return heat_map(one.pattern, one.rows, one.columns, title=title, sides=READS)


def lines(traced: TracedText, layer: int | str | None = None, head: int = 0) -> Any:
    """The same as lines from reader to read, the stronger the darker."""
    one = find_head(traced, layer, head)
    chart, ax = subplots(figsize=(5, 0.32 * max(len(one.rows), len(one.columns)) + 1))
    between(ax, one.pattern, one.rows, one.columns)
    ax.set_title(f"{one.name}, head {head}: reads (left), is read (right)", fontsize=10)
    return chart


def between(ax: Any, pattern: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Lines from tokens on the left to those that they read, on the right."""
    for i, row in enumerate(pattern.tolist()):
        for j, share in enumerate(row):
            if share > 0.02:
                ax.plot((0, 1), (-i, -j), color="C0", alpha=min(share, 1.0), linewidth=2)
    for x, tokens, side in ((-0.03, rows, "right"), (1.03, columns, "left")):
        for i, token in enumerate(tokens):
            ax.text(x, -i, show_whitespace(token), ha=side, va="center", fontsize=9)
    ax.set(xlim=(-0.5, 1.5), ylim=(-max(len(rows), len(columns)) + 0.5, 0.5))
    ax.axis("off")


def heads(traced: TracedText) -> Any:
    """Every head of every layer, small."""
    found = attention_patterns(traced)
    many = max(len(pattern) for pattern in found.values())
    size = (1.3 * many + 0.8, 1.35 * len(found) + 0.6)
    chart, axes = subplots(len(found), many, figsize=size, squeeze=False)
    for row, (name, pattern) in zip(axes, found.items(), strict=True):
        for head, ax in enumerate(row):
            ax.set(xticks=[], yticks=[])
            ax.imshow(pattern[head].float().cpu().numpy(), cmap="Blues", vmin=0, vmax=1)
        row[0].set_ylabel(name.removesuffix(".attention"), fontsize=8)
    for head, ax in enumerate(axes[0]):
        ax.set_title(f"head {head}", fontsize=8)
    chart.suptitle("each row reads the columns that are dark", fontsize=9)
    return chart


def residual(traced: TracedText) -> Any:
    """How large what each block says is, and what its layers add to it."""
    blocks = [name for name in traced.trace if name.rpartition(".")[2].isdigit()]
    if not blocks:
        raise GlassError("this model has no blocks whose outputs could be measured")

    def size(name: str) -> float:
        return float(traced.trace[name][0].float().norm(dim=-1).mean())

    chart, ax = subplots(figsize=(6.5, 3.6))
    for part, label in (("", "what the block says"), (".attention", "attention adds"),
                        (".feedforward", "feed-forward adds")):  # fmt: skip
        there = [name for name in blocks if name + part in traced.trace]
        if there:
            ax.plot(there, [size(name + part) for name in there], "o-", label=label)
    ax.set_ylabel("mean length of a token's vector")
    ax.tick_params(axis="x", rotation=30)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return chart


def norm(traced: TracedText, layer: int | str = 0) -> Any:
    """The numbers of each token before and after a norm."""
    trace = traced.trace
    names = [n for n in trace if n.endswith(("attention_norm", "feedforward_norm"))]
    blocks = list(dict.fromkeys(n.rpartition(".")[0] for n in names))
    if not blocks:
        raise GlassError("this model has no norms around attention to draw")
    here = [name for name in blocks if name == layer or f".{layer}." in f".{name}."]
    if not here:
        raise GlassError(f"there are norms in {', '.join(blocks)}, not in {layer}")
    block = here[0]
    added = f"{block}.attention_residual"
    order = [n for n in trace.order if n in (f"{block}.attention_norm", added)]
    which = "attention_norm" if order[0] == added else "feedforward_norm"
    before, after = trace[added], trace[f"{block}.{which}"]
    chart, axes = subplots(1, 2, figsize=(9, 3.6))
    for ax, title, value in ((axes[0], "before", before), (axes[1], "after", after)):
        ax.boxplot(
            value[0].float().cpu().numpy().T,
            tick_labels=[*map(show_whitespace, traced.tokens_of(block))],
        )
        ax.tick_params(axis="x", rotation=60)
        ax.set_title(f"{title} {block}.{which}", fontsize=9)
        ax.grid(axis="y", alpha=0.3)
    return chart


@torch.inference_mode()
def lens(traced: TracedText, network: Network, tokenizer: Tokenizer) -> Any:
    """What the model would answer after each block: the others are left out."""
    (stack, *others) = network.stacks or ("",)
    blocks = [] if others else [n for n in traced.trace if n.rpartition(".")[0] == stack]
    if not blocks or traced.output.ndim != 2:
        raise GlassError("a lens needs blocks one after the other, and tokens as answers")
    probs, said = [], []
    for block in blocks:
        with Trace(network, edit={blocks[-1]: traced.trace[block]}):
            shares = network(**traced.inputs)[0].float().softmax(dim=-1)
        best = shares.max(dim=-1)
        probs.append(best.values)
        said.append([tokenizer.token(int(i)) for i in best.indices])
    grid = torch.stack(probs)
    chart, ax = subplots(figsize=(0.8 * len(traced.tokens) + 1.5, 0.45 * len(blocks) + 1.4))
    ax.imshow(grid.cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(said):
        for j, token in enumerate(row):
            color = "white" if grid[i, j] > 0.6 else "black"
            ax.text(
                j, i, show_whitespace(token)[:8], ha="center", va="center", fontsize=8, color=color
            )
    ax.set_xticks(range(len(traced.tokens)), [*map(show_whitespace, traced.tokens)])
    ax.set_yticks(range(len(blocks)), blocks)
    what = "next token" if network.has(Trait.CACHED) else "token in each place"
    ax.set_title(f"the likeliest {what} after each block (darker: surer)", fontsize=10)
    return chart


def words(traced: TracedText, network: Network) -> Any:
    """The text's tokens in the two directions in which their embeddings differ most."""
    read = bool(traced.source)  # of a translator, what it reads
    tables = dict(network.named_modules())
    named = [name for name in network.embeddings if name in tables and name.endswith("token")]
    if not named:
        raise GlassError("this model only counts: it has no embeddings")
    token: Any = tables[named[-1] if read else named[0]]
    ids = traced.inputs["source" if read else "ids"][0].tolist()
    tokens = traced.source if read else traced.tokens
    names = list(dict.fromkeys(zip(tokens, ids, strict=True)))
    rows = token.weight.detach().float()[[i for _, i in names]]
    rows = rows - rows.mean(dim=0)
    if len(rows) < 3:
        raise GlassError("name a text of at least three different tokens")
    u, s, _ = torch.linalg.svd(rows, full_matrices=False)
    x, y = (u * s)[:, :2].T.cpu().numpy()
    chart, ax = subplots(figsize=(6, 5))
    ax.scatter(x, y, s=12)
    for (name, _), a, b in zip(names, x, y, strict=True):
        ax.annotate(show_whitespace(name), (a, b), textcoords="offset points", xytext=(4, 3))
    share = float((s[:2] ** 2).sum() / (s**2).sum())
    ax.set_title(f"embeddings in two dimensions ({share:.0%} of their spread)", fontsize=10)
    ax.grid(alpha=0.3)
    return chart


def alignment(found: Alignment) -> Any:
    """What each token of a translation read of its source."""
    title = "what each token of the translation read, the mean of all heads"
    return heat_map(found.pattern, found.target, found.source, title=title, sides=READS)


def unfolding(found: Alignment) -> Any:
    """A translation that grows a token at a time, each with what it reads: an animation."""
    most = max(len(found.source), len(found.target))
    chart, ax = subplots(figsize=(5, 0.36 * most + 1))

    def draw(step: int) -> None:
        ax.clear()
        between(ax, found.pattern[: step + 1], found.target[: step + 1], found.source)
        ax.set_ylim(-most + 0.5, 0.5)

    return moving(chart, draw, len(found.target))
