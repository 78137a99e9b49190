"""Autoregressive decoding with the cache, one token at a time.

Shapes: b batch, t tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.generate.sampling import Sampling, block_repeats, sample_token
from glassformer.nn.layout import mark_padding


def generate_tokens(
    network: Any,
    ids: Tensor,
    max_new_tokens: int,
    *,
    keep: Tensor | None = None,
    sampling: Sampling | None = None,
    seed: int | None = None,
    no_repeat_ngram_size: int = 0,
    **first_inputs: Tensor,
) -> Iterator[Tensor]:
    """Yield the next id of each sequence (b), up to `max_new_tokens` times.

    Args:
        ids: the prompts (b t); `keep` (b t) is false at their padding, which is on the left.
        no_repeat_ngram_size: n-grams of this size may not repeat in the new tokens; 0 disables
            the check.
        first_inputs: further arguments for the first forward pass with each new cache, such as a
            source.

    When the context is full, generation continues from its second half, which is processed
    again with a new cache.
    """
    sampling = sampling or Sampling()
    generator = None if seed is None else torch.Generator(ids.device).manual_seed(int(seed))
    limit = network.decoding_limit
    all_ids = new_ids = ids  # all: the prompt and the new tokens
    cache = None
    for _ in range(max_new_tokens):
        with torch.inference_mode():
            is_full = limit and cache is not None and cache.length + new_ids.shape[1] > limit
            if is_full:  # read the second half of the context again
                new_ids = all_ids[:, -max(limit // 2, 1) :]
                cache = None
            elif limit and cache is None:  # the first pass: as much of the prompt as fits
                new_ids = ids[:, -limit:]
            if cache is None:
                cache = network.cache(limit or ids.shape[1] + max_new_tokens)
                cache.past_ids = past_ids(all_ids, keep, new_ids.shape[1])
                window_keep = None if keep is None else keep[:, -new_ids.shape[1] :]
                logits = prefill(network, new_ids, window_keep, cache, **first_inputs)
            else:
                logits = network(new_ids, cache=cache)
            generated = all_ids[:, ids.shape[1] :]
            last_logits = block_repeats(logits[:, -1], generated, no_repeat_ngram_size)
            token = sample_token(last_logits, all_ids, sampling, generator)
            new_ids = token[:, None]
            all_ids = torch.cat((all_ids, new_ids), dim=1)
            if keep is not None:
                keep = torch.cat((keep, torch.ones_like(keep[:, :1])), dim=1)
        yield token


def prefill(
    network: Any, ids: Tensor, keep: Tensor | None, cache: Any, **first_inputs: Tensor
) -> Tensor:
    """Fill an empty cache with the ids (b t), in chunks as long as the context.

    Returns the logits (b t v) of the last chunk.
    """
    length = max(ids.shape[1], 1)  # without tokens, the network raises an error
    size = network.context or length
    for start in range(0, length, size):
        chunk_keep = None if keep is None else keep[:, start : start + size]
        chunk = ids[:, start : start + size]
        logits: Tensor = network(chunk, keep=chunk_keep, cache=cache, **first_inputs)
        first_inputs = {}
    return logits


def past_ids(ids: Tensor, keep: Tensor | None, count: int) -> Tensor | None:
    """The ids before the last `count`, with -1 at padding; None if there are none."""
    past = ids.shape[1] - count
    real_ids = mark_padding(ids, keep)
    return real_ids[:, :past] if past else None


def generate_until(
    network: Any, ids: Tensor, limits: Sequence[int], *, eos: int | None = None, **options: Any
) -> list[list[int]]:
    """The new ids of each sequence, up to `eos` (exclusive) or its limit of new tokens.

    `options` are those of `generate_tokens`.
    """
    generated_ids: list[list[int]] = [[] for _ in ids]
    is_done = [limit <= 0 for limit in limits]
    for tokens in generate_tokens(network, ids, max(limits), **options):
        for row, token in enumerate(tokens.tolist()):
            is_done[row] = is_done[row] or token == eos
            if not is_done[row]:
                generated_ids[row].append(token)
                is_done[row] = len(generated_ids[row]) == limits[row]
        if all(is_done):
            break
    return generated_ids
