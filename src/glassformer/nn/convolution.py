"""Gated, dilated convolutions over a sequence.

Shapes: b batch, t tokens, s tokens inside the receptive field, d features.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.cache import LayerCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm

DILATION_CYCLE = 10  # layers after which the dilation restarts at 1


def convolutions(
    dim: int, depth: int, kernel_size: int, *, causal: bool, dropout: float
) -> nn.ModuleList:
    """Layers, each with twice the dilation of the one before: 1, 2, 4, ..., 512, 1, ..."""
    dilations = (2 ** (i % DILATION_CYCLE) for i in range(depth))
    return nn.ModuleList(
        Convolution(dim, kernel_size, dilation, causal=causal, dropout=dropout)
        for dilation in dilations
    )


class Convolution(nn.Module):
    """One gated layer: each token sees `kernel_size` tokens, `dilation` positions apart.

    If `causal`, these are the token itself and earlier ones; otherwise, the window is centered on
    the token. Padding and positions outside the sequence count as zeros.
    """

    def __init__(
        self, dim: int, kernel_size: int, dilation: int, *, causal: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.window = nn.Conv1d(dim, 2 * dim, kernel_size, dilation=dilation)
        self.dropout = Dropout(dropout)
        self.reach = (kernel_size - 1) * dilation
        self.causal = causal

    def forward(
        self, x: Tensor, layout: SequenceLayout, layer_cache: LayerCache | None = None
    ) -> Tensor:
        """x plus the gated convolution of x: b t d -> b t d. The cache holds earlier inputs."""
        inputs: Tensor = self.norm(x)
        if layout.keep is not None:
            inputs = inputs * layout.keep[:, -layout.queries :, None]
        if layer_cache is not None:
            inputs = layer_cache.extend(inputs[:, None], inputs[:, None])[0][:, 0]
        inputs = inputs[:, -(layout.queries + self.reach) :]
        missing = layout.queries + self.reach - inputs.shape[1]
        left = missing if self.causal else missing // 2
        inputs = F.pad(inputs.mT, (left, missing - left))  # b d s
        y: Tensor = F.glu(self.window(inputs), dim=1).mT
        return x + self.dropout(y)  # type: ignore[no-any-return]
