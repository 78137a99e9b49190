"""Laws of where and how a network runs: copied, in half precision, compiled, without memory."""

import torch

from glassformer.laws.comparison import require, require_close, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.laws.tracing import EVERYTHING, NOTHING
from glassformer.models.network import Trait
from glassformer.trace import Trace


@law()
@torch.no_grad()
def check_batch_of_one_equals_batch_of_many(subject: Subject) -> None:
    """A text gives the same alone as in a batch."""
    ids = subject.ids()
    many = subject(ids)
    for row in range(len(ids)):
        one = subject(ids[row : row + 1], row=row)
        require_close(one, many[row : row + 1], subject.tolerance, f"for text {row}")


@law()
@torch.no_grad()
def check_copy_gives_the_same(subject: Subject) -> None:
    """A deep copy has the same output, to the bit."""
    ids, keep, copied = subject.ids(), subject.keep("left"), subject.copy()
    require_equal(copied(ids), subject(ids), "for the output")
    require_equal(copied(ids, keep=keep), subject(ids, keep=keep), "with padding on the left")


@law(without=Trait.FITTED)
@torch.no_grad()
def check_half_precision_is_close(subject: Subject) -> None:
    """In bfloat16 its output is bfloat16 and roughly the same, with fast and plain kernels."""
    half, ids, keep = subject.copy(), subject.ids(), subject.keep("left")
    half.network.bfloat16()
    expected = subject(ids, keep=keep)
    for pattern in (NOTHING, EVERYTHING):
        with Trace(half.network, pattern, allow_missing=True):
            output = half(ids, keep=keep)
        require(output.dtype == torch.bfloat16, f"for the type of its output, {output.dtype}")
        where = f"while {pattern} is traced"
        require_close(output.to(expected.dtype), expected, 0.2, where, relative=0.1)


@law(Trait.COMPILED)
@torch.no_grad()
def check_compiler_takes_it_whole(subject: Subject) -> None:
    """torch.compile makes one graph of it, with the same output."""
    ids, keep = subject.ids(), subject.keep("left")
    compiled = torch.compile(subject.copy().network, fullgraph=True, backend="eager")
    try:
        actual = compiled(**subject.inputs(ids))
        require_close(actual, subject(ids), subject.tolerance, "without padding")
        actual = compiled(**subject.inputs(ids, keep=keep))
        require_close(actual, subject(ids, keep=keep), subject.tolerance, "with padding")
    finally:
        torch._dynamo.reset()


@law(without=Trait.FITTED)
def check_it_can_be_built_without_memory(subject: Subject) -> None:
    """Built from its config on the meta device, it has the same parameters."""
    network = subject.network
    with torch.device("meta"):
        built = type(network)(network.config)
    shapes = [{name: p.shape for name, p in n.named_parameters()} for n in (built, network)]
    require(shapes[0] == shapes[1], "for the names and shapes of its parameters")
