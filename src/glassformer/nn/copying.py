"""A copy head: the next token is generated, or copied from the tokens so far (See et al., 2017).

Shapes: b batch, t queries, s tokens so far, d features, v vocabulary.
"""

import math

import torch
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap

MIN_PROB = 1e-12  # keeps the logarithm and its gradient finite


class CopyHead(nn.Module):
    """Mixes a distribution over the vocabulary with one over the tokens that can be copied.

    A single attention head chooses the token to copy, and a gate how much is copied.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.gate = nn.Linear(dim, 1)

    def forward(
        self, logits: Tensor, features: Tensor, keys: Tensor, ids: Tensor, allowed: Tensor
    ) -> Tensor:
        """Log-probabilities: logits b t v, features b t d, keys b s d, ids b s -> b t v.

        `allowed` (b t s, or t s) is true where a query may copy a token.
        """
        q = self.query(features)
        has_key = allowed.any(dim=-1, keepdim=True)  # not at padding, where softmax would be NaN
        scores = (q @ keys.mT / math.sqrt(q.shape[2])).masked_fill(
            ~allowed & has_key, -float("inf")
        )
        scores = tap("scores", scores[:, None])  # b 1 t s: one head
        pattern = tap("pattern", scores.float().softmax(dim=-1) * has_key[..., None, :, :])[:, 0]
        copied = torch.zeros(logits.shape, dtype=pattern.dtype, device=logits.device)
        index = ids.clamp(min=0)[:, None].expand(pattern.shape)
        copied = tap("copied", copied.scatter_add(2, index, pattern))  # b t v
        gate = tap("copy_gate", torch.sigmoid(self.gate(features).float()))  # b t 1
        probs = gate * copied + (1 - gate) * logits.float().softmax(dim=-1)
        return probs.clamp(min=MIN_PROB).log().to(logits.dtype)

    @property
    def taps(self) -> dict[str, Tap]:
        product = tr("{product}, −∞ where masked", product="Q Kᵀ / √d")
        return {
            "scores": Tap("b h t s", product),
            "pattern": Tap("b h t s", tr("softmax(scores)")),
            "copied": Tap("b t v", tr("sum of the pattern over the occurrences of each token")),
            "copy_gate": Tap("b t 1", tr("σ(X w + b): the probability of copying")),
        }
