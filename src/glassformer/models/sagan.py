"""A self-attention GAN: paints images of a class from noise (Zhang et al., 2018).

A generator makes images, and a critic scores how real they look; the two are trained in turn. Both
attend over all positions at half of the resolution, so that distant parts of an image fit together.
Their weights have a spectral norm of 1. The critic learns four times as fast as the generator.

Shapes: b batch, c channels, y rows, x columns, z noise values, d features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Generator as RandomGenerator
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.models.image_network import ImageConfig
from glassformer.models.network import Network, Trait
from glassformer.nn.image import (
    DownBlock,
    ImageAttention,
    SpectralConv,
    SpectralLinear,
    SpectralNorm,
    UpBlock,
)
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ImageConfig):
    noise: int = 64  # values that an image is made from
    dim: int = 16  # channels at the full resolution; twice as many at each lower one
    attention: bool = True  # false: convolutions only

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.height % 4 or self.width % 4:
            raise GlassError(
                f"images to paint must have a height and width divisible by 4, got {self.width} x "
                f"{self.height} pixels: scale them with --image-size"
            )


class Generator(nn.Module):
    """From noise and a class to an image: b z, b -> b c y x, between -1 and 1."""

    taps: ClassVar[dict[str, Tap]] = {
        "condition": Tap("b d", "[noise, E[class]]"),
        "on_canvas": Tap("b c y x", "condition W + b"),
    }

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.shape = (4 * c.dim, c.height // 4, c.width // 4)
        self.label = nn.Embedding(c.classes, c.noise)
        size = 2 * c.noise  # of the condition: noise and class
        self.canvas = SpectralLinear(size, self.shape[0] * self.shape[1] * self.shape[2])
        self.up_1 = UpBlock(4 * c.dim, 2 * c.dim, size)
        self.up_2 = UpBlock(2 * c.dim, c.dim, size)
        self.attention = ImageAttention(2 * c.dim) if c.attention else nn.Identity()
        self.out = SpectralConv(c.dim, c.channels, 3, padding=1)
        self.contrast = nn.Parameter(torch.ones(c.channels, 1, 1))

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        condition = tap("condition", torch.cat((noise, self.label(labels)), dim=1))
        x = tap("on_canvas", self.canvas(condition).unflatten(1, self.shape))
        x = self.attention(self.up_1(x, condition))
        x = self.up_2(x, condition)
        return torch.tanh(self.contrast * self.out(x))


class Critic(nn.Module):
    """How real an image of a class looks: b c y x, b -> b. Positive means real."""

    taps: ClassVar[dict[str, Tap]] = {
        "pooled": Tap("b d", "sum over the positions"),
        "realism": Tap("b", "pooled W + b"),
        "fit": Tap("b", "pooled · E[class]"),
    }

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.down_1 = DownBlock(c.channels, 2 * c.dim)
        self.down_2 = DownBlock(2 * c.dim, 4 * c.dim)
        self.attention = ImageAttention(2 * c.dim) if c.attention else nn.Identity()
        self.last = SpectralConv(4 * c.dim, 4 * c.dim, 3, padding=1)
        self.score = SpectralLinear(4 * c.dim, 1)
        self.label = nn.Embedding(c.classes, 4 * c.dim)
        self.label_norm = SpectralNorm(c.classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.down_2(self.attention(self.down_1(images)))
        x = F.relu(x + self.last(x))
        pooled = tap("pooled", x.sum(dim=(2, 3)))  # b d
        realism = tap("realism", self.score(pooled)[:, 0])
        label = F.embedding(labels, self.label_norm(self.label.weight))
        return realism + tap("fit", (pooled * label).sum(dim=1))


class SAGAN(Network):
    Config: TypeAlias = Config
    traits = frozenset({Trait.PAINTER, Trait.IMAGES})
    embeddings = ("generator.label", "critic.label")
    forward_inputs = ("noise", "labels")
    lr_scales: ClassVar[Mapping[str, float]] = {"critic": 4.0}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.critic = Critic(config)
        self.generator = Generator(config)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Painted images, between -1 and 1: b z, b -> b c y x."""
        images: Tensor = self.generator(noise, labels)
        return images

    def all_outputs(self, **inputs: Tensor) -> list[Tensor]:
        images = self(**inputs)
        return [images, self.critic(images, inputs["labels"])]

    def random_inputs(
        self, batch: int, length: int, generator: RandomGenerator
    ) -> dict[str, Tensor]:
        return {
            "noise": torch.randn(batch, self.config.noise, generator=generator),
            "labels": torch.randint(self.config.classes, (batch,), generator=generator),
        }
