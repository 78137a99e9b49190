"""A vision Transformer: classifies an image from its patches (Dosovitskiy et al., 2020).

Attention treats the patches as a set; only the position embedding tells where a patch belongs. With
a patch size of 1, the set consists of pixels.

Shapes: b batch, c channels, y rows, x columns, t patches, d features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.models.image_network import ImageClassifier, ImageConfig
from glassformer.models.network import Trait
from glassformer.nn import init
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.heads import POOLED, mean_pool
from glassformer.nn.image import RandomShift, split_patches
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Learned
from glassformer.trace import Tap, tap


@dataclass(frozen=True)
class Config(ImageConfig):
    patch: int = 4  # height and width of a patch, in pixels
    dim: int = 64
    depth: int = 4
    heads: int = 4
    dropout: float = 0.0
    max_shift: int = 2  # in training, images are shifted at random by up to this many pixels

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.height % self.patch or self.width % self.patch:
            raise GlassError(
                f"images of {self.width} x {self.height} pixels cannot be cut into patches of "
                f"{self.patch} x {self.patch}: set model.patch to a divisor of both"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """The number of patches in a column and in a row."""
        return self.height // self.patch, self.width // self.patch


class Vision(ImageClassifier):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.ATTENTION, Trait.COMPILABLE, Trait.IMAGES})
    embeddings = ("position",)
    stacks = ("blocks",)
    output_heads = ("head",)
    taps: ClassVar[dict[str, Tap]] = {"embedded": Tap("b t d", "X W + b + P"), **POOLED}
    train_settings: ClassVar[Mapping[str, Any]] = {"optimizer": "muon", "lr": 0.02, "beta2": 0.95}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        rows, columns = c.grid
        self.shift = RandomShift(c.max_shift)
        self.patches = nn.Linear(c.channels * c.patch**2, c.dim)
        self.position = Learned(rows * columns, c.dim)
        self.blocks = nn.ModuleList(
            Block(
                c.dim,
                Attention(c.dim, c.heads, dropout=c.dropout),
                FeedForward(c.dim, 4 * c.dim, dropout=c.dropout),
            )
            for _ in range(c.depth)
        )
        self.norm = LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.classes)
        init.normal(self)
        nn.init.normal_(self.patches.weight, std=self.patches.in_features**-0.5)

    def forward(self, pixels: Tensor) -> Tensor:
        """Class logits of each image: b c y x -> b c."""
        x = self.patches(split_patches(self.shift(pixels), self.config.patch))  # b t d
        layout = SequenceLayout(x.shape[1], x.shape[1], device=x.device)
        x = tap("embedded", x + self.position(layout))
        for block in self.blocks:
            x = block(x, layout)
        logits: Tensor = self.head(mean_pool(self.norm(x)))
        return logits
