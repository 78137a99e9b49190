"""A copy head: the next token is generated, or copied from the document (See et al., 2017).

It starts as a rule that copies the document from its beginning. Four features tell which token of
the document may come next, and their weights are trained with everything else:

    follows   the token before it equals the current token
    follows_2 the two tokens before it equal the last two tokens
    starts    it is the first token, and no token follows the current one
    used      it already occurs in the summary

Shapes: b batch, t queries, s tokens so far, d features, v vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.trace import Tap, tap

MIN_PROB = 1e-12  # keeps the logarithm and its gradient finite
FEATURE_WEIGHTS = (5.0, 3.0, 8.0, -2.0)  # at first: follows, follows_2, starts, used
COPY_LOGIT = 2.0  # of the gate at first


class CopyHead(nn.Module):
    """Mixes a distribution over the vocabulary with one over the tokens of the document.

    A single attention head chooses the token to copy, and a gate how much is copied.
    """

    def __init__(self, dim: int, sep: int) -> None:
        super().__init__()
        self.sep = sep
        self.query, self.key = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.feature_weights = nn.Parameter(torch.tensor(FEATURE_WEIGHTS))
        self.gate = nn.Linear(dim, 1)
        nn.init.zeros_(self.query.weight)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, COPY_LOGIT)

    def forward(
        self, logits: Tensor, features: Tensor, keys: Tensor, ids: Tensor, index: Tensor
    ) -> Tensor:
        """Log-probabilities: logits b t v, features b t d, keys b s d, ids b s -> b t v.

        `index` (b t) has the position of each query among the tokens so far; `ids` are -1 at
        padding.
        """
        past = torch.arange(ids.shape[1], device=ids.device) <= index[..., None]  # b t s
        is_copyable = past & ((ids >= 0) & self.is_document(ids))[:, None]
        has_key = is_copyable.any(dim=-1, keepdim=True)  # without one, softmax would be NaN
        q = self.query(features)
        scores = q @ keys.mT / math.sqrt(q.shape[2])
        inputs = self.copy_features(ids, past, index, logits.shape[2]).to(scores.dtype)
        scores = scores + inputs @ self.feature_weights.to(scores.dtype)
        scores = scores.masked_fill(~is_copyable & has_key, -float("inf"))
        scores = tap("scores", scores[:, None])  # b 1 t s: one head
        pattern = tap("pattern", scores.float().softmax(dim=-1) * has_key[:, None])[:, 0]
        copied = torch.zeros(logits.shape, dtype=pattern.dtype, device=logits.device)
        columns = ids.clamp(min=0)[:, None].expand(pattern.shape)
        copied = tap("copied", copied.scatter_add(2, columns, pattern))  # b t v
        gate = tap("copy_gate", torch.sigmoid(self.gate(features).float()))  # b t 1
        probs = gate * copied + (1 - gate) * logits.float().softmax(dim=-1)
        return probs.clamp(min=MIN_PROB).log().to(logits.dtype)

    def copy_features(self, ids: Tensor, past: Tensor, index: Tensor, vocab: int) -> Tensor:
        """What the tokens so far imply for the token to copy next: b t s 4.

        `past` (b t s) is true at the tokens up to each query.
        """
        before, before_2 = (F.pad(ids, (n, 0), value=-1)[:, :-n] for n in (1, 2))  # b s
        current, previous = ids.gather(1, index), before.gather(1, index)  # b t
        in_document = self.is_document(ids)[:, None]
        follows = (before[:, None] == current[..., None]) & past & in_document
        follows_2 = follows & (before_2[:, None] == previous[..., None])
        starts = (before < 0)[:, None] & ~follows.any(dim=2, keepdim=True)
        columns = ids.clamp(min=0)[:, None].expand(past.shape)
        counts = torch.zeros(*index.shape, vocab, device=ids.device)  # of tokens in the summary
        counts = counts.scatter_add(2, columns, (past & ~in_document).float())  # b t v
        used = counts.gather(2, columns) > 0
        features = (follows, follows_2, starts.expand_as(used), used)
        return torch.stack(features, dim=3)

    def is_document(self, ids: Tensor) -> Tensor:
        """Whether a token is before the separator: b s."""
        return (ids == self.sep).cumsum(dim=1) == 0

    @property
    def taps(self) -> dict[str, Tap]:
        product = tr("{product}, −∞ where masked", product="Q Kᵀ / √d + features w")
        return {
            "scores": Tap("b h t s", product),
            "pattern": Tap("b h t s", tr("softmax(scores)")),
            "copied": Tap("b t v", tr("sum of the pattern over the occurrences of each token")),
            "copy_gate": Tap("b t 1", tr("σ(X w + b): the probability of copying")),
        }
