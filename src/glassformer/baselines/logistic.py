"""Logistic regression on the pixels of images, fitted by L-BFGS.

Shapes: b batch, c channels, y rows, x columns, n images.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.models.image_network import ImageClassifier, ImageConfig
from glassformer.models.network import Trait

MAX_ITERATIONS = 60


@dataclass(frozen=True)
class Config(ImageConfig):
    l2: float = 1e-3  # weight of the squared weights in the loss


class Logistic(ImageClassifier):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.FITTED, Trait.IMAGES})
    weight: Tensor
    bias: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        size = config.channels * config.height * config.width
        self.register_buffer("weight", torch.zeros(config.classes, size))
        self.register_buffer("bias", torch.zeros(config.classes))

    def forward(self, pixels: Tensor) -> Tensor:
        """Class logits of each image: b c y x -> b c."""
        logits: Tensor = F.linear(pixels.flatten(1), self.weight, self.bias)
        return logits

    @torch.enable_grad()
    def fit(self, pixels: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> None:
        """Fit to images (n c y x) and the indices of their classes (n)."""
        x = pixels.flatten(1)
        weight, bias = (torch.zeros_like(p).requires_grad_() for p in (self.weight, self.bias))
        optimizer = torch.optim.LBFGS(
            (weight, bias), max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = F.cross_entropy(F.linear(x, weight, bias), labels, class_weights)
            loss = loss + self.config.l2 * weight.square().sum()
            torch.autograd.backward(loss)
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        self.weight = weight.detach()
        self.bias = bias.detach()
