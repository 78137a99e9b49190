"""How the next token is chosen from the scores."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError


@dataclass(frozen=True)
class Sampling:
    """Temperature 0 takes the best; the others leave out what is unlikely."""

    temperature: float = 0.8
    top_k: int = 0  # only the k likeliest; 0: all
    top_p: float = 1.0  # only the likeliest that together reach this probability
    min_p: float = 0.0  # only what has at least this share of the likeliest's probability
    repetition_penalty: float = 1.0  # above 1: what was said already becomes less likely

    def __post_init__(self) -> None:
        check_bounds(vars(self))


GREEDY = Sampling(temperature=0.0)
MIN_TEMPERATURE = 1e-6  # a lower temperature takes the best: scores divided by it would overflow


def sample_token(
    logits: Tensor, generated: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Tensor:
    """The next ids, b, from scores, b v, and what was said so far, b s."""
    if sampling.repetition_penalty != 1:
        logits = apply_repetition_penalty(logits, generated, sampling.repetition_penalty)
    if sampling.temperature < MIN_TEMPERATURE:
        return logits.argmax(dim=-1)
    probs = filter_probs((logits.float() / sampling.temperature).softmax(dim=-1), sampling)
    if not probs.isfinite().all():
        raise GlassError("the network's scores are not finite: it was not trained to its end")
    return torch.multinomial(probs, 1, generator=generator)[:, 0]


def filter_probs(probs: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities, b v, with what the settings leave out at 0; the likeliest always stays."""
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if sampling.top_k:
        keep[:, sampling.top_k :] = False
    before = ordered.cumsum(dim=-1) - ordered  # what the likelier ones have together
    keep &= (before < sampling.top_p) & (ordered >= sampling.min_p * ordered[:, :1])
    keep[:, 0] = True
    return torch.zeros_like(probs).scatter(-1, order, ordered * keep)


def apply_repetition_penalty(logits: Tensor, generated: Tensor, by: float) -> Tensor:
    """Positive scores of what was said are divided, negative ones multiplied."""
    scores = logits.gather(-1, generated)
    return logits.scatter(-1, generated, torch.where(scores > 0, scores / by, scores * by))
