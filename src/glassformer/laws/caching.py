"""Laws of networks that keep a cache of the tokens read so far."""

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
    """A text that is read in chunks of any size, with a cache, gives what one pass gives."""
    ids = subject.ids()
    for chunk in (1, 5, subject.length):
        cache = empty_cache(subject)
        outputs = [subject(part, cache=cache) for part in chunks(ids, chunk)]
        where = f"in chunks of {chunk}"
        require_close(torch.cat(outputs, dim=1), subject(ids), subject.tolerance, where)


@law(Trait.CACHED)
@torch.no_grad()
def check_cached_steps_equal_one_pass_with_padding_on_the_left(subject: Subject) -> None:
    """A padded text that is read in chunks, with a cache, gives what one pass gives."""
    ids, keep = subject.ids(), subject.keep("left")
    for chunk in (1, 5):
        cache = empty_cache(subject)
        parts = zip(chunks(ids, chunk), chunks(keep, chunk), strict=True)
        outputs = [subject(part, keep=kept, cache=cache) for part, kept in parts]
        actual, expected = torch.cat(outputs, dim=1)[keep], subject(ids, keep=keep)[keep]
        require_close(actual, expected, subject.tolerance, f"in chunks of {chunk}")


@law(Trait.CACHED)
@torch.no_grad()
def check_cache_remembers_padding(subject: Subject) -> None:
    """The padding of a prompt is given with the prompt only, not with the tokens after it."""
    ids, prefix, cache = subject.ids(), subject.prefix, read_prompt(subject)
    expected = subject(ids, keep=subject.keep("left"))[:, prefix:]
    actual = subject(ids[:, prefix:], cache=cache)
    require_close(actual, expected, subject.tolerance, "after the prompt")


@law(Trait.CACHED)
@torch.no_grad()
def check_cache_selects_rows(subject: Subject) -> None:
    """After rows of a cache are selected, reading goes on as if the batch had been these rows."""
    ids, prefix, cache = subject.ids(), subject.prefix, read_prompt(subject)
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
    """After a pass that an error interrupts, reading goes on as if it had not begun.

    The error comes after the first layer: a pass that every layer has read counts as done.
    """
    ids, prefix, cache = subject.ids(), subject.prefix, read_prompt(subject)

    class PlannedError(Exception):
        pass

    def fail(_: Tensor) -> Tensor:
        raise PlannedError

    has_finished = False
    trace = Trace(subject.network, edit={f"{subject.network.stacks[-1]}.0": fail})
    with contextlib.suppress(PlannedError), trace:
        subject(ids[:, prefix : prefix + 2], cache=cache)
        has_finished = True
    require(not has_finished, "because the pass did not run its first layer")
    expected = subject(ids, keep=subject.keep("left"))[:, prefix:]
    actual = subject(ids[:, prefix:], cache=cache)
    require_close(actual, expected, subject.tolerance, "after a pass that failed")


def chunks(value: Tensor, size: int) -> list[Tensor]:
    """So many tokens at a time: b t -> some of b size."""
    return [value[:, start : start + size] for start in range(0, value.shape[1], size)]


def read_prompt(subject: Subject) -> Cache:
    """A cache that has read the first tokens of texts which are padded on the left."""
    cache, prefix = empty_cache(subject), subject.prefix
    subject(subject.ids()[:, :prefix], keep=subject.keep("left")[:, :prefix], cache=cache)
    return cache
