"""Laws about how a network runs: in batches, copied, in half precision, compiled, on meta."""

import torch

from glassformer.laws.comparison import require, require_close, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.laws.tracing import EVERYTHING, NOTHING
from glassformer.models.network import PriorNetwork, Trait
from glassformer.trace import Trace


@law()
@torch.no_grad()
def check_batch_of_one_equals_batch_of_many(subject: Subject) -> None:
    """A sequence has the same output alone as in a batch."""
    ids = subject.ids()
    expected = subject(ids)
    for row in range(len(ids)):
        actual = subject(ids[row : row + 1], row=row)
        require_close(actual, expected[row : row + 1], subject.tolerance, f"for sequence {row}")


@law()
@torch.no_grad()
def check_copy_gives_the_same_output(subject: Subject) -> None:
    """A deep copy has the same output, bit for bit."""
    ids, keep, copy = subject.ids(), subject.keep("left"), subject.copy()
    require_equal(copy(ids), subject(ids), "for the output")
    require_equal(copy(ids, keep=keep), subject(ids, keep=keep), "with padding on the left")


@law(without=Trait.FITTED)
@torch.no_grad()
def check_half_precision_is_close(subject: Subject) -> None:
    """In bfloat16 the output is bfloat16 and roughly the same, with fused and plain kernels."""
    half, ids, keep = subject.copy(), subject.ids(), subject.keep("left")
    half.network.bfloat16()
    expected = subject(ids, keep=keep)
    for pattern in (NOTHING, EVERYTHING):
        with Trace(half.network, pattern, allow_missing=True):
            output = half(ids, keep=keep)
        require(output.dtype == torch.bfloat16, f"for the output: its type is {output.dtype}")
        where = f"while {pattern} is traced"
        require_close(output.to(expected.dtype), expected, 0.2, where, relative=0.1)


@law(Trait.COMPILABLE)
@torch.no_grad()
def check_compiles_to_one_graph(subject: Subject) -> None:
    """torch.compile compiles the network to one graph with the same output."""
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
def check_builds_on_the_meta_device(subject: Subject) -> None:
    """Built from its config on the meta device, the network has the same parameters."""
    network = subject.network
    with torch.device("meta"):
        built = type(network)(network.config)
        config = network.prior_config if isinstance(network, PriorNetwork) else None
        if isinstance(built, PriorNetwork) and config:
            built.attach_prior(config)
    shapes = [{name: p.shape for name, p in n.named_parameters()} for n in (built, network)]
    require(shapes[0] == shapes[1], "for the names and shapes of the parameters")
