"""The count prior: a network is trained on top of n-gram counts, whose logits are added to its own.

    logits = network's logits + sum over kinds of evidence of gate * evidence

The gates are computed for each token from the network's features and from how often its context
occurred in the training text. They start at 1 for contexts up to the length that predicts best on
its own and at 0 for longer ones, so that training starts from the n-gram model.

Shapes: b batch, t tokens, n = b * t, p earlier tokens, d features, v vocabulary, k kinds of
evidence: the unigrams, then for each context length the followers seen once, 2 or 3 times, or more;
m stored n-gram terms, f folds + 1.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.counts import NGramCounts, check_tables, previous_ids
from glassformer.nn.evidence import MIN_COUNTS, Evidence, EvidenceTable
from glassformer.nn.prior import Prior, describe_ngrams
from glassformer.trace import Tap, tap

GATE_HIDDEN = 64  # hidden size of the gates
# tokens sampled to choose the order; max elements (n * v) of a chunk
SAMPLE_TOKENS, SAMPLE_ELEMENTS = 20_000, 2**22


class CountPrior(Prior):
    """Adds the predictions of n-gram counts to the logits of a network."""

    is_cross_fitted = True

    def __init__(self, dim: int, vocab: int, order: int) -> None:
        super().__init__()
        self.counts = NGramCounts(vocab, order)
        self.gate_in = nn.Linear(dim + 2 * order, GATE_HIDDEN)
        self.gate_out = nn.Linear(GATE_HIDDEN, 1 + order * len(MIN_COUNTS))
        self.close_gates()
        self._table: EvidenceTable | None = None

    @property
    def order(self) -> int:
        return self.counts.order

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "network_logits": Tap("b t v"),
            "gates": Tap("b t k", tr("ReLU([X, support] W₁ + b₁) W₂ + b₂")),
            "evidence": Tap("m", tr("log(1 + count / (distinct × prob with one fewer token))")),
            "count_logits": Tap("b t v", "Σ gate × evidence"),
        }

    def describe(self) -> str:
        return describe_ngrams(sum(map(len, self.counts.followers)), self.order + 1)

    def forward(
        self,
        logits: Tensor,
        features: Tensor,
        ids: Tensor,
        past_ids: Tensor | None = None,
        folds: Tensor | None = None,
    ) -> Tensor:
        """The network's logits (b t v) plus what the counts add to them: b t v.

        Args:
            features: the hidden states from which the logits were computed (b t d).
            ids: b t, with -1 at padding.
            past_ids: the ids before them (b p), with -1 before the start of the text.
            folds: for each token (b t) the fold of the training text to leave out, because the
                next token is in it: counts that include it would look too reliable.
        """
        evidence = self.find_evidence(ids, past_ids, folds)
        with torch.autocast(features.device.type, enabled=False):
            dtype = self.gate_in.weight.dtype
            inputs = torch.cat((features.flatten(0, 1).to(dtype), evidence.support.to(dtype)), 1)
            gates = self.gate_out(self.gate_in(inputs).relu())
            gates = tap("gates", torch.unflatten(gates, 0, ids.shape)).flatten(0, 1)  # n k
            gates = gates.to(torch.promote_types(dtype, torch.float32))
            # a product instead of a lookup, so that autograd keeps no row of v values per token
            is_fold = F.one_hot(evidence.fold, len(evidence.unigrams)).to(gates.dtype)  # n f
            total = (gates[:, :1] * is_fold) @ evidence.unigrams.to(gates.dtype)  # n v
            weight = gates[:, 1:].flatten().gather(0, evidence.slot)
            row = evidence.slot // (self.order * len(MIN_COUNTS))
            index = row * self.counts.vocab + evidence.token
            value = weight * tap("evidence", evidence.value)
            total = total.view(-1).scatter_add_(0, index, value).view(*ids.shape, -1)
        # under autocast it stays float32, because half precision would round too much
        if not torch.is_autocast_enabled(features.device.type):
            total = total.to(logits.dtype)
        total = tap("count_logits", total)
        return tap("network_logits", logits).to(total.dtype) + total

    def find_evidence(
        self, ids: Tensor, past_ids: Tensor | None = None, folds: Tensor | None = None
    ) -> Evidence:
        """The evidence for each token; the arguments are those of `forward`."""
        if folds is not None and not self.table.n_folds:
            if self.gate_out.bias.requires_grad:
                raise ValueError("the counts of the folds are missing: call `fit` before training")
            folds = None  # with LoRA, the prior of the base model is not trained
        columns = previous_ids(ids, self.order, past_ids)
        return self.table.find(columns, None if folds is None else folds.flatten())

    @property
    def table(self) -> EvidenceTable:
        table = EvidenceTable(self.counts) if self._table is None else self._table
        self._table = table.to(self.counts.followers[0].device)
        return self._table

    @torch.no_grad()
    def fit(self, ids: Tensor, folds: Tensor) -> int:
        """Count the n-grams of a text; `ids` (t) are its tokens and `folds` (t) the fold of each.

        Returns the max context length whose counts predict held-out folds best.
        """
        columns = previous_ids(ids[None, :-1], self.order)
        self.counts.fit(columns, ids[1:], folds[1:])
        order = self.choose_order(columns, ids[1:], folds[1:])
        self._table = EvidenceTable(self.counts)
        self.counts.free_fold_counts()  # the table already accounts for them
        return order

    def choose_order(self, columns: Sequence[Tensor], targets: Tensor, folds: Tensor) -> int:
        """The max context length whose counts predict a sample of held-out targets best."""
        sample = torch.linspace(0, len(targets) - 1, min(SAMPLE_TOKENS, len(targets))).long()
        loss = torch.zeros(self.order + 1, dtype=torch.float64)
        for rows in torch.split(sample, max(SAMPLE_ELEMENTS // self.counts.vocab, 1)):
            chunk = [column[rows] for column in columns]
            for length, probs in enumerate(self.counts.probs_by_length(chunk, folds[rows])):
                loss[length] -= probs.gather(1, targets[rows, None]).log().double().sum()
        return int(loss.argmin())

    @torch.no_grad()
    def open_gates(self, order: int) -> None:
        """Use all the evidence of contexts of up to `order` ids, and none of longer ones."""
        self.close_gates()
        self.gate_out.bias[: 1 + order * len(MIN_COUNTS)] = 1.0

    @torch.no_grad()
    def close_gates(self) -> None:
        """Use none of the evidence."""
        nn.init.zeros_(self.gate_out.weight)
        nn.init.zeros_(self.gate_out.bias)

    def start_from(self, base: Prior | None) -> None:
        """Copy the gates of a prior with the same inputs and outputs; else close the gates."""
        if not isinstance(base, CountPrior):
            self.close_gates()
            return
        pairs = ((self.gate_in, base.gate_in), (self.gate_out, base.gate_out))
        if any(new.weight.shape != old.weight.shape for new, old in pairs):
            self.close_gates()
            return
        for new, old in pairs:
            new.load_state_dict(old.state_dict())

    def check(self) -> None:
        """Raise an error for loaded counts that are empty or contain ids not in the vocabulary."""
        check_tables(len(self.counts.followers[0]) > 0, "they are empty")
        for length, followers in enumerate(self.counts.followers):
            keys = self.counts.contexts.keys
            contexts = len(keys[length - 1]) if length else 1
            limit = contexts * self.counts.vocab
            check_tables(not len(followers) or int(followers[-1]) < limit, "a key is too large")
            parents = len(keys[length - 2]) if length > 1 else 1
            is_valid = not length or bool((keys[length - 1] < parents * self.counts.vocab).all())
            check_tables(is_valid, "a key is too large")
            check_tables(
                len(self.counts.cumulative[length]) == len(followers) + 1, "one is missing"
            )

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self._table is not None:  # its folds are not saved: keep it if the counts match
            tables = self.counts.state_dict(prefix=f"{prefix}counts.")
            is_same = all(n in state and torch.equal(v, state[n]) for n, v in tables.items())
            self._table = self._table if is_same else None
        super()._load_from_state_dict(state, prefix, *rest)
