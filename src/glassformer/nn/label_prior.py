"""The prior of a text classifier: an n-gram classifier whose logits are added to a network's.

    logits = network weight * network's logits + n-gram weight * n-gram classifier's logits

Both are fitted to the training texts independently: trained on top of the n-gram classifier, the
network would learn nothing from texts that the classifier is already certain of, and it is certain
of every text that it was fitted to. The two weights are fitted last, to texts unseen by either.

Shapes: b batch, n texts, m components of a mixture, c classes.
"""

import torch
from torch import Tensor

from glassformer.core.i18n import tr
from glassformer.nn.counts import check_tables
from glassformer.nn.labels import label_loss
from glassformer.nn.ngram_classifier import NGramClassifier
from glassformer.nn.prior import Prior, describe_ngrams
from glassformer.trace import Tap, tap

START = (0.0, 1.0)  # the weights of the network and of the n-gram classifier before they are fitted
MAX_ITERATIONS = 50  # of L-BFGS


class LabelPrior(Prior):
    """Mixes the logits of a network with those of an n-gram classifier."""

    weights: Tensor  # of the network and of the n-gram classifier

    def __init__(self, classifier: NGramClassifier) -> None:
        super().__init__()
        self.classifier = classifier
        self.register_buffer("weights", torch.tensor(START))

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "network_logits": Tap("b c"),
            "ngram_logits": Tap("b c", tr("Σ weights of the n-grams")),
        }

    def describe(self) -> str:
        return describe_ngrams(self.classifier.size, self.classifier.order)

    def forward(self, logits: Tensor, ngram_logits: Tensor) -> Tensor:
        """Mix the logits of the network and of the n-gram classifier: b c, b c -> b c."""
        logits = tap("network_logits", logits)
        ngram_logits = tap("ngram_logits", ngram_logits.to(logits.dtype))
        return self.weights[0] * logits + self.weights[1] * ngram_logits

    @torch.no_grad()
    def fit_weights(
        self,
        logits: Tensor,
        ngram_logits: Tensor,
        targets: Tensor,
        class_weights: Tensor | None = None,
    ) -> None:
        """Minimize the cross-entropy of the mixture on texts with these targets (n, or n c).

        Both logits have the shape n c; `class_weights` (c) weigh the loss. A weight that would be
        negative is 0. If neither predicts these texts better than chance, the n-gram classifier is
        used alone.
        """
        components = torch.stack((logits, ngram_logits)).double()
        start = torch.tensor(START, dtype=components.dtype, device=components.device)
        weights = fit_mixture(components, targets, start, class_weights)
        if (weights < 0).any() and (weights >= 0).any():
            rest = weights >= 0
            weights = torch.zeros_like(weights)
            weights[rest] = fit_mixture(components[rest], targets, start[rest], class_weights)
        weights = weights.clamp(min=0)
        self.weights.copy_(weights if weights.any() else start)

    def check(self) -> None:
        is_valid = self.weights.shape == (2,) and bool(self.weights.isfinite().all())
        check_tables(is_valid, "the weights of the network and the n-grams are invalid")


def fit_mixture(
    components: Tensor, targets: Tensor, start: Tensor, class_weights: Tensor | None = None
) -> Tensor:
    """The weights of the components (m n c) that minimize the cross-entropy of their mixture: m.

    A penalty of half the squared distance from `start` (m), about as large as the loss of one
    text, keeps the weights finite when there are few texts.
    """
    weights = start.clone()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe", tolerance_change=1e-9
    )

    scale = None if class_weights is None else class_weights.to(components.dtype)

    @torch.enable_grad()
    def loss() -> float:
        variable = weights.detach().requires_grad_()
        logits = torch.tensordot(variable, components, dims=1)  # n c
        total = label_loss(logits, targets, scale) + ((variable - start) ** 2).sum() / 2
        (weights.grad,) = torch.autograd.grad(total, variable)
        return float(total.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights
