"""Diagrams that need no trained model, drawn from computed values."""

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.inspection.plots import PLOTS
from glassformer.inspection.word_counts import SHOW_ME, count_words
from glassformer.nn.masks import causal, fixed, full, strided, window
from glassformer.nn.positions import sinusoid

POSITIONS, DIM = 40, 32  # size of the positional encoding
STEPS = 300  # training steps
OFFSETS = [i / 20 - 1 for i in range(41)]  # from the trained weights, in units of their norm
MIN_LOG_LOSS = -2  # log₁₀; lower losses are drawn at this value


def word_transitions() -> tuple[list[str], Tensor]:
    """The words of “show me my … please” and their transition matrix."""
    words, counts = count_words(SHOW_ME, 1)
    return words, counts.fractions([torch.arange(len(words))])


def one_hot() -> Any:
    """Multiplying a matrix by a one-hot row selects one of its rows."""
    words, probs = word_transitions()
    row = torch.eye(len(words))[words.index("my")][None]
    chart, axes = subplots(1, 3, figsize=(12, 3.6), width_ratios=(1, 1, 1))
    panels = (("x, “my”", row), ("T", probs), ("x T, the next word", row @ probs))
    for ax, (title, values) in zip(axes, panels, strict=True):
        ax.imshow(values.numpy(), cmap="Blues", vmin=0, vmax=1)
        ax.set_title(title)
        ax.set_xticks(range(len(words)), words, rotation=60)
        ax.set_yticks(range(len(values)), words if len(values) > 1 else [""])
        for i, line in enumerate(values.tolist()):
            for j, value in enumerate(line):
                if value:
                    color = "white" if value > 0.6 else "black"
                    ax.text(j, i, f"{value:g}", ha="center", va="center", color=color, fontsize=8)
    axes[1].add_patch(frame(-0.5, words.index("my") - 0.5, len(words), 1))
    return chart


def frame(
    x: float, y: float, width: float, height: float, color: str = "C3", linewidth: float = 2
) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, fill=False, edgecolor=color, linewidth=linewidth)


def markov() -> Any:
    """A Markov chain of words; the width of an arrow is its probability."""
    words, probs = word_transitions()
    positions = {
        "show": (0, 0), "me": (1, 0), "my": (2, 0), "please": (4, 0),
        "directories": (3, 1), "files": (3, 0), "photos": (3, -1),
    }  # fmt: skip
    chart, ax = subplots(figsize=(9, 3.6))
    for i, j in probs.nonzero().tolist():
        (x, y), (u, v) = positions[words[i]], positions[words[j]]
        prob = float(probs[i, j])
        ax.annotate(
            "", (u, v), (x, y),
            arrowprops={"arrowstyle": "-|>", "lw": 1 + 3 * prob, "color": "C0",
                        "shrinkA": 26, "shrinkB": 26},
        )  # fmt: skip
        middle = ((x + u) / 2, (y + v) / 2 + 0.12)
        ax.text(*middle, f"{prob:.0%}", ha="center", fontsize=9)
    for word, (x, y) in positions.items():
        box = {"boxstyle": "round,pad=0.4", "facecolor": "#e8f0fa", "edgecolor": "C0"}
        ax.text(x, y, word, ha="center", va="center", bbox=box)
    ax.set(xlim=(-0.5, 4.5), ylim=(-1.5, 1.5))
    ax.axis("off")
    return chart


def waves() -> Any:
    """Sinusoidal positional encoding, as waves and as points on circles."""
    values = sinusoid(torch.arange(POSITIONS), DIM)
    chart, (left, *circles) = subplots(1, 4, figsize=(14, 4), width_ratios=(5, 3, 3, 3))
    image = left.imshow(values.T.numpy(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    title = "sine and cosine: each pair has a lower frequency"
    left.set(xlabel="position", ylabel="feature", title=title)
    chart.colorbar(image, ax=left)
    for ax, pair, labeled in zip(
        circles, (0, 2, 4), (range(6), range(9), range(0, 40, 6)), strict=True
    ):
        x, y = values[:, 2 * pair + 1], values[:, 2 * pair]
        ax.plot(x, y, "o-", markersize=3, linewidth=0.7)
        ax.text(0, 0, f"features\n{2 * pair} and {2 * pair + 1}", ha="center", va="center")
        for position in labeled:
            point = (1.14 * float(x[position]), 1.14 * float(y[position]))
            ax.text(*point, str(position), ha="center", va="center", fontsize=8)
        ax.set(aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        ax.axis("off")
    circles[1].set_title("each pair moves around a circle, position by position")
    return chart


def softmax() -> Any:
    """The largest attention weight, and the gradient of the softmax, by head size."""
    random, dims = torch.Generator().manual_seed(0), [2**n for n in range(1, 11)]
    chart, (left, right) = subplots(1, 2, figsize=(10, 3.8))
    for name, power in (("unscaled", 0.0), ("divided by √d_k", 0.5)):
        largest, slopes = [], []
        for dim in dims:
            q, k = torch.randn(2, 500, 8, dim, generator=random)
            weights = ((q * k).sum(-1) / dim**power).softmax(dim=-1)
            largest.append(float(weights.max(dim=-1).values.mean()))
            slopes.append(float((weights * (1 - weights)).mean()))
        left.plot(dims, largest, "o-", label=name)
        right.plot(dims, slopes, "o-", label=name)
    xlabel = "head size d_k"
    left.set(xscale="log", xlabel=xlabel, title="largest of 8 attention weights", ylim=(0, 1.02))
    right.set(xscale="log", xlabel=xlabel, title="derivative of the softmax, p (1 − p)")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return chart


def masks() -> Any:
    """Which query may attend to which key: the masks that the models use."""
    examples = (full, causal, causal & window(4), causal & strided(4), causal & fixed(4),
                causal & (window(4) | strided(4)))  # fmt: skip
    chart, axes = subplots(1, len(examples), figsize=(14, 2.9))
    for ax, mask in zip(axes, examples, strict=True):
        ax.imshow(mask.matrix(16, 16).numpy(), cmap="Blues", vmin=0, vmax=1.4)
        ax.set_title(str(mask), fontsize=8)
        ax.set(xticks=[], yticks=[])
    axes[0].set(ylabel="query", xlabel="key")
    chart.suptitle("blue: the query (row) may attend to the key (column)", fontsize=9)
    return chart


class DeepNetwork(nn.Module):
    """Many small layers, with or without skip connections."""

    def __init__(self, depth: int, dim: int, *, skip: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.last, self.skip = nn.Linear(dim, 1), skip
        random = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            nn.init.uniform_(weights, -(dim**-0.5), dim**-0.5, generator=random)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + (x if self.skip else 0)
        y: Tensor = self.last(x)
        return y


def skips(depth: int = 24, dim: int = 16) -> Any:
    """Initial gradients by layer, and the loss around the trained weights, with and without skip
    connections."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(64, dim, generator=random)
    y = x[:, :1].sin()
    chart, axes = subplots(1, 3, figsize=(13, 3.8))
    landscapes = []
    for skip, name in ((False, "without"), (True, "with")):
        network = DeepNetwork(depth, dim, skip=skip)
        (network(x) - y).square().mean().backward()
        norms = [float(layer.weight.grad.norm()) for layer in network.layers]  # type: ignore[operator, union-attr]
        axes[0].semilogy(range(depth), norms, "o-", markersize=3, label=f"{name} skips")
        landscapes.append((name, train(network, x, y), loss_landscape(network, x, y)))
    losses = torch.stack([grid for _, _, grid in landscapes])
    levels = torch.linspace(float(losses.min()), float(losses.max()), 21).tolist()
    for ax, (name, loss, grid) in zip(axes[1:], landscapes, strict=True):
        image = ax.contourf(OFFSETS, OFFSETS, grid, levels=levels, cmap="viridis")
        ax.plot(0, 0, "w+")
        ax.set(title=f"{name} skips, loss after {STEPS} steps: {loss:.2g}", xticks=[], yticks=[])
    chart.colorbar(image, ax=axes[2], label="log₁₀ of the loss around the trained weights (+)")
    axes[0].set(xlabel="layer", title="gradient norm of each layer before training")
    axes[0].grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return chart


def train(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Train the network and return its last loss."""
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = (network(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def loss_landscape(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The log₁₀ loss along two random directions, scaled to the norm of the weights."""
    weights, random = list(network.parameters()), torch.Generator().manual_seed(2)
    start = [w.clone() for w in weights]
    samples = [[torch.randn(w.shape, generator=random) for w in weights] for _ in range(2)]
    directions = [
        [d * w.norm() / d.norm() for d, w in zip(sample, start, strict=True)] for sample in samples
    ]
    loss = torch.empty(len(OFFSETS), len(OFFSETS))
    for i, a in enumerate(OFFSETS):
        for j, b in enumerate(OFFSETS):
            for w, s, u, v in zip(weights, start, *directions, strict=True):
                w.copy_(s + a * u + b * v)
            loss[i, j] = (network(x) - y).square().mean()
    return loss.log10().clamp(min=MIN_LOG_LOSS)


GAP = 4.4  # between the encoder and the decoder
ARROW = {"arrowstyle": "-|>", "color": "#666"}
BOXES = {  # column (encoder, decoder) and row, from the bottom, of each part
    "embedding": [(0, 0), (1, 0)], "position": [(0, 1), (1, 1)],
    "attention": [(0, 2)], "mask": [(1, 2)], "cross": [(1, 3)],
    "feedforward": [(0, 3), (1, 4)], "head": [(1, 5)], "softmax": [(1, 6)],
}  # fmt: skip
LABELS = {
    "embedding": "embedding", "position": "+ positional encoding",
    "attention": "self-attention, add & norm",
    "mask": "masked self-attention, add & norm", "cross": "cross-attention, add & norm",
    "feedforward": "feed-forward, add & norm", "head": "linear: logits", "softmax": "softmax",
}  # fmt: skip


def draw_residual(ax: Any, x: float, y: float, half: float, side: int) -> None:
    """Draw the residual connection around a layer; `half` is half the width of its box."""
    out = x + side * 1.8
    ax.plot((x, out, out), (y - 0.5, y - 0.5, y), color="#999", linewidth=1)
    ax.annotate(
        "", (x + side * half, y), (out, y), arrowprops={"arrowstyle": "-|>", "color": "#999"}
    )


def architecture(part: str = "attention") -> Any:
    """The Transformer of Vaswani et al. (2017) with one part highlighted."""
    if part not in BOXES:
        raise GlassError(f"unknown part {part!r}: expected one of {', '.join(BOXES)}")
    chart, ax = subplots(figsize=(8.6, 6.5))
    for column, top in ((0, 3), (1, 4)):
        ax.add_patch(frame(GAP * column - 1.95, 1.42, 3.9, top - 0.98, "#b9c2cf", 1))
        ax.text(GAP * column - 1.85, top + 0.22, "× N", color="#555", fontsize=9)
    highlighted = {"facecolor": "#ffd76b", "edgecolor": "#b07c00"}
    plain = {"facecolor": "#eef1f5", "edgecolor": "#8a94a3"}
    for name, boxes in BOXES.items():
        label = LABELS[name]
        for column, row in boxes:
            box = {"boxstyle": "round,pad=0.5", **(highlighted if name == part else plain)}
            ax.text(GAP * column, row, label, ha="center", va="center", bbox=box, fontsize=10)
            if row:
                ends = (GAP * column, row - 0.32), (GAP * column, row - 0.68)
                ax.annotate("", *ends, arrowprops=ARROW)
            if "add" in label:
                half = 0.036 * len(label) + 0.2
                draw_residual(ax, GAP * column, row, half, side=1 if column else -1)
    ax.annotate("", (GAP - 1.3, 3), (1.15, 3), arrowprops=ARROW)
    ax.text(GAP / 2, 3.08, "K, V", ha="center", fontsize=8, color="#555")
    ax.text(GAP + 0.07, 2.55, "Q", fontsize=8, color="#555")
    ax.text(0, -0.8, "source", ha="center", color="#555")
    ax.text(GAP, -0.8, "target (shifted right)", ha="center", color="#555")
    ax.set(xlim=(-2.1, GAP + 2.1), ylim=(-1.2, 6.7))
    ax.axis("off")
    return chart


def draw_diagram(name: str, part: str = "attention") -> Any:
    """Draw a diagram by its name; `part` is the part that `architecture` highlights."""
    return PLOTS[name].draw(part=part)
