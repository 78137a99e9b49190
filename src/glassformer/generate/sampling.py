"""Sampling the next token from logits.

Shapes: b batch, s tokens so far, v vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError


@dataclass(frozen=True)
class Sampling:
    """How to choose the next token; top_k, top_p and min_p exclude unlikely tokens."""

    temperature: float = 0.8  # 0 means always the most likely token
    top_k: int = 0  # only the k most likely tokens; 0 means no limit
    top_p: float = 1.0  # only the most likely tokens that together reach this probability
    min_p: float = 0.0  # only tokens with at least this fraction of the highest probability
    repetition_penalty: float = 1.0  # above 1, tokens of the text so far become less likely

    def __post_init__(self) -> None:
        check_bounds(vars(self))


GREEDY = Sampling(temperature=0.0)
MIN_TEMPERATURE = 1e-6  # lower values count as 0, because dividing logits by them would overflow


def sample_token(
    logits: Tensor, ids: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Tensor:
    """Sample the next ids (b) from logits (b v); `ids` (b s) are those so far, with the prompt."""
    if sampling.repetition_penalty != 1:
        logits = apply_repetition_penalty(logits, ids, sampling.repetition_penalty)
    if sampling.temperature < MIN_TEMPERATURE:
        return logits.argmax(dim=-1)
    probs = filter_probs((logits.float() / sampling.temperature).softmax(dim=-1), sampling)
    if not probs.isfinite().all():
        raise GlassError(
            "the model's logits are not finite (NaN or infinity): its training may have diverged"
        )
    return torch.multinomial(probs, 1, generator=generator)[:, 0]


def filter_probs(probs: Tensor, sampling: Sampling) -> Tensor:
    """Set the probabilities (b v) of excluded tokens to 0; the most likely token always stays."""
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    is_allowed = torch.ones_like(ordered, dtype=torch.bool)
    if sampling.top_k:
        is_allowed[:, sampling.top_k :] = False
    more_likely = ordered.cumsum(dim=-1) - ordered  # total probability of more likely tokens
    is_allowed &= (more_likely < sampling.top_p) & (ordered >= sampling.min_p * ordered[:, :1])
    is_allowed[:, 0] = True
    return torch.zeros_like(probs).scatter(-1, order, ordered * is_allowed)


def apply_repetition_penalty(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Divide positive logits of earlier tokens by the penalty; multiply negative ones by it."""
    old = logits.gather(-1, ids)
    return logits.scatter(-1, ids, torch.where(old > 0, old / penalty, old * penalty))


def block_repeats(logits: Tensor, generated: Tensor, length: int) -> Tensor:
    """Exclude tokens that would repeat an n-gram of `length` generated tokens: b v, b s -> b v."""
    if not length or generated.shape[1] < length:
        return logits
    ngrams = generated.unfold(1, length, 1)  # b n length
    last = generated[:, generated.shape[1] - length + 1 :]
    is_repeat = (ngrams[..., :-1] == last[:, None]).all(dim=2)  # b n
    counts = torch.zeros_like(logits).scatter_add(1, ngrams[..., -1], is_repeat.to(logits))
    return logits.masked_fill(counts > 0, -float("inf"))
