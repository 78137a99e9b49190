"""The prior of a translator: a word-translation table, added to the logits of a network.

    P_table(token) = sum over source tokens of alignment * P(token | source token)
    logits = network's logits + gate₁ * log P(token)
             + gate₂ * log(1 + P_table(token) / P(token) / ε)

The table is estimated from the training pairs with IBM Model 1, with a prior that favors the
diagonal. The alignment is a distribution over the source tokens: attention from the network's
hidden states, plus six features that need no training. If the last target token translates source
token 4, the next one most likely translates source token 5, and hardly ever one that is already
translated. The end of the source is a token of its own, whose translation is the end token. So a
network whose own logits start at zero starts from a table that is read from left to right, and
learns what that gets wrong. The gates are computed from the hidden states and start at 1.

Shapes: b batch, t new target tokens, p all target tokens so far, s source tokens, d features,
k table entries per source token, c candidates: the entries of all tokens of a source,
v vocabulary, f folds + 1: row i excludes fold i, and the last row excludes nothing.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.counts import check_tables
from glassformer.nn.prior import Prior
from glassformer.nn.word_alignment import DIAGONAL_STRENGTH, WordPairs, fit_alignment
from glassformer.trace import Tap, tap

ALIGNMENT_DIM, GATE_HIDDEN = 64, 64
SMOOTHING = 0.1  # ε: without any entry, a token keeps this fraction of its probability
ALIGNMENT_SMOOTHING = 1e-4  # with less probable entries only, a target token is hardly aligned
# Initial weights of the features of source token j for the next target token: the previous target
# token translates j + 1, j, j - 1, j - 2; j has been translated; j's distance from the diagonal
FEATURE_WEIGHTS = (0.0, 0.5, 3.0, 1.0, -2.0, -DIAGONAL_STRENGTH)
INITIAL_UNALIGNED_SCORE = -1.0  # of aligning a target token with no source token


@dataclass(frozen=True)
class Candidates:
    """The table entries of all tokens of each source."""

    tokens: Tensor  # b c: distinct tokens; padded with tokens that have no probability
    probs: Tensor  # b s c: P(token | source token)


class LexicalPrior(Prior):
    """Adds the table entries of the source tokens to the logits of a translator."""

    entries: (
        Tensor  # source vocab + 1, k: the most frequent translations; the last row is the end's
    )
    probs: Tensor  # source vocab + 1, k
    unigrams: Tensor  # v: P(token)
    length_ratio: Tensor  # source tokens per target token, a scalar
    _fold_probs: Tensor | None  # f, source vocab + 1, k; not saved

    is_cross_fitted = True

    def __init__(self, dim: int, vocab: int, source_vocab: int, max_entries: int) -> None:
        super().__init__()
        shape = source_vocab + 1, max_entries
        self.register_buffer("entries", torch.zeros(shape, dtype=torch.int32))
        self.register_buffer("probs", torch.zeros(shape))
        self.register_buffer("unigrams", torch.full((vocab,), 1 / vocab))
        self.register_buffer("length_ratio", torch.ones(()))
        self.query = nn.Linear(dim, ALIGNMENT_DIM, bias=False)
        self.key = nn.Linear(dim, ALIGNMENT_DIM, bias=False)
        self.end_key = nn.Parameter(torch.zeros(ALIGNMENT_DIM))
        self.unaligned = nn.Linear(dim, 1)  # the score of no source token
        self.feature_weights = nn.Parameter(torch.tensor(FEATURE_WEIGHTS))
        self.gate_in = nn.Linear(dim, GATE_HIDDEN)
        self.gate_out = nn.Linear(GATE_HIDDEN, 2)
        nn.init.zeros_(self.query.weight)
        nn.init.zeros_(self.unaligned.weight)
        nn.init.constant_(self.unaligned.bias, INITIAL_UNALIGNED_SCORE)
        self.set_gates(0.0)
        self.register_buffer("_fold_probs", None, persistent=False)

    @property
    def taps(self) -> dict[str, Tap]:
        return {
            "network_logits": Tap("b t v"),
            "alignment": Tap("b t s+1", tr("softmax(Q Kᵀ / √{dim} + features)", dim=ALIGNMENT_DIM)),
            "lexical_gates": Tap("b t 2", tr("ReLU(X W₁ + b₁) W₂ + b₂")),
            "lexical_logits": Tap(
                "b t v", tr("gate₁ × log P + gate₂ × log(1 + alignment × entries / P / ε)")
            ),
        }

    def describe(self) -> str:
        count = f"{int((self.probs > 0).sum()):,}"
        return tr("{count} source-target token pairs", count=count)

    def forward(
        self,
        logits: Tensor,
        features: Tensor,
        keys: Tensor,
        ids: Tensor,
        positions: Tensor,
        source: Tensor,
        folds: Tensor | None = None,
    ) -> Tensor:
        """The network's logits (b t v) plus those of the table: b t v.

        Args:
            features: the hidden states from which the logits were computed (b t d).
            keys: `encode_keys` of the encoder's hidden states (b s 64).
            ids: all target ids so far (b p), the last t of them new, with -1 at padding.
            positions: of all target ids (p or b p), not counting padding.
            source: b s, with -1 at padding.
            folds: for each pair (b) the fold of the training pairs to leave out, the one that it
                is in: a table that includes the pair itself would look too reliable.
        """
        with torch.autocast(features.device.type, enabled=False):
            x = features.to(self.key.weight.dtype)
            source, keys = self.append_end(source, keys.to(x.dtype))
            candidates = self.find_candidates(source, folds)
            scores = self.query(x) @ keys.mT / ALIGNMENT_DIM**0.5  # b t s+1
            inputs = self.alignment_features(ids, positions, source, candidates)[:, -x.shape[1] :]
            scores = scores + inputs.to(x.dtype) @ self.feature_weights
            scores = scores.masked_fill(source[:, None] < 0, -float("inf"))
            alignment = torch.cat((scores, self.unaligned(x)), dim=2).softmax(dim=2)[..., :-1]
            alignment = tap("alignment", alignment)  # b t s+1
            # at least float32: the ratio of two probabilities may exceed the range of float16
            dtype = torch.promote_types(x.dtype, torch.float32)
            prob = alignment.to(dtype) @ candidates.probs.to(dtype)  # b t c
            unigrams = self.unigrams.to(dtype)
            evidence = torch.log1p(prob / (SMOOTHING * unigrams[candidates.tokens])[:, None])
            gates = tap("lexical_gates", self.gate_out(self.gate_in(x).relu())).to(dtype)  # b t 2
            total = gates[..., :1] * unigrams.log()  # b t v
            index = candidates.tokens[:, None].expand_as(evidence)
            total = tap("lexical_logits", total.scatter_add_(2, index, gates[..., 1:] * evidence))
        if not torch.is_autocast_enabled(features.device.type):
            total = total.to(logits.dtype)  # else float32: half precision would round too much
        return tap("network_logits", logits).to(total.dtype) + total

    def encode_keys(self, encoded: Tensor) -> Tensor:
        """The keys for the alignment, from the encoder's hidden states: b s d -> b s 64."""
        keys: Tensor = self.key(encoded)
        return keys

    def append_end(self, source: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Append a token for the end to the ids and keys of each source: b s, b s e -> s + 1."""
        is_real = F.pad(source, (1, 0), value=-1) >= 0
        is_end = is_real & (
            F.pad(source, (0, 1), value=-1) < 0
        )  # the first position after the text
        ids = F.pad(source, (0, 1), value=-1).masked_fill(is_end, len(self.entries) - 1)
        return ids, torch.where(is_end[..., None], self.end_key, F.pad(keys, (0, 0, 0, 1)))

    def find_candidates(self, source: Tensor, folds: Tensor | None = None) -> Candidates:
        """Look up the entries of the tokens of each source (b s, with -1 at padding).

        For the sources [[5, 6]] and the entries 5 -> 8 (0.7), 9 (0.2) and 6 -> 9 (0.6), the
        candidates are the tokens [[8, 9]] with the probabilities [[[0.7, 0.2], [0, 0.6]]].
        """
        ids = source.clamp(min=0)
        entries, probs = self.entries[ids].long(), self.find_probs(ids, folds)  # b s k
        probs = probs * (source >= 0)[..., None]
        flat = entries.flatten(1)
        ordered, order = flat.sort(dim=1)
        is_new = F.pad((ordered[:, 1:] != ordered[:, :-1]).long(), (1, 0))
        position = torch.empty_like(flat).scatter_(1, order, is_new.cumsum(dim=1))  # among the c
        count = int(position.max()) + 1
        tokens = flat.new_zeros(len(flat), count).scatter_(1, position, flat)
        shape = (*source.shape, count)
        return Candidates(
            tokens, probs.new_zeros(shape).scatter_add_(2, position.view_as(entries), probs)
        )

    def find_probs(self, source: Tensor, folds: Tensor | None) -> Tensor:
        """The probabilities of the entries of source ids, without a fold: b s -> b s k."""
        if folds is None:
            return self.probs[source]
        if self._fold_probs is None:
            if self.gate_out.bias.requires_grad:
                raise ValueError("the entries of the folds are missing: call `fit` before training")
            return self.probs[source]  # with LoRA, the prior of the base model is not trained
        return self._fold_probs[folds[:, None], source]

    def alignment_features(
        self, ids: Tensor, positions: Tensor, source: Tensor, candidates: Candidates
    ) -> Tensor:
        """What the target tokens so far imply for the source token of the next one: b p s 6.

        `past` (b p s) is the probability that a target token translates a source token. It is high
        if the table has this entry, and if the source token is close to the diagonal.
        """
        is_real = source >= 0
        j = (is_real.cumsum(dim=1) - 1)[:, None]  # b 1 s: positions in the source
        length = is_real.sum(dim=1).clamp(min=1)[:, None, None]
        i = (positions * self.length_ratio).expand_as(ids)[..., None]  # b p 1: of the next token
        distance = (j - i).abs() / length  # b p s
        past_distance = (j - i + self.length_ratio).abs() / length

        is_candidate = ids[..., None] == candidates.tokens[:, None]  # b p c
        past = is_candidate.to(candidates.probs.dtype) @ candidates.probs.mT  # b p s
        past = past * torch.exp(-DIAGONAL_STRENGTH * past_distance) * is_real[:, None]
        past = past / (past.sum(dim=2, keepdim=True) + ALIGNMENT_SMOOTHING)
        is_first = (positions == 0).expand_as(ids)[..., None] & (j == 0)  # after <start>
        moves = [shift(past, n) for n in (-1, 0, 1, 2)]
        moves[2] = moves[2].masked_fill(is_first, 1.0)
        translated = past.cumsum(dim=1).clamp(max=1.0)
        return torch.stack((*moves, translated, distance), dim=3)

    @torch.no_grad()
    def fit(self, source: Tensor, target: Tensor, folds: Tensor) -> None:
        """Estimate the table from pairs of texts: both are concatenated with -1 between texts.

        Each target ends with the end token. `folds` has the fold of each text.
        """
        source = end_texts(source, len(self.entries) - 1)
        ratio = (source >= 0).sum() / (target >= 0).sum().clamp(min=1)
        pairs = WordPairs.from_texts(source, target)
        aligned = fit_alignment(pairs)
        n_folds = int(folds.max()) + 1
        source_id, target_id = aligned.source_id, aligned.target_id
        cells = aligned.row * n_folds + folds[pairs.text]
        counts = torch.zeros(len(source_id) * n_folds).index_add(0, cells, aligned.probs)
        counts = counts.view(-1, n_folds)
        total = counts.sum(dim=1, keepdim=True)
        counts = torch.cat(((total - counts).clamp(min=0), total), dim=1)  # m f
        source_total = torch.zeros(len(self.entries), n_folds + 1).index_add(0, source_id, counts)
        probs = counts / (source_total[source_id] + 1)  # an entry seen once is not certain

        order = torch.argsort(total[:, 0], descending=True, stable=True)
        order = order[torch.argsort(source_id[order], stable=True)]
        source_id = source_id[order]
        target_id = target_id[order]
        probs = probs[order]
        start = torch.searchsorted(source_id, torch.arange(len(self.entries)))
        rank = torch.arange(len(source_id)) - start[source_id]
        is_kept = rank < self.entries.shape[1]
        cell = source_id[is_kept], rank[is_kept]
        entries = torch.zeros_like(self.entries, device="cpu")
        entries[cell] = target_id[is_kept].int()
        fold_probs = torch.zeros(n_folds + 1, *entries.shape)
        fold_probs[:, *cell] = probs[is_kept].T
        frequency = torch.bincount(target[target >= 0], minlength=len(self.unigrams)) + 1.0
        self.entries.copy_(entries)
        self.probs.copy_(fold_probs[-1])
        self.unigrams.copy_(frequency / frequency.sum())
        self.length_ratio.copy_(ratio)
        self._fold_probs = fold_probs.to(self.probs.device)

    @torch.no_grad()
    def set_gates(self, value: float) -> None:
        """Start with these gates for all features: 1 to use the table, 0 to ignore it."""
        nn.init.zeros_(self.gate_out.weight)
        nn.init.constant_(self.gate_out.bias, value)

    def start_from(self, base: Prior | None) -> None:
        """Copy the trained parameters of a prior with the same shapes; else close the gates."""
        state = dict(base.named_parameters()) if isinstance(base, LexicalPrior) else {}
        parameters = dict(self.named_parameters())
        if any(name not in state or state[name].shape != p.shape for name, p in parameters.items()):
            self.set_gates(0.0)
            return
        self.load_state_dict({n: p.detach() for n, p in state.items()}, strict=False)

    def check(self) -> None:
        """Raise an error for a loaded table that `fit` could not have produced."""
        is_valid = bool((self.entries >= 0).all() and (self.entries < len(self.unigrams)).all())
        check_tables(is_valid, "an entry of the translation table is not in the vocabulary")
        is_valid = bool((self.probs >= 0).all() and (self.probs <= 1).all())
        is_valid = is_valid and bool((self.unigrams > 0).all() and (self.unigrams <= 1).all())
        check_tables(is_valid, "a value is not a probability")
        check_tables(bool(self.length_ratio > 0), "the ratio of lengths is not positive")

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self._fold_probs is not None:  # keep it if the table is the same
            entries = state.get(f"{prefix}entries", self.entries).to(self.entries.device)
            probs = state.get(f"{prefix}probs", self.probs).to(self.probs.device)
            is_same = torch.equal(entries, self.entries) and torch.allclose(probs, self.probs)
            self._fold_probs = self._fold_probs if is_same else None
        super()._load_from_state_dict(state, prefix, *rest)


def end_texts(ids: Tensor, end: int) -> Tensor:
    """Append a token to each text of a tensor with -1 between texts."""
    ends = torch.cat(((ids < 0).nonzero()[:, 0], torch.tensor([len(ids)])))
    result = ids.new_full((len(ids) + len(ends),), end)
    is_old = torch.ones(len(result), dtype=torch.bool)
    is_old[ends + torch.arange(len(ends))] = False
    return result.masked_scatter(is_old, ids)


def shift(x: Tensor, count: int) -> Tensor:
    """Move the last axis to the right by `count`, to the left if it is negative, filling with 0."""
    size = x.shape[-1]
    return F.pad(x, (count, 0))[..., :size] if count > 0 else F.pad(x, (0, -count))[..., -size:]
