"""Where a token is. Some schemes add to the embedding, the others speak inside attention."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.nn.layout import SequenceLayout


class Learned(nn.Embedding):
    """A learned vector for each position, added to the embedding: b t d or t d."""

    def forward(self, layout: SequenceLayout) -> Tensor:  # type: ignore[override]
        at = layout.positions()
        if layout.keys > self.num_embeddings and int(at.max()) >= self.num_embeddings:
            longer = f"{int(at.max()) + 1} tokens do not fit into a context of"
            raise GlassError(f"{longer} {self.num_embeddings}: shorten the text")
        return super().forward(at)


class Sinusoidal(nn.Module):
    """The paper's waves, added to the embedding: b t d or t d."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 2:
            raise GlassError(f"waves come in pairs: dim must be even, not {dim}")
        self.dim = dim

    def forward(self, layout: SequenceLayout) -> Tensor:
        return sinusoid(layout.positions(), self.dim)


class Position(nn.Module):
    """No position inside attention: what each scheme there starts from."""

    def rotate(self, q: Tensor, k: Tensor, layout: SequenceLayout) -> tuple[Tensor, Tensor]:
        """Change queries, b h t e, and the keys that are not yet in a past, b g s e."""
        return q, k

    def bias(self, q: Tensor, layout: SequenceLayout) -> Tensor | None:
        """Something to add to the scores, b h t s; q is as it was before `rotate`."""
        return None

    def formula(self, product: str) -> str:
        """How the scores are made, from the product of queries and keys."""
        return product


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's way to a longer context: slow waves are slowed by `factor`, fast ones kept."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        check_bounds(vars(self))
        if self.high_freq_factor <= self.low_freq_factor:
            raise GlassError(f"{self} stretches nothing: high must be above low")

    def __call__(self, rates: Tensor) -> Tensor:
        turns = (
            self.original_context * rates / (2 * math.pi)
        )  # in the context it was first trained with
        kept = (
            (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        ).clamp(0, 1)
        return rates * (kept + (1 - kept) / self.factor)


class Rotary(Position):
    """Turns each pair of features by an angle that grows with position (RoPE).

    Feature i pairs with feature i + e/2, as in Hugging Face's Llama.
    """

    def __init__(
        self, head_dim: int, rope_theta: float = 10_000.0, rope_scaling: RopeScaling | None = None
    ) -> None:
        super().__init__()
        if head_dim % 2:
            raise GlassError(
                f"rotary positions turn pairs of features: {head_dim} a head are not even"
            )
        self.head_dim, self.rope_theta, self.rope_scaling = head_dim, rope_theta, rope_scaling

    def rotate(self, q: Tensor, k: Tensor, layout: SequenceLayout) -> tuple[Tensor, Tensor]:
        key, t = ("waves", self.head_dim, self.rope_theta, self.rope_scaling, k.dtype), q.shape[2]
        cos, sin = layout.compute_once(
            key, lambda: self.waves(layout.positions(k.shape[2]), k.dtype)
        )
        return turn(q, cos[..., -t:, :], sin[..., -t:, :]), turn(k, cos, sin)

    def waves(self, at: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every angle, 1 s e/2 or b 1 s e/2."""
        rates = frequencies(self.head_dim, self.rope_theta, at.device)
        rates = rates if self.rope_scaling is None else self.rope_scaling(rates)
        angles = (at[..., None] * rates).unsqueeze(-3)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def formula(self, product: str) -> str:
        return tr("{product} of turned Q and K", product=product)


STEEPER = 8.0  # the slope of the side that a head does not look at


class Alibi(Position):
    """Each head finds tokens duller the farther away they are, at a slope of its own (ALiBi).

    Where tokens see both sides, the slope alone cannot tell the one from the other: with `sided`,
    every other head looks ahead and those between look back, at a slope that is steeper on the
    other side.
    """

    def __init__(self, heads: int, *, sided: bool = False) -> None:
        super().__init__()
        self.heads, self.sided = heads, sided

    def bias(self, q: Tensor, layout: SequenceLayout) -> Tensor:
        key = ("alibi", self.heads, self.sided, q.dtype)
        return layout.compute_once(key, lambda: self.slant(q, layout))

    def slant(self, q: Tensor, layout: SequenceLayout) -> Tensor:
        slope = torch.tensor(slopes(self.heads), dtype=q.dtype, device=q.device)[:, None, None]
        far = distances(layout, q.device).to(q.dtype).expand(self.heads, -1, -1)  # h t s
        if self.sided:
            back = torch.arange(self.heads, device=q.device)[:, None, None] % 2 == 0
            far = torch.where((far > 0) == back, far, STEEPER * far)
        return -slope * far.abs()

    def formula(self, product: str) -> str:
        return tr("{product} + bias by distance", product=product)


class Relative(Position):
    """Transformer-XL: scores also depend on how far apart two tokens are, in learned ways."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.content, self.distance = (nn.Parameter(torch.zeros(heads, 1, head_dim)) for _ in "uv")
        self.project = nn.Linear(heads * head_dim, heads * head_dim, bias=False)
        self.heads = heads

    def rotate(self, q: Tensor, k: Tensor, layout: SequenceLayout) -> tuple[Tensor, Tensor]:
        return q + self.content, k

    def bias(self, q: Tensor, layout: SequenceLayout) -> Tensor:
        t, s = layout.queries, layout.keys
        far = torch.arange(s - 1, -t, -1, device=q.device)  # every distance that occurs
        r: Tensor = self.project(sinusoid(far, self.project.in_features).to(q.dtype))
        r = torch.unflatten(r, -1, (self.heads, -1)).transpose(0, 1)  # h s+t-1 e
        scores: Tensor = (q + self.distance) @ r.mT / math.sqrt(q.shape[3])  # b h t s+t-1
        column = s - 1 - distances(layout, q.device)  # t s, where far holds each pair's distance
        return scores.gather(-1, column.expand(*q.shape[:2], t, s))

    def formula(self, product: str) -> str:
        return tr("{product} + bias by distance", product=product)


def distances(layout: SequenceLayout, device: torch.device) -> Tensor:
    """How far behind each query each key stands, t s; negative for keys still to come."""
    i = torch.arange(layout.keys - layout.queries, layout.keys, device=device)
    return i[:, None] - torch.arange(layout.keys, device=device)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def frequencies(dim: int, rope_theta: float, device: torch.device) -> Tensor:
    """Radians a place, for each pair of features."""
    return torch.pow(rope_theta, -torch.arange(0, dim, 2, device=device) / dim)


def sinusoid(at: Tensor, dim: int) -> Tensor:
    """sin and cos of at / 10000^(2i/dim), in turn: b t d or t d."""
    angles = at[..., None] * frequencies(dim, 10_000.0, at.device)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def slopes(heads: int) -> list[float]:
    """The paper's slopes: powers of 2^(-8/n) for the power of two below, then those between."""
    n = 2 ** int(math.log2(heads))
    between = [2 ** (-4 * (2 * i + 1) / n) for i in range(heads - n)]
    return [2 ** (-8 * (i + 1) / n) for i in range(n)] + between
