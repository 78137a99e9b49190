"""Reading a text through a window that is the same everywhere."""

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.cache import Past
from glassformer.nn.dropout import Dropout
from glassformer.nn.norms import LayerNorm
from glassformer.nn.span import Span

WIDEST = 10  # layers after which windows begin small again


def convolutions(
    dim: int, depth: int, width: int, *, causal: bool, dropout: float
) -> nn.ModuleList:
    """Layers of which each sees twice as far as the one before."""
    far = (2 ** (i % WIDEST) for i in range(depth))
    return nn.ModuleList(Convolution(dim, width, d, causal=causal, dropout=dropout) for d in far)


class Convolution(nn.Module):
    """One gated layer: each token sees `width` tokens, `dilation` places apart.

    They are those behind it and itself (causal), or as many on either side. What is before, after
    or padding counts as nothing.
    """

    def __init__(
        self, dim: int, width: int, dilation: int, *, causal: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.window = nn.Conv1d(dim, 2 * dim, width, dilation=dilation)
        self.dropout, self.reach = Dropout(dropout), (width - 1) * dilation
        self.causal = causal

    def forward(self, x: Tensor, span: Span, past: Past | None = None) -> Tensor:
        """x, b t d, and what the window shows of it."""
        seen: Tensor = self.norm(x)
        if span.keep is not None:
            seen = seen * span.keep[:, -span.queries :, None]
        if past is not None:
            seen = past.extend(seen[:, None], seen[:, None])[0][:, 0]
        seen = seen[:, -(span.queries + self.reach) :]
        missing = span.queries + self.reach - seen.shape[1]
        left = missing if self.causal else missing // 2
        seen = F.pad(seen.mT, (left, missing - left))  # b d s
        added: Tensor = F.glu(self.window(seen), dim=1).mT
        return x + self.dropout(added)  # type: ignore[no-any-return]
