"""Beam search: extend the most likely unfinished hypotheses token by token.

Shapes: b batch, t tokens, w beam size, v vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.generate.sampling import block_repeats

Hypothesis = tuple[float, list[int]]  # its score, and its ids without eos


@dataclass(frozen=True)
class BeamStep:
    """One step of a beam search: the candidates (b 2w), best first, and the beams (b w)."""

    log_probs: Tensor  # b 2w: total of each candidate
    parents: Tensor  # b 2w: the beam that it extends
    tokens: Tensor  # b 2w
    beams: Tensor  # b w: the candidates that become the next beams


@torch.inference_mode()
def beam_search(
    network: Any,
    ids: Tensor,
    limits: Sequence[int],
    *,
    eos: int,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    no_repeat_ngram_size: int = 0,
    observe: Callable[[BeamStep], None] | None = None,
    **first_inputs: Tensor,
) -> list[list[Hypothesis]]:
    """For each sequence, up to `beam_size` hypotheses, best first.

    Args:
        ids: the first tokens of each hypothesis (b t); the result does not include them.
        limits: the max number of new tokens for each sequence.
        no_repeat_ngram_size: n-grams of this size may not repeat in the new tokens; 0 disables
            the check.
        observe: a function that is called with the `BeamStep` of each step.
        first_inputs: further arguments for the first forward pass, such as a source.

    The score is the log-probability / ((5 + length) / 6) ** length_penalty: with a
    penalty of 0, the most likely hypothesis wins; with a higher one, a longer hypothesis may win. A
    sequence is done when `beam_size` hypotheses have ended; at its limit, its best unfinished beams
    are added. The result for a sequence therefore does not depend on the others in the batch.

    Two steps of a beam of 2, with total log-probabilities; . is eos:

        step 1   candidates  a -0.5    b -1.2   .  -3.0   c  -4.0     the best 2 * 2
                 beams       a -0.5    b -1.2                         the best 2 without eos
        step 2   candidates  a. -1.0   ab -1.5  ba -1.6   b. -2.4
                 finished    a. -1.0                                  eos among the best 2
                 beams       ab -1.5   ba -1.6                        from the cache rows 0 and 1

    2 * beam_size candidates are enough: each beam has only one continuation that ends, so at least
    beam_size of them do not.
    """
    batch, max_limit = len(ids), max(limits)
    cache = network.cache(ids.shape[1] + max_limit)
    rows = torch.arange(batch, device=ids.device).repeat_interleave(beam_size)
    logits = network(ids, cache=cache, **first_inputs)[rows, -1]  # b*w v
    cache.select_rows(rows)

    totals = torch.full((batch, beam_size), -float("inf"), device=ids.device)
    totals[:, 0] = 0.0  # the beams of a sequence start out identical: use only the first
    generated = ids.new_empty(batch, beam_size, 0)
    hypotheses: list[list[Hypothesis]] = [[] if limit else [(0.0, [])] for limit in limits]
    for length in range(1, max_limit + 1):
        token_log_probs = block_repeats(
            logits.log_softmax(dim=-1), generated.flatten(0, 1), no_repeat_ngram_size
        )
        log_probs = totals[..., None] + token_log_probs.reshape(batch, beam_size, -1)
        vocab = log_probs.shape[-1]
        n_candidates = min(2 * beam_size, beam_size * vocab)
        best, index = log_probs.flatten(1).topk(n_candidates)  # b 2w, best first
        parents, tokens = index // vocab, index % vocab  # b 2w: beam to extend, new id
        ends = tokens == eos
        penalty = ((5 + length) / 6) ** length_penalty
        ended = ends[:, :beam_size] & best[:, :beam_size].isfinite()
        for b, i in ended.nonzero().tolist():
            if length <= limits[b] and len(hypotheses[b]) < beam_size:
                ended_ids = generated[b, parents[b, i]].tolist()
                hypotheses[b].append((float(best[b, i]) / penalty, ended_ids))

        totals, kept = best.masked_fill(ends, -float("inf")).topk(beam_size)  # unfinished: b w
        if observe is not None:
            observe(BeamStep(best, parents, tokens, kept))
        beams, new_ids = parents.gather(1, kept), tokens.gather(1, kept)  # b w
        generated = generated.gather(1, beams[..., None].expand(-1, -1, length - 1))
        generated = torch.cat((generated, new_ids[..., None]), dim=-1)
        for b, i in totals.isfinite().nonzero().tolist():
            if length == limits[b] and len(hypotheses[b]) < beam_size:
                hypotheses[b].append((float(totals[b, i]) / penalty, generated[b, i].tolist()))
        is_done = [
            len(finished) == beam_size or length >= limit
            for finished, limit in zip(hypotheses, limits, strict=True)
        ]
        if all(is_done):
            break
        cache.select_rows((beams + rows.reshape(batch, beam_size) * beam_size).flatten())
        logits = network(new_ids.flatten()[:, None], cache=cache)[:, -1]
    return [sorted(finished, key=lambda h: h[0], reverse=True) for finished in hypotheses]
