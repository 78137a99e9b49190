"""A small convolutional network for images: two convolutions, each followed by pooling.

Shapes: b batch, c channels, y rows, x columns, d features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.image_network import ImageClassifier, ImageConfig
from glassformer.models.network import Trait
from glassformer.nn.dropout import Dropout
from glassformer.nn.image import RandomShift
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ImageConfig):
    dim: int = 32  # channels after the first convolution; half of the features
    dropout: float = 0.2
    max_shift: int = 2  # in training, images are shifted at random by up to this many pixels


class ImageCNN(ImageClassifier):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.COMPILABLE, Trait.IMAGES})
    output_heads = ("head",)
    taps: ClassVar[dict[str, Tap]] = {
        "first": Tap("b c y x", "max pool(ReLU(convolution(pixels)))"),
        "second": Tap("b c y x", "max pool(ReLU(convolution(first)))"),
        "features": Tap("b d", "ReLU(second W + b)"),
    }
    train_settings: ClassVar[Mapping[str, Any]] = {"lr": 2e-3, "weight_decay": 0.01}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.conv_1 = nn.Conv2d(c.channels, c.dim, 3, padding=1)
        self.conv_2 = nn.Conv2d(c.dim, 2 * c.dim, 3, padding=1)
        size = 2 * c.dim * (c.height // 4) * (c.width // 4)
        self.dense = nn.Linear(size, 2 * c.dim)
        self.head = nn.Linear(2 * c.dim, c.classes)
        self.dropout = Dropout(c.dropout)
        self.shift = RandomShift(c.max_shift)

    def forward(self, pixels: Tensor) -> Tensor:
        """Class logits of each image: b c y x -> b c."""
        logits: Tensor = self.head(self.dropout(self.image_features(self.shift(pixels))))
        return logits

    def image_features(self, pixels: Tensor) -> Tensor:
        """The features that the classes are predicted from: b c y x -> b d."""
        x = tap("first", F.max_pool2d(F.relu(self.conv_1(pixels)), 2))
        x = tap("second", F.max_pool2d(F.relu(self.conv_2(x)), 2))
        return tap("features", F.relu(self.dense(self.dropout(x.flatten(1)))))
