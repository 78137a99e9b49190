"""Parts for images: patches, spectral norms, attention over positions, up- and downsampling.

Shapes: b batch, c channels, y rows, x columns, t positions, d features, p patch size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.attention import attend
from glassformer.trace import Tap, tap

EVAL_ITERATIONS = 30  # of the power method; in training there is one per step


def split_patches(pixels: Tensor, size: int) -> Tensor:
    """Cut images into squares, row by row: b c y x -> b t c*p*p."""
    return F.unfold(pixels, size, stride=size).mT


class RandomShift(nn.Module):
    """In training, shifts each image by a random number of pixels, with zeros at the edges."""

    def __init__(self, max_shift: int) -> None:
        super().__init__()
        self.max_shift = max_shift

    def forward(self, pixels: Tensor) -> Tensor:
        """b c y x -> b c y x."""
        if not self.training or not self.max_shift:
            return pixels
        batch, _, height, width = pixels.shape
        padded = F.pad(pixels, (self.max_shift,) * 4)
        offsets = torch.randint(2 * self.max_shift + 1, (2, batch, 1), device=pixels.device)
        rows = offsets[0] + torch.arange(height, device=pixels.device)  # b y
        columns = offsets[1] + torch.arange(width, device=pixels.device)  # b x
        images = torch.arange(batch, device=pixels.device)[:, None, None]
        return padded.movedim(1, 3)[images, rows[:, :, None], columns[:, None]].movedim(3, 1)


class SpectralNorm(nn.Module):
    """Divides a weight by its largest singular value, so that a layer is 1-Lipschitz.

    The singular value is found by the power method, from where the last step left off (Miyato et
    al., 2018): one iteration per step in training. In eval mode, more iterations are made and not
    kept.
    """

    u: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("u", F.normalize(torch.randn(rows), dim=0))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1).clone()  # aligned memory: products round the same everywhere
        with torch.no_grad():
            u = self.u
            for _ in range(1 if self.training else EVAL_ITERATIONS):
                v = F.normalize(matrix.mT @ u, dim=0)
                u = F.normalize(matrix @ v, dim=0)
            if self.training:
                self.u.copy_(u)
                u = u.clone()  # the next pass changes the buffer in place
        return weight / tap("spectral_norm", u @ (matrix @ v))

    @property
    def taps(self) -> dict[str, Tap]:
        return {"spectral_norm": Tap("", tr("the largest singular value of the weight"))}


class SpectralConv(nn.Conv2d):
    """A convolution whose weight has a spectral norm of 1."""

    def __init__(
        self, channels: int, out_channels: int, size: int, *, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(channels, out_channels, size, stride=stride, padding=padding)
        self.norm = SpectralNorm(out_channels)
        nn.init.orthogonal_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.norm(self.weight), self.bias, self.stride, self.padding)


class SpectralLinear(nn.Linear):
    """A linear layer whose weight has a spectral norm of 1."""

    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__(dim, out_dim)
        self.norm = SpectralNorm(out_dim)
        nn.init.orthogonal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.norm(self.weight), self.bias)


class ImageAttention(nn.Module):
    """Self-attention over the positions of an image (Zhang et al., 2018): b c y x -> b c y x.

    Queries and keys have c/8 features, values c/2; keys and values are pooled over squares of four
    positions. The output is added to the input with a weight that is 0 at first.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = max(channels // 8, 1)
        half = max(channels // 2, 1)
        self.query, self.key = (SpectralConv(channels, narrow, 1) for _ in range(2))
        self.value = SpectralConv(channels, half, 1)
        self.out = SpectralConv(half, channels, 1)
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        q = tap("q", to_sequence(self.query(x)))  # b 1 t d
        k = tap("k", to_sequence(F.max_pool2d(self.key(x), 2)))  # b 1 s d
        v = tap("v", to_sequence(F.max_pool2d(self.value(x), 2)))
        attended = attend(q, k, v)
        image = attended[:, 0].mT.reshape(len(x), -1, *x.shape[2:])  # b c/2 y x
        return x + self.gain * tap("attended", self.out(image))

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "q": Tap("b h t e", "Q = X W_q"),
            "k": Tap("b h s e", "K = max pool(X W_k)"),
            "v": Tap("b h s e", "V = max pool(X W_v)"),
            "scores": Tap("b h t s", f"Q Kᵀ / √{self.query.out_channels}"),
            "pattern": Tap("b h t s", tr("softmax(scores)")),
            "attended": Tap("b c y x", tr("pattern V")),
        }


def to_sequence(x: Tensor) -> Tensor:
    """The positions of an image as a sequence, row by row: b c y x -> b 1 t c."""
    return x.flatten(2).mT[:, None]


class ClassNorm(nn.Module):
    """Normalizes groups of channels of each image, then scales and shifts them by its class."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        groups = max(channels // 8, 1)
        self.norm = nn.GroupNorm(groups, channels, affine=False)
        self.scale = nn.Linear(dim, channels)
        self.shift = nn.Linear(dim, channels)
        for layer in (self.scale, self.shift):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """x: b c y x; condition: b d."""
        scale, shift = (layer(condition)[:, :, None, None] for layer in (self.scale, self.shift))
        scaled: Tensor = self.norm(x) * (1 + scale) + shift
        return scaled


class UpBlock(nn.Module):
    """Doubles the height and width, in a generator: b c y x -> b c 2y 2x."""

    def __init__(self, channels: int, out_channels: int, dim: int) -> None:
        super().__init__()
        self.conv = SpectralConv(channels, out_channels, 3, padding=1)
        self.norm = ClassNorm(out_channels, dim)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(F.interpolate(x, scale_factor=2.0)), condition))


class DownBlock(nn.Module):
    """Halves the height and width, in a critic: b c 2y 2x -> b c y x."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = SpectralConv(channels, out_channels, 4, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.conv(x), 0.2)
