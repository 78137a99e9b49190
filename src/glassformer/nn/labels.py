"""From the logits of classes to a loss and to probabilities.

Targets are class indices (n), or 0/1 for each class (n c) if a text can have several labels.
Shapes: n texts, c classes.
"""

import torch.nn.functional as F
from torch import Tensor


def label_loss(
    logits: Tensor,
    targets: Tensor,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The summed cross-entropy: over texts, or over texts and classes with several labels."""
    if targets.dim() == 1:
        return F.cross_entropy(
            logits, targets, class_weights, reduction="sum", label_smoothing=label_smoothing
        )
    targets = targets.to(logits.dtype)
    smoothed = targets * (1 - label_smoothing) + label_smoothing / 2
    return F.binary_cross_entropy_with_logits(
        logits, smoothed, reduction="sum", pos_weight=class_weights
    )


def label_probs(logits: Tensor, *, multi_label: bool) -> Tensor:
    """Probabilities of the classes, each on its own if a text can have several labels: n c."""
    logits = logits.float()
    return logits.sigmoid() if multi_label else logits.softmax(dim=-1)
