"""Beam search: several beginnings of an answer are followed at once, and the best end wins."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Answer = tuple[float, list[int]]  # a score, and the ids without the end


@torch.inference_mode()
def beam_search(
    network: Any,
    ids: Tensor,
    limits: Sequence[int],
    *,
    end: int,
    width: int = 4,
    penalty: float = 0.6,
    **first: Tensor,
) -> list[list[Answer]]:
    """For each text its answers, best first. The ids, b t, start them; `first` goes with these.

    A score is the log-probability over ((5 + length) / 6) to the power of `penalty`: with 0 the
    likeliest answer wins, with more a longer one may. A text is done when it has `width` answers
    that ended; one that lacks some after as many tokens as its limit allows gets its beams as they
    stand. So what a text gets does not depend on the others in the batch.
    """
    batch, longest = len(ids), max(limits)
    cache = network.cache(ids.shape[1] + longest)
    rows = torch.arange(batch, device=ids.device).repeat_interleave(width)
    logits = network(ids, cache=cache, **first)[rows, -1]  # b*w v
    cache.select(rows)

    totals = torch.full((batch, width), -float("inf"), device=ids.device)
    totals[:, 0] = 0.0  # at first the beams of a text are all the same
    said = ids.new_empty(batch, width, 0)
    answers: list[list[Answer]] = [[] for _ in ids]
    for length in range(1, longest + 1):
        chances = totals[..., None] + logits.log_softmax(dim=-1).reshape(batch, width, -1)
        vocab = chances.shape[-1]
        best, place = chances.flatten(1).topk(min(2 * width, width * vocab))  # b 2w, best first
        beam, token = place // vocab, place % vocab
        ends = token == end

        norm = ((5 + length) / 6) ** penalty
        for b, rank in (ends[:, :width] & best[:, :width].isfinite()).nonzero().tolist():
            if len(answers[b]) < width and length <= limits[b]:
                answers[b].append((float(best[b, rank]) / norm, said[b, beam[b, rank]].tolist()))

        totals, rank = best.masked_fill(ends, -float("inf")).topk(width)  # those that go on
        beam, token = beam.gather(1, rank), token.gather(1, rank)
        said = said.gather(1, beam[..., None].expand(-1, -1, length - 1))
        said = torch.cat((said, token[..., None]), dim=-1)
        for b, rank in totals.isfinite().nonzero().tolist():
            if length == limits[b] and len(answers[b]) < width:
                answers[b].append((float(totals[b, rank]) / norm, said[b, rank].tolist()))
        done = [
            len(found) == width or length >= limit
            for found, limit in zip(answers, limits, strict=True)
        ]
        if all(done):
            break
        cache.select((beam + rows.reshape(batch, width) * width).flatten())
        logits = network(token.flatten()[:, None], cache=cache)[:, -1]
    return [sorted(found, key=lambda answer: -answer[0])[:width] for found in answers]
