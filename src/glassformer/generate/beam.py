"""Beam search: several beginnings of an answer are followed at once, and the best end wins."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Hypothesis = tuple[float, list[int]]  # a score, and the ids without the end


@torch.inference_mode()
def beam_search(
    network: Any,
    ids: Tensor,
    limits: Sequence[int],
    *,
    eos: int,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    **first: Tensor,
) -> list[list[Hypothesis]]:
    """For each text its answers, best first. The ids, b t, start them; `first` goes with these.

    A score is the log-probability over ((5 + length) / 6) to the power of `penalty`: with 0 the
    likeliest answer wins, with more a longer one may. A text is done when it has `width` answers
    that ended; one that lacks some after as many tokens as its limit allows gets its beams as they
    stand. So what a text gets does not depend on the others in the batch.
    """
    batch, longest = len(ids), max(limits)
    cache = network.cache(ids.shape[1] + longest)
    rows = torch.arange(batch, device=ids.device).repeat_interleave(beam_size)
    logits = network(ids, cache=cache, **first)[rows, -1]  # b*w v
    cache.select_rows(rows)

    totals = torch.full((batch, beam_size), -float("inf"), device=ids.device)
    totals[:, 0] = 0.0  # at first the beams of a text are all the same
    generated = ids.new_empty(batch, beam_size, 0)
    hypotheses: list[list[Hypothesis]] = [[] for _ in ids]
    for length in range(1, longest + 1):
        probs = totals[..., None] + logits.log_softmax(dim=-1).reshape(batch, beam_size, -1)
        vocab = probs.shape[-1]
        best, place = probs.flatten(1).topk(
            min(2 * beam_size, beam_size * vocab)
        )  # b 2w, best first
        beam, token = place // vocab, place % vocab
        ends = token == eos

        norm = ((5 + length) / 6) ** length_penalty
        for b, rank in (ends[:, :beam_size] & best[:, :beam_size].isfinite()).nonzero().tolist():
            if len(hypotheses[b]) < beam_size and length <= limits[b]:
                hypotheses[b].append(
                    (float(best[b, rank]) / norm, generated[b, beam[b, rank]].tolist())
                )

        totals, rank = best.masked_fill(ends, -float("inf")).topk(beam_size)  # those that go on
        beam, token = beam.gather(1, rank), token.gather(1, rank)
        generated = generated.gather(1, beam[..., None].expand(-1, -1, length - 1))
        generated = torch.cat((generated, token[..., None]), dim=-1)
        for b, rank in totals.isfinite().nonzero().tolist():
            if length == limits[b] and len(hypotheses[b]) < beam_size:
                hypotheses[b].append((float(totals[b, rank]) / norm, generated[b, rank].tolist()))
        done = [
            len(found) == beam_size or length >= limit
            for found, limit in zip(hypotheses, limits, strict=True)
        ]
        if all(done):
            break
        cache.select_rows((beam + rows.reshape(batch, beam_size) * beam_size).flatten())
        logits = network(token.flatten()[:, None], cache=cache)[:, -1]
    return [
        sorted(found, key=lambda hypothesis: -hypothesis[0])[:beam_size] for found in hypotheses
    ]
