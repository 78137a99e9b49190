"""Position encodings: some are added to the embedding, the others act inside attention.

Shapes: b batch, t queries, s keys, d features, h heads, g key/value heads, e features of a head.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.nn.layout import SequenceLayout


class Learned(nn.Embedding):
    """A learned vector per position, to add to the embedding: b t d, or t d without padding."""

    def forward(self, layout: SequenceLayout) -> Tensor:  # type: ignore[override]
        positions = layout.positions()
        if layout.keys > self.num_embeddings and int(positions.max()) >= self.num_embeddings:
            problem = f"{int(positions.max()) + 1} tokens do not fit in a context of"
            raise GlassError(f"{problem} {self.num_embeddings}: shorten the text")
        return super().forward(positions)


class Sinusoidal(nn.Module):
    """The sinusoids of Vaswani et al., to add to the embedding: b t d, or t d without padding."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 2:
            raise GlassError(f"sinusoidal positions need an even dim, got {dim}")
        self.dim = dim

    def forward(self, layout: SequenceLayout) -> Tensor:
        return sinusoid(layout.positions(), self.dim)


class Position(nn.Module):
    """The base class of position encodings inside attention; by itself it encodes nothing."""

    def rotate(self, q: Tensor, k: Tensor, layout: SequenceLayout) -> tuple[Tensor, Tensor]:
        """Transform the queries (b h t e) and the keys that are not yet in a cache (b g s e)."""
        return q, k

    def bias(self, q: Tensor, layout: SequenceLayout) -> Tensor | None:
        """A bias to add to the scores (b h t s); q is not yet transformed by `rotate`."""
        return None

    def formula(self, product: str) -> str:
        """The formula for the scores, given the formula for the product of queries and keys."""
        return product


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's scaling to a longer context: divide low frequencies by `factor`, keep high ones.

    A frequency is low if it makes fewer than `low_freq_factor` turns within the original context,
    and high if it makes more than `high_freq_factor`; in between, the scaling is interpolated.
    """

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        check_bounds(vars(self))
        if self.high_freq_factor <= self.low_freq_factor:
            raise GlassError(f"high_freq_factor must be greater than low_freq_factor in {self}")

    def __call__(self, freqs: Tensor) -> Tensor:
        turns = self.original_context * freqs / (2 * math.pi)
        unscaled = (
            (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        ).clamp(0, 1)
        return freqs * (unscaled + (1 - unscaled) / self.factor)


class Rotary(Position):
    """Rotates each pair of features by an angle proportional to the position (RoPE).

    Feature i pairs with feature i + e/2, as in Hugging Face's Llama.
    """

    def __init__(
        self, head_dim: int, rope_theta: float = 10_000.0, rope_scaling: RopeScaling | None = None
    ) -> None:
        super().__init__()
        if head_dim % 2:
            raise GlassError(f"rotary positions need an even head_dim, got {head_dim}")
        self.head_dim = head_dim
        self.rope_theta = rope_theta
        self.rope_scaling = rope_scaling

    def rotate(self, q: Tensor, k: Tensor, layout: SequenceLayout) -> tuple[Tensor, Tensor]:
        key = ("rotary", self.head_dim, self.rope_theta, self.rope_scaling, k.dtype)
        t = q.shape[2]
        cos, sin = layout.compute_once(  # for the new keys, whose number is the same in all layers
            key, lambda: self.cos_and_sin(layout.positions(k.shape[2]), k.dtype)
        )
        return rotate_pairs(q, cos[..., -t:, :], sin[..., -t:, :]), rotate_pairs(k, cos, sin)

    def cos_and_sin(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every angle, 1 s e/2, or b 1 s e/2 if there is padding."""
        freqs = frequencies(self.head_dim, self.rope_theta, positions.device)
        freqs = freqs if self.rope_scaling is None else self.rope_scaling(freqs)
        angles = (positions[..., None] * freqs).unsqueeze(-3)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def formula(self, product: str) -> str:
        return tr("{product} of rotated Q and K", product=product)


OTHER_SIDE_FACTOR = 8.0  # how much steeper the slope is on the side that a head does not favor


class Alibi(Position):
    """Scores fall linearly with the distance, with a slope for each head (ALiBi).

    In a bidirectional model the distance alone does not distinguish earlier from later tokens.
    With `directional`, even heads favor earlier and odd heads later tokens: the slope is steeper
    on the other side.
    """

    def __init__(self, heads: int, *, directional: bool = False) -> None:
        super().__init__()
        self.heads, self.directional = heads, directional

    def bias(self, q: Tensor, layout: SequenceLayout) -> Tensor:
        key = ("alibi", self.heads, self.directional, q.dtype)
        return layout.compute_once(key, lambda: self.compute_bias(q, layout))

    def compute_bias(self, q: Tensor, layout: SequenceLayout) -> Tensor:
        slope = torch.tensor(slopes(self.heads), dtype=q.dtype, device=q.device)[:, None, None]
        distance = distances(layout, q.device).to(q.dtype).expand(self.heads, -1, -1)  # h t s
        if self.directional:
            favors_past = torch.arange(self.heads, device=q.device)[:, None, None] % 2 == 0
            is_favored = (distance > 0) == favors_past
            distance = torch.where(is_favored, distance, OTHER_SIDE_FACTOR * distance)
        return -slope * distance.abs()

    def formula(self, product: str) -> str:
        return tr("{product} + distance bias", product=product)


class Relative(Position):
    """Transformer-XL's relative positions: learned scores for the distance from query to key."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.content, self.distance = (nn.Parameter(torch.zeros(heads, 1, head_dim)) for _ in "uv")
        self.project = nn.Linear(heads * head_dim, heads * head_dim, bias=False)
        self.heads = heads

    def rotate(self, q: Tensor, k: Tensor, layout: SequenceLayout) -> tuple[Tensor, Tensor]:
        return q + self.content, k

    def bias(self, q: Tensor, layout: SequenceLayout) -> Tensor:
        t, s = layout.queries, layout.keys
        all_distances = torch.arange(s - 1, -t, -1, device=q.device)  # s+t-1
        r: Tensor = self.project(sinusoid(all_distances, self.project.in_features).to(q.dtype))
        r = torch.unflatten(r, -1, (self.heads, -1)).transpose(0, 1)  # h s+t-1 e
        scores: Tensor = ((q + self.distance) / math.sqrt(q.shape[3])) @ r.mT  # b h t s+t-1
        # query i has the scores for its s keys in columns t-1-i to t-1-i+s-1: shift each row
        shifted = scores.flatten(-2)[..., t - 1 : -1] if t > 1 else scores.flatten(-2)
        return torch.unflatten(shifted, -1, (t, -1))[..., :s]

    def formula(self, product: str) -> str:
        return tr("{product} + distance bias", product=product)


def distances(layout: SequenceLayout, device: torch.device) -> Tensor:
    """Query position minus key position (t s): positive for earlier keys, negative for later."""
    i = torch.arange(layout.keys - layout.queries, layout.keys, device=device)
    return i[:, None] - torch.arange(layout.keys, device=device)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def frequencies(dim: int, rope_theta: float, device: torch.device) -> Tensor:
    """Radians per position for each pair of features: dim/2."""
    return torch.pow(rope_theta, -torch.arange(0, dim, 2, device=device) / dim)


def sinusoid(positions: Tensor, dim: int) -> Tensor:
    """sin and cos of position / 10000^(2i/dim), interleaved: b t -> b t d, or t -> t d."""
    angles = positions[..., None] * frequencies(dim, 10_000.0, positions.device)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def slopes(heads: int) -> list[float]:
    """The slopes of the ALiBi paper: powers of 2^(-8/n), n the largest power of two <= heads.

    The remaining heads get the slopes halfway between these (in the exponent).
    """
    n = 2 ** int(math.log2(heads))
    halfway = [2 ** (-4 * (2 * i + 1) / n) for i in range(heads - n)]
    return [2 ** (-8 * (i + 1) / n) for i in range(n)] + halfway
