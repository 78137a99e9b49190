"""Norms: bring each token's features to one size. A trace sees the steps, else a kernel runs."""

from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap, watched


class LayerNorm(nn.LayerNorm):
    """Less the mean, over the standard deviation; then a learned scale and shift."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__(dim, eps=eps)

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "mean": Tap("b t 1", tr("mean of the row")),
            "std": Tap("b t 1", tr("√(mean of (x − mean)² + ε)")),
            "normalized": Tap("b t d", tr("(x − mean) / deviation")),
        }

    def forward(self, x: Tensor) -> Tensor:
        if not watched("mean", "std", "normalized"):
            return super().forward(x)
        mean = tap("mean", x.mean(dim=-1, keepdim=True))
        variance = (x - mean).square().mean(dim=-1, keepdim=True)
        deviation = tap("std", (variance + self.eps).sqrt())
        return tap("normalized", (x - mean) / deviation) * self.weight + self.bias


class RMSNorm(nn.RMSNorm):
    """Over the root of the mean square; then a learned scale."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__(dim, eps=eps)

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "std": Tap("b t 1", tr("√(mean of x² + ε)")),
            "normalized": Tap("b t d", tr("x / deviation")),
        }

    def forward(self, x: Tensor) -> Tensor:
        if not watched("std", "normalized"):
            return super().forward(x)
        square = x.square().mean(dim=-1, keepdim=True)
        deviation = tap("std", (square + (self.eps or 0.0)).sqrt())
        return tap("normalized", x / deviation) * self.weight
