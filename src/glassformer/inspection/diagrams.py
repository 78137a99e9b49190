"""The tutorials' pictures that need no trained model, drawn from real values."""

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.inspection.plots import PLOTS
from glassformer.inspection.word_counts import SHOW_ME, count_words
from glassformer.nn.masks import causal, fixed, full, strided, window
from glassformer.nn.positions import sinusoid

PLACES, WIDTH, STEPS = 40, 32, 300
AROUND = [i / 20 - 1 for i in range(41)]  # how far, in lengths of the weights
LOWEST = -2  # log₁₀ of the loss: what lies lower is drawn alike


def chain() -> tuple[list[str], Tensor]:
    """The words of “show me my … please” and what share of each follows which."""
    words, counts = count_words(SHOW_ME, 1)
    return words, counts.shares([torch.arange(len(words))])


def one_hot() -> Any:
    """A one-hot row times a matrix picks a row of it."""
    words, probs = chain()
    row = torch.eye(len(words))[words.index("my")][None]
    chart, axes = subplots(1, 3, figsize=(12, 3.6), width_ratios=(1, 1, 1))
    parts = (("x, “my”", row), ("T", probs), ("x T, what follows", row @ probs))
    for ax, (title, values) in zip(axes, parts, strict=True):
        ax.imshow(values.numpy(), cmap="Blues", vmin=0, vmax=1)
        ax.set_title(title)
        ax.set_xticks(range(len(words)), words, rotation=60)
        ax.set_yticks(range(len(values)), words if len(values) > 1 else [""])
        for i, line in enumerate(values.tolist()):
            for j, value in enumerate(line):
                if value:
                    color = "white" if value > 0.6 else "black"
                    ax.text(j, i, f"{value:g}", ha="center", va="center", color=color, fontsize=8)
    at = words.index("my")
    axes[1].add_patch(frame(-0.5, at - 0.5, len(words), 1))
    return chart


def frame(
    x: float, y: float, wide: float, tall: float, colour: str = "C3", thick: float = 2
) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), wide, tall, fill=False, edgecolor=colour, linewidth=thick)


def markov() -> Any:
    """What follows what: words as circles, arrows as wide as they are likely."""
    words, probs = chain()
    positions = {
        "show": (0, 0), "me": (1, 0), "my": (2, 0), "please": (4, 0),
        "directories": (3, 1), "files": (3, 0), "photos": (3, -1),
    }  # fmt: skip
    chart, ax = subplots(figsize=(9, 3.6))
    for i, j in probs.nonzero().tolist():
        (x, y), (u, v) = positions[words[i]], positions[words[j]]
        share = float(probs[i, j])
        ax.annotate(
            "", (u, v), (x, y),
            arrowprops={"arrowstyle": "-|>", "lw": 1 + 3 * share, "color": "C0",
                        "shrinkA": 26, "shrinkB": 26},
        )  # fmt: skip
        middle = ((x + u) / 2, (y + v) / 2 + 0.12)
        ax.text(*middle, f"{share:.0%}", ha="center", fontsize=9)
    for word, (x, y) in positions.items():
        box = {"boxstyle": "round,pad=0.4", "facecolor": "#e8f0fa", "edgecolor": "C0"}
        ax.text(x, y, word, ha="center", va="center", bbox=box)
    ax.set(xlim=(-0.5, 4.5), ylim=(-1.5, 1.5))
    ax.axis("off")
    return chart


def waves() -> Any:
    """Places as waves, and as points that go round circles at different speeds."""
    values = sinusoid(torch.arange(PLACES), WIDTH)
    chart, (left, *circles) = subplots(1, 4, figsize=(14, 4), width_ratios=(5, 3, 3, 3))
    image = left.imshow(values.T.numpy(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    left.set(xlabel="place", ylabel="feature", title="sine and cosine, each pair slower")
    chart.colorbar(image, ax=left)
    for ax, pair, named in zip(
        circles, (0, 2, 4), (range(6), range(9), range(0, 40, 6)), strict=True
    ):
        x, y = values[:, 2 * pair + 1], values[:, 2 * pair]
        ax.plot(x, y, "o-", markersize=3, linewidth=0.7)
        ax.text(0, 0, f"features\n{2 * pair} and {2 * pair + 1}", ha="center", va="center")
        for place in named:
            at = (1.14 * float(x[place]), 1.14 * float(y[place]))
            ax.text(*at, str(place), ha="center", va="center", fontsize=8)
        ax.set(aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        ax.axis("off")
    circles[1].set_title("each pair goes round a circle, place by place")
    return chart


def softmax() -> Any:
    """How large the largest share is, and how steep the softmax, as a head grows wider."""
    random, widths = torch.Generator().manual_seed(0), [2**n for n in range(1, 11)]
    chart, (left, right) = subplots(1, 2, figsize=(10, 3.8))
    for name, power in (("undivided", 0.0), ("divided by √width", 0.5)):
        largest, steep = [], []
        for width in widths:
            q, k = torch.randn(2, 500, 8, width, generator=random)
            shares = ((q * k).sum(-1) / width**power).softmax(dim=-1)
            largest.append(float(shares.max(dim=-1).values.mean()))
            steep.append(float((shares * (1 - shares)).mean()))
        left.plot(widths, largest, "o-", label=name)
        right.plot(widths, steep, "o-", label=name)
    left.set(xscale="log", xlabel="width of a head", title="largest of 8 shares", ylim=(0, 1.02))
    right.set(xscale="log", xlabel="width of a head", title="slope of the softmax, p (1 − p)")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return chart


def masks() -> Any:
    """Who may look at whom: the same rules that models use."""
    rules = (full, causal, causal & window(4), causal & strided(4), causal & fixed(4),
             causal & (window(4) | strided(4)))  # fmt: skip
    chart, axes = subplots(1, len(rules), figsize=(14, 2.9))
    for ax, rule in zip(axes, rules, strict=True):
        ax.imshow(rule.matrix(16, 16).numpy(), cmap="Blues", vmin=0, vmax=1.4)
        ax.set_title(str(rule), fontsize=8)
        ax.set(xticks=[], yticks=[])
    axes[0].set(ylabel="query", xlabel="key")
    chart.suptitle("blue: the query (row) may look at the key (column)", fontsize=9)
    return chart


class Deep(nn.Module):
    """Many small layers, added to what was there before, or in its place."""

    def __init__(self, depth: int, wide: int, *, skip: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(wide, wide) for _ in range(depth))
        self.last, self.skip = nn.Linear(wide, 1), skip
        random = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            nn.init.uniform_(weights, -(wide**-0.5), wide**-0.5, generator=random)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + (x if self.skip else 0)
        y: Tensor = self.last(x)
        return y


def skips(depth: int = 24, wide: int = 16) -> Any:
    """Gradients by depth at the start, and the loss around what was learnt, without and with skip
    connections."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(64, wide, generator=random)
    y = x[:, :1].sin()
    chart, axes = subplots(1, 3, figsize=(13, 3.8))
    found = []
    for skip, name in ((False, "without"), (True, "with")):
        network = Deep(depth, wide, skip=skip)
        (network(x) - y).square().mean().backward()
        norms = [float(layer.weight.grad.norm()) for layer in network.layers]  # type: ignore[operator, union-attr]
        axes[0].semilogy(range(depth), norms, "o-", markersize=3, label=f"{name} skips")
        found.append((name, learnt(network, x, y), landscape(network, x, y)))
    every = torch.stack([grid for _, _, grid in found])
    levels = torch.linspace(float(every.min()), float(every.max()), 21).tolist()
    for ax, (name, loss, grid) in zip(axes[1:], found, strict=True):
        image = ax.contourf(AROUND, AROUND, grid, levels=levels, cmap="viridis")
        ax.plot(0, 0, "w+")
        ax.set(title=f"{name} skips, after {STEPS} steps: {loss:.2g}", xticks=[], yticks=[])
    chart.colorbar(image, ax=axes[2], label="log₁₀ of the loss around (+)")
    axes[0].set(xlabel="layer", title="gradient of each layer, at the start")
    axes[0].grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return chart


def learnt(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """The loss after some updates."""
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = (network(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def landscape(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The logarithm of the loss along two directions by chance, each as long as the weights."""
    weights, random = list(network.parameters()), torch.Generator().manual_seed(2)
    start = [w.clone() for w in weights]
    drawn = [[torch.randn(w.shape, generator=random) for w in weights] for _ in range(2)]
    ways = [[d * w.norm() / d.norm() for d, w in zip(way, start, strict=True)] for way in drawn]
    loss = torch.empty(len(AROUND), len(AROUND))
    for i, a in enumerate(AROUND):
        for j, b in enumerate(AROUND):
            for w, s, u, v in zip(weights, start, *ways, strict=True):
                w.copy_(s + a * u + b * v)
            loss[i, j] = (network(x) - y).square().mean()
    return loss.log10().clamp(min=LOWEST)


GAP = 4.4  # between the encoder and the decoder
ARROW = {"arrowstyle": "-|>", "color": "#666"}
BOXES = {  # what an encoder and a decoder are made of, from below: column and row
    "embedding": [(0, 0), (1, 0)], "position": [(0, 1), (1, 1)],
    "attention": [(0, 2)], "mask": [(1, 2)], "cross": [(1, 3)],
    "feedforward": [(0, 3), (1, 4)], "head": [(1, 5)], "softmax": [(1, 6)],
}  # fmt: skip
SAYS = {
    "embedding": "embedding", "position": "+ position", "attention": "attention, add & norm",
    "mask": "masked attention, add & norm", "cross": "attention to the source, add & norm",
    "feedforward": "feed-forward, add & norm", "head": "scores for tokens", "softmax": "softmax",
}  # fmt: skip


def around(ax: Any, x: float, y: float, half: float, side: int) -> None:
    """The way past a layer, which adds what was there before."""
    out = x + side * 1.8
    ax.plot((x, out, out), (y - 0.5, y - 0.5, y), color="#999", linewidth=1)
    ax.annotate(
        "", (x + side * half, y), (out, y), arrowprops={"arrowstyle": "-|>", "color": "#999"}
    )


def architecture(part: str = "attention") -> Any:
    """The paper's Transformer with one part lit."""
    if part not in BOXES:
        raise GlassError(f"the parts are {', '.join(BOXES)}, not {part!r}")
    chart, ax = subplots(figsize=(8.6, 6.5))
    for column, top in ((0, 3), (1, 4)):
        ax.add_patch(frame(GAP * column - 1.95, 1.42, 3.9, top - 0.98, "#b9c2cf", 1))
        ax.text(GAP * column - 1.85, top + 0.22, "× N", color="#555", fontsize=9)
    for name, spots in BOXES.items():
        for column, row in spots:
            lit = {"facecolor": "#ffd76b", "edgecolor": "#b07c00"}
            plain = {"facecolor": "#eef1f5", "edgecolor": "#8a94a3"}
            box = {"boxstyle": "round,pad=0.5", **(lit if name == part else plain)}
            ax.text(GAP * column, row, SAYS[name], ha="center", va="center", bbox=box, fontsize=10)
            if row:
                ends = (GAP * column, row - 0.32), (GAP * column, row - 0.68)
                ax.annotate("", *ends, arrowprops=ARROW)
            if "add" in SAYS[name]:
                around(
                    ax, GAP * column, row, 0.036 * len(SAYS[name]) + 0.2, side=1 if column else -1
                )
    ax.annotate("", (GAP - 1.6, 3), (1.15, 3), arrowprops=ARROW)
    ax.text(GAP / 2, 3.08, "K, V", ha="center", fontsize=8, color="#555")
    ax.text(GAP + 0.07, 2.55, "Q", fontsize=8, color="#555")
    ax.text(0, -0.8, "source", ha="center", color="#555")
    ax.text(GAP, -0.8, "target so far", ha="center", color="#555")
    ax.set(xlim=(-2.1, GAP + 2.1), ylim=(-1.2, 6.7))
    ax.axis("off")
    return chart


def draw_diagram(name: str, part: str = "attention") -> Any:
    """A picture by its name; `part` is what the architecture lights."""
    return PLOTS[name].draw(part=part)
