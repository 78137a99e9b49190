"""The lead sentence: a document is summarized by its first sentence.

Shapes: b batch, t tokens, s tokens so far, n chosen positions, v vocabulary.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.nn.layout import SequenceLayout, mark_padding

OTHER_TOKEN_PROB = 0.05  # total probability of all tokens except the next one of the sentence


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 8192
    sep: int = 0  # the id between a document and its summary
    eos: int = 1  # the id that ends a summary


class Lead(Network):
    """Copies the first sentence; fitting stores which tokens end a sentence."""

    Config: TypeAlias = Config
    forward_inputs = ("ids", "keep", "positions")
    traits = frozenset(
        {Trait.SUMMARIZER, Trait.CAUSAL_LM, Trait.CACHED, Trait.FITTED, Trait.PADDING_INVARIANT}
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.register_buffer("roles", torch.zeros(3, config.vocab, dtype=torch.int32))
        self.roles: Tensor

    def fit(self, *roles: Tensor) -> None:
        """Store which tokens (each v) end a sentence if a word follows, start a word, and end a
        sentence anyway."""
        self.roles = torch.stack(roles).to(self.roles)

    def forward(
        self,
        ids: Tensor,
        *,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Next-token log-probabilities: b t -> b t v; with `positions` (b n) only there, b n v."""
        layout = SequenceLayout.from_ids(ids, keep, cache)
        all_ids = ids
        if cache is not None:
            column = ids[:, None, :, None]  # as b h t e
            all_ids = cache.layers[0].extend(column, column)[0][:, 0, :, 0]
        tokens = self.next_tokens(mark_padding(all_ids, layout.keep))[:, -layout.queries :]
        if positions is not None:
            tokens = tokens.gather(1, positions)
        prob = OTHER_TOKEN_PROB / self.config.vocab
        probs = torch.full((*tokens.shape, self.config.vocab), prob, device=ids.device)
        return probs.scatter_(2, tokens[..., None], 1 - OTHER_TOKEN_PROB + prob).log_()

    def next_tokens(self, ids: Tensor) -> Tensor:
        """The token after each position, of the lead sentence and its end: b s -> b s.

        -1 is padding. Before the separator, the token itself is repeated.
        """
        rows = []
        for row in ids:
            real = row[row >= 0]
            separators = (real == self.config.sep).nonzero()[:, 0].tolist()
            middle = separators[0] if separators else len(real)
            sentence = real[: self.lead_length(real[:middle])]
            summary = torch.full_like(real[middle:], self.config.eos)
            length = min(len(sentence), len(summary))
            summary[:length] = sentence[:length]
            next_tokens = row.clamp(min=0)
            next_tokens[row >= 0] = torch.cat((real[:middle], summary))
            rows.append(next_tokens)
        return torch.stack(rows)

    def lead_length(self, document: Tensor) -> int:
        """The number of tokens in the first sentence of a document (s)."""
        ends, starts, always_ends = self.roles[:, document].bool()
        is_end = always_ends.clone()
        is_end[:-1] |= ends[:-1] & starts[1:]
        found = is_end.nonzero()[:, 0].tolist()
        return found[0] + 1 if found else len(document)

    def cache(self, capacity: int) -> Cache:
        return Cache(1, capacity)
