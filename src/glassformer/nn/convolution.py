"""Reading a text through a window that is the same everywhere."""

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.cache import LayerCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm

WIDEST = 10  # layers after which windows begin small again


def convolutions(
    dim: int, depth: int, kernel_size: int, *, causal: bool, dropout: float
) -> nn.ModuleList:
    """Layers of which each sees twice as far as the one before."""
    far = (2 ** (i % WIDEST) for i in range(depth))
    return nn.ModuleList(
        Convolution(dim, kernel_size, d, causal=causal, dropout=dropout) for d in far
    )


class Convolution(nn.Module):
    """One gated layer: each token sees `width` tokens, `dilation` places apart.

    They are those behind it and itself (causal), or as many on either side. What is before, after
    or padding counts as nothing.
    """

    def __init__(
        self, dim: int, kernel_size: int, dilation: int, *, causal: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.window = nn.Conv1d(dim, 2 * dim, kernel_size, dilation=dilation)
        self.dropout, self.reach = Dropout(dropout), (kernel_size - 1) * dilation
        self.causal = causal

    def forward(
        self, x: Tensor, layout: SequenceLayout, layer_cache: LayerCache | None = None
    ) -> Tensor:
        """x, b t d, and what the window shows of it."""
        seen: Tensor = self.norm(x)
        if layout.keep is not None:
            seen = seen * layout.keep[:, -layout.queries :, None]
        if layer_cache is not None:
            seen = layer_cache.extend(seen[:, None], seen[:, None])[0][:, 0]
        seen = seen[:, -(layout.queries + self.reach) :]
        missing = layout.queries + self.reach - seen.shape[1]
        left = missing if self.causal else missing // 2
        seen = F.pad(seen.mT, (left, missing - left))  # b d s
        added: Tensor = F.glu(self.window(seen), dim=1).mT
        return x + self.dropout(added)  # type: ignore[no-any-return]
