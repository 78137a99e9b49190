"""Laws for networks that decode with a cache.

Shapes: b batch, t tokens.
"""

import contextlib

import torch
from torch import Tensor

from glassformer.laws.comparison import require, require_close
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Cached, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.trace import Trace


def empty_cache(subject: Subject) -> Cache:
    assert isinstance(subject.network, Cached)
    return subject.network.cache(subject.length)


@law(Trait.CACHED)
@torch.no_grad()
def check_cached_steps_equal_one_pass(subject: Subject) -> None:
    """Processing a sequence in chunks of any size with a cache gives the output of one pass."""
    ids = subject.ids()
    for size in (1, 5, subject.length):
        cache = empty_cache(subject)
        outputs = [subject(chunk, cache=cache) for chunk in split_tokens(ids, size)]
        where = f"in chunks of {size} tokens"
        require_close(torch.cat(outputs, dim=1), subject(ids), subject.tolerance, where)


@law(Trait.CACHED)
@torch.no_grad()
def check_cached_steps_equal_one_pass_with_padding_on_the_left(subject: Subject) -> None:
    """Processing a padded sequence in chunks with a cache gives the output of one pass."""
    ids, keep = subject.ids(), subject.keep("left")
    for size in (1, 5):
        cache = empty_cache(subject)
        pairs = zip(split_tokens(ids, size), split_tokens(keep, size), strict=True)
        outputs = [subject(chunk, keep=chunk_keep, cache=cache) for chunk, chunk_keep in pairs]
        actual = torch.cat(outputs, dim=1)[keep]
        expected = subject(ids, keep=keep)[keep]
        require_close(actual, expected, subject.tolerance, f"in chunks of {size} tokens")


@law(Trait.CACHED)
@torch.no_grad()
def check_cache_stores_padding(subject: Subject) -> None:
    """`keep` needs to be passed only with the prompt, not with the tokens after it."""
    ids = subject.ids()
    prefix = subject.prefix
    cache = cache_prompt(subject)
    expected = subject(ids, keep=subject.keep("left"))[:, prefix:]
    actual = subject(ids[:, prefix:], cache=cache)
    require_close(actual, expected, subject.tolerance, "after the prompt")


@law(Trait.CACHED)
@torch.no_grad()
def check_cache_selects_rows(subject: Subject) -> None:
    """After selecting rows of a cache, decoding continues as if the batch had consisted of them."""
    ids = subject.ids()
    prefix = subject.prefix
    cache = cache_prompt(subject)
    rows = torch.tensor([2, 0, 0, 1], device=ids.device)
    expected = subject(ids, keep=subject.keep("left"))[rows, prefix:]
    cache.select_rows(rows)
    actual = subject(ids[rows, prefix:], cache=cache)
    require_close(actual, expected, subject.tolerance, "after rows were selected")


def has_several_layers(network: Network) -> bool:
    return len(list(network.get_submodule(network.stacks[-1]).children())) > 1


@law(Trait.CACHED, without=Trait.FITTED, when=has_several_layers)
@torch.no_grad()
def check_failed_pass_leaves_cache_unchanged(subject: Subject) -> None:
    """After a pass that raised an error, decoding continues as if that pass had never started.

    The error is raised after the first layer, because a pass takes effect only after the last.
    """
    ids = subject.ids()
    prefix = subject.prefix
    cache = cache_prompt(subject)

    class InjectedError(Exception):
        pass

    def fail(_: Tensor) -> Tensor:
        raise InjectedError

    has_finished = False
    trace = Trace(subject.network, edit={f"{subject.network.stacks[-1]}.0": fail})
    with contextlib.suppress(InjectedError), trace:
        subject(ids[:, prefix : prefix + 2], cache=cache)
        has_finished = True
    require(not has_finished, "because the pass did not run its first layer")
    expected = subject(ids, keep=subject.keep("left"))[:, prefix:]
    actual = subject(ids[:, prefix:], cache=cache)
    require_close(actual, expected, subject.tolerance, "after a pass that failed")


def split_tokens(value: Tensor, size: int) -> list[Tensor]:
    """Split into chunks of `size` tokens: b t -> list of b size."""
    return [value[:, start : start + size] for start in range(0, value.shape[1], size)]


def cache_prompt(subject: Subject) -> Cache:
    """A cache that holds the first tokens of sequences with padding on the left."""
    cache = empty_cache(subject)
    prefix = subject.prefix
    subject(subject.ids()[:, :prefix], keep=subject.keep("left")[:, :prefix], cache=cache)
    return cache
