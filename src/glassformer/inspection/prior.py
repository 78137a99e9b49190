"""What a model's count prior and its network each contribute to the prediction of every token.

Shapes: t tokens, k kinds of evidence, v vocabulary.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import show_whitespace
from glassformer.inspection.traced_text import TracedText
from glassformer.nn.evidence import MIN_COUNTS
from glassformer.text.tokenizer import Tokenizer

COUNT_LABELS = ("1×", "2–3×", "≥4×")  # for each of MIN_COUNTS
COUNTS_COLOR, NETWORK_COLOR, BOTH_COLOR = "C1", "C0", "C2"


@dataclass(frozen=True)
class PriorShares:
    """The predictions of the token after each token: by the counts, by the network, by both."""

    counts: Tensor  # t v: probabilities
    network: Tensor  # t v
    both: Tensor  # t v
    gates: Tensor  # t k: the weight of each kind of evidence

    @property
    def is_counted(self) -> Tensor:
        """Whether the counts dominate (t): their prediction is closer to that of both.

        The distance is the Kullback-Leibler divergence.
        """
        from_counts = kl_divergence(self.both, self.counts)
        return from_counts < kl_divergence(self.both, self.network)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """The divergence of q from p, for each row: t v, t v -> t."""
    return (p * (p.clamp(min=1e-30).log() - q.clamp(min=1e-30).log())).sum(dim=-1)


def find_shares(traced: TracedText) -> PriorShares:
    if "prior.gates" not in traced.trace:
        raise GlassError("this model has no count prior")
    counts, network, gates = (
        traced.trace[f"prior.{name}"][0].float()
        for name in ("count_logits", "network_logits", "gates")
    )
    return PriorShares(
        counts.softmax(dim=-1), network.softmax(dim=-1), traced.output.softmax(dim=-1), gates
    )


def prior(traced: TracedText, tokenizer: Tokenizer) -> Any:
    """What the counts predict, what the network adds, and how much each context length counts."""
    shares = find_shares(traced)
    if len(traced.ids) < 2:
        raise GlassError("the text needs at least two tokens")
    targets = traced.inputs["ids"][0, 1:, None].cpu()
    labels = [show_whitespace(tokenizer.token(int(i))) for i in targets]
    t = len(labels)
    size = (max(0.34 * t + 2.2, 7), 7)
    chart, (top, bottom) = subplots(2, 1, figsize=size, sharex=True, height_ratios=(2, 3))
    bars = (
        ("counts alone", shares.counts, COUNTS_COLOR),
        ("network alone", shares.network, NETWORK_COLOR),
        ("both", shares.both, BOTH_COLOR),
    )
    for i, (name, probs, color) in enumerate(bars):
        heights = probs[:-1].cpu().gather(1, targets)[:, 0].tolist()
        positions = [x + 0.27 * (i - 1) for x in range(t)]
        top.bar(positions, heights, width=0.27, color=color, label=name)
    top.set(ylim=(0, 1.2), yticks=(0, 0.25, 0.5, 0.75, 1), ylabel="probability of the token")
    top.grid(axis="y", alpha=0.3)
    top.legend(fontsize=8, loc="upper left", ncols=3)
    top.set_title(
        "Probability of each token given those before it. Label: orange if the prediction is "
        "closer to the counts', blue if closer to the network's",
        fontsize=9,
    )
    grid = shares.gates[:-1].T.cpu()
    limit = max(float(grid.abs().max()), 1.0)
    image = bottom.imshow(
        grid.numpy(), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="none"
    )
    kinds = [f"{k // len(MIN_COUNTS) + 1}, {COUNT_LABELS[k % len(MIN_COUNTS)]}" for k in
             range(len(grid) - 1)]  # fmt: skip
    bottom.set_yticks(range(len(grid)), ["0", *kinds], fontsize=7)
    bottom.set_ylabel("tokens of context, times seen")
    bottom.set_title("gate values by context length and count", fontsize=9)
    bottom.set_xticks(range(t), labels, fontsize=9)
    for label, is_counted in zip(bottom.get_xticklabels(), shares.is_counted[:-1], strict=True):
        label.set_color(COUNTS_COLOR if is_counted else NETWORK_COLOR)
    chart.colorbar(image, ax=(top, bottom), shrink=0.4, pad=0.02, location="right")
    return chart
