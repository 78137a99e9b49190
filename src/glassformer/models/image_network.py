"""What the networks for images have in common.

Shapes: b batch, c channels, y rows, x columns.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from glassformer.models.network import ModelConfig, Network


@dataclass(frozen=True)
class ImageConfig(ModelConfig):
    """The sizes that the data determines."""

    channels: int = 1
    height: int = 28  # pixels, like width
    width: int = 28
    classes: int = 10


class ImageClassifier(Network):
    """Predicts a class for each image."""

    forward_inputs = ("pixels",)

    def random_inputs(self, batch: int, length: int, generator: Generator) -> dict[str, Tensor]:
        c = self.config
        shape = (batch, c.channels, c.height, c.width)
        return {"pixels": torch.randn(shape, generator=generator)}
