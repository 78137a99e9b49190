"""New tokens one at a time, with the cache."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.generate.sampling import Sampling, sample_token


def generate_tokens(
    network: Any,
    ids: Tensor,
    max_new_tokens: int,
    *,
    keep: Tensor | None = None,
    sampling: Sampling | None = None,
    seed: int | None = None,
    **first: Tensor,
) -> Iterator[Tensor]:
    """The next ids of each text, b, again and again. `first` (a source) goes with the prompt.

    When the context is full, its later half is read again and the text goes on from there.
    """
    sampling = sampling or Sampling()
    generator = None if seed is None else torch.Generator(ids.device).manual_seed(int(seed))
    context = network.context
    generated, read, cache = ids, ids, None
    for _ in range(max_new_tokens):
        with torch.inference_mode():
            if context and (cache is None or cache.length + read.shape[1] > context):
                kept = context if cache is None else max(context // 2, 1)
                start = max(generated.shape[1] - kept, 0)
                read, keep = generated[:, start:], None if keep is None else keep[:, start:]
                cache = None
            if cache is None:
                cache = network.cache(context or ids.shape[1] + max_new_tokens)
                logits = network(read, keep=keep, cache=cache, **first)
            else:
                logits = network(read, cache=cache)
            token = sample_token(logits[:, -1], generated, sampling, generator)
            read, generated = token[:, None], torch.cat((generated, token[:, None]), dim=1)
            if keep is not None:
                keep = torch.cat((keep, torch.ones_like(keep[:, :1])), dim=1)
        yield token


def generate_until(
    network: Any, ids: Tensor, limits: Sequence[int], *, eos: int | None = None, **options: Any
) -> list[list[int]]:
    """The new ids of each text, up to the end token, or up to as many as its limit allows."""
    texts: list[list[int]] = [[] for _ in ids]
    done = [limit <= 0 for limit in limits]
    for tokens in generate_tokens(network, ids, max(limits), **options):
        for row, token in enumerate(tokens.tolist()):
            done[row] = done[row] or token == eos
            if not done[row]:
                texts[row].append(token)
                done[row] = len(texts[row]) == limits[row]
        if all(done):
            break
    return texts
