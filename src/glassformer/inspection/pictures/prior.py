"""What a model's prior and its network each contribute to a prediction.

Shapes: t tokens, s source tokens, k kinds of evidence, v vocabulary, c classes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.traced_text import TracedText
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.network import Network, TextClassifier
from glassformer.nn.evidence import MIN_COUNTS
from glassformer.nn.label_prior import LabelPrior
from glassformer.text.tokenizer import Tokenizer

COUNT_LABELS = ("1×", "2–3×", "≥4×")  # for each of MIN_COUNTS
MAX_NGRAMS = 16  # to show, with the largest weights
COUNTS_COLOR = "C1"
NETWORK_COLOR = "C0"
BOTH_COLOR = "C2"


@dataclass(frozen=True)
class PriorPredictions:
    """The predictions of each next token: by the counts, by the network, and by both."""

    counts: Tensor  # t v: probabilities; in a translator, by the translation table
    network: Tensor  # t v
    both: Tensor  # t v

    @property
    def counts_dominate(self) -> Tensor:
        """Whether the counts dominate (t): their prediction is closer to that of both.

        The distance is the Kullback-Leibler divergence.
        """
        from_counts = kl_divergence(self.both, self.counts)
        return from_counts < kl_divergence(self.both, self.network)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """The divergence of q from p, for each row: t v, t v -> t."""
    return (p * (p.clamp(min=1e-30).log() - q.clamp(min=1e-30).log())).sum(dim=-1)


def read_predictions(traced: TracedText, name: str = "count_logits") -> PriorPredictions:
    """Read the logits of the prior, which have this name, and of the network from a trace."""
    if f"prior.{name}" not in traced.trace:
        raise GlassError("this model has no prior")
    counts, network = (
        traced.trace[f"prior.{part}"][0].float().softmax(dim=-1)
        for part in (name, "network_logits")
    )
    return PriorPredictions(counts, network, traced.output.softmax(dim=-1))


def prior(
    traced: TracedText, network: Network, tokenizer: Tokenizer, labels: list[str] | None = None
) -> Any:
    """What the prior and the network each predict: every token or, in a classifier, the label."""
    if isinstance(network, TextClassifier) and network.prior is not None:
        return label_prior(traced, network.prior, tokenizer, labels)
    if isinstance(network, EncoderDecoder):
        return lexical_prior(traced, tokenizer)
    return count_prior(traced, tokenizer)


def count_prior(traced: TracedText, tokenizer: Tokenizer) -> Any:
    """What the counts predict, what the network adds, and the gate of each context length."""
    chart, axes = plot_predictions(traced, tokenizer, read_predictions(traced), tr("counts"))
    grid = traced.trace["prior.gates"][0, :-1].float().T.cpu()
    limit = max(float(grid.abs().max()), 1.0)
    image = axes[1].imshow(
        grid.numpy(), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="none"
    )
    kinds = [f"{k // len(MIN_COUNTS) + 1}, {COUNT_LABELS[k % len(MIN_COUNTS)]}" for k in
             range(len(grid) - 1)]  # fmt: skip
    axes[1].set_yticks(range(len(grid)), ["0", *kinds], fontsize=7)
    axes[1].set_ylabel(tr(tr("tokens of context, times seen")))
    axes[1].set_title(tr(tr("gate values by context length and count")), fontsize=9)
    chart.colorbar(image, ax=axes, shrink=0.4, pad=0.02, location="right")
    return chart


def lexical_prior(traced: TracedText, tokenizer: Tokenizer) -> Any:
    """What the translation table predicts, what the network adds, and the aligned source token."""
    predictions = read_predictions(traced, "lexical_logits")
    chart, axes = plot_predictions(traced, tokenizer, predictions, tr("translation table"))
    grid = traced.trace["prior.alignment"][0, :-1].float().T.cpu()  # s t
    image = axes[1].imshow(
        grid.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="none"
    )
    labels = [show_whitespace(token) for token in traced.aligned_tokens]
    axes[1].set_yticks(range(len(grid)), labels, fontsize=9)
    axes[1].set_ylabel(tr(tr("source token")))
    axes[1].set_title(
        tr("alignment: the source token that is looked up in the translation table"), fontsize=9
    )
    chart.colorbar(image, ax=axes, shrink=0.4, pad=0.02, location="right")
    return chart


def plot_predictions(
    traced: TracedText, tokenizer: Tokenizer, predictions: PriorPredictions, counts_name: str
) -> tuple[Any, Any]:
    """Plot the probability of each token in the upper of two axes; return the chart and the axes.

    The labels of the tokens, below the lower axes, have the color of what dominates.
    """
    if len(traced.ids) < 2:
        raise GlassError("the text needs at least two tokens")
    targets = traced.inputs["ids"][0, 1:, None].cpu()
    labels = [show_whitespace(tokenizer.token(int(i))) for i in targets]
    t = len(labels)
    size = (max(0.34 * t + 2.2, 7), 7)
    chart, axes = subplots(2, 1, figsize=size, sharex=True, height_ratios=(2, 3))
    top, bottom = axes
    bars = (
        (tr("{name} alone", name=counts_name), predictions.counts, COUNTS_COLOR),
        (tr(tr("network alone")), predictions.network, NETWORK_COLOR),
        (tr("both"), predictions.both, BOTH_COLOR),
    )
    for i, (name, probs, color) in enumerate(bars):
        heights = probs[:-1].cpu().gather(1, targets)[:, 0].tolist()
        positions = [x + 0.27 * (i - 1) for x in range(t)]
        top.bar(positions, heights, width=0.27, color=color, label=name)
    top.set(ylim=(0, 1.2), yticks=(0, 0.25, 0.5, 0.75, 1), ylabel=tr("probability of the token"))
    top.grid(axis="y", alpha=0.3)
    top.legend(fontsize=8, loc="upper left", ncols=3)
    top.set_title(
        tr(
            "Probability of each token given those before it\nlabel: orange if the prediction is "
            "closer to that of the {name}, blue if closer to the network's",
            name=counts_name,
        ),
        fontsize=9,
    )
    bottom.set_xticks(range(t), labels, fontsize=9)
    flags = predictions.counts_dominate[:-1]
    for label, counts_dominate in zip(bottom.get_xticklabels(), flags, strict=True):
        label.set_color(COUNTS_COLOR if counts_dominate else NETWORK_COLOR)
    return chart, axes


def label_prior(
    traced: TracedText, prior: LabelPrior, tokenizer: Tokenizer, labels: list[str] | None = None
) -> Any:
    """How much the n-grams and the network favor each label, and which n-grams matter most."""
    parts = torch.stack([traced.trace[f"prior.{name}_logits"][0].float() for name in
                         ("network", "ngram")]).cpu()  # fmt: skip
    weighted = prior.weights.cpu()[:, None] * (parts - parts.mean(dim=1, keepdim=True))  # 2 c
    order = traced.output.cpu().argsort(descending=True)[:MAX_NGRAMS].tolist()
    best = order[0]
    names = labels or [str(i) for i in range(parts.shape[1])]
    ids = traced.inputs.get("untruncated_ids", traced.inputs["ids"])[0].cpu()
    scores = {ngram: float(weights[best] - weights.mean()) * float(prior.weights[1]) for
              ngram, weights in prior.classifier.list_ngrams(ids).items()}  # fmt: skip
    top = sorted(scores, key=lambda ngram: -abs(scores[ngram]))[:MAX_NGRAMS]
    chart, (left, right) = subplots(1, 2, figsize=(10, 5), width_ratios=(2, 3))
    bars = (
        (tr("n-grams"), weighted[1], COUNTS_COLOR),
        (tr("network"), weighted[0], NETWORK_COLOR),
        (tr("both"), weighted.sum(dim=0), BOTH_COLOR),
    )
    for i, (name, logits, color) in enumerate(bars):
        positions = [y + 0.27 * (i - 1) for y in range(len(order))]
        left.barh(positions, logits[order].tolist(), height=0.27, color=color, label=name)
    left.set_yticks(range(len(order)), [names[i] for i in order])
    left.invert_yaxis()
    left.set_xlabel(tr("logit, minus the mean over the labels"))
    left.legend(fontsize=8)
    left.set_title(tr(tr("What favors each label")), fontsize=10)
    values = [scores[ngram] for ngram in top]
    colors = [COUNTS_COLOR if value > 0 else "0.6" for value in values]
    right.barh(range(len(top)), values, color=colors)
    texts = [show_whitespace(" ".join(map(tokenizer.token, ngram))) for ngram in top]
    right.set_yticks(range(len(top)), texts, fontsize=9)
    right.invert_yaxis()
    right.set_xlabel(tr("contribution to the logit of {name}", name=names[best]))
    title = tr("N-grams for (orange) and against (gray) {name}", name=names[best])
    right.set_title(title, fontsize=10)
    for axes in (left, right):
        axes.axvline(0, color="black", linewidth=0.8)
        axes.grid(axis="x", alpha=0.3)
    return chart
