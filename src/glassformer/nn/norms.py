"""Norms over the features of each token: step by step if traced, else with torch's kernel.

Shapes: b batch, t tokens, d features.
"""

from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap, watched


class LayerNorm(nn.LayerNorm):
    """(x - mean) / standard deviation, then a learned scale and shift.

    `axes` names all axes of x but the last.
    """

    def __init__(self, dim: int, eps: float = 1e-5, axes: str = "b t") -> None:
        super().__init__(dim, eps=eps)
        self.axes = axes

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "mean": Tap(f"{self.axes} 1", tr("mean of the row")),
            "std": Tap(f"{self.axes} 1", tr("√(mean of (x − mean)² + ε)")),
            "normalized": Tap(f"{self.axes} d", tr("(x − mean) / std")),
        }

    def forward(self, x: Tensor) -> Tensor:
        if not watched("mean", "std", "normalized"):
            return super().forward(x)
        mean = tap("mean", x.mean(dim=-1, keepdim=True))
        variance = (x - mean).square().mean(dim=-1, keepdim=True)
        std = tap("std", (variance + self.eps).sqrt())
        return tap("normalized", (x - mean) / std) * self.weight + self.bias


class RMSNorm(nn.RMSNorm):
    """x / root mean square, then a learned scale."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__(dim, eps=eps)

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "std": Tap("b t 1", tr("√(mean of x² + ε)")),
            "normalized": Tap("b t d", tr("x / std")),
        }

    def forward(self, x: Tensor) -> Tensor:
        if not watched("std", "normalized"):
            return super().forward(x)
        mean_square = x.square().mean(dim=-1, keepdim=True)
        std = tap("std", (mean_square + (self.eps or 0.0)).sqrt())
        return tap("normalized", x / std) * self.weight
