"""Laws about how a network runs: in batches, copied, in half precision, compiled, on meta."""

import torch

from glassformer.laws.comparison import require, require_close, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import BATCH, Subject
from glassformer.laws.tracing import EVERYTHING, NOTHING
from glassformer.models.network import PriorNetwork, Trait
from glassformer.trace import Trace


@law()
@torch.no_grad()
def check_batch_of_one_equals_batch_of_many(subject: Subject) -> None:
    """An example has the same output alone as in a batch."""
    inputs = subject.examples()
    expected = subject.run(inputs)
    for row in range(BATCH):
        actual = subject.run({name: x[row : row + 1] for name, x in inputs.items()})
        require_close(actual, expected[row : row + 1], subject.tolerance, f"for example {row}")


@law()
@torch.no_grad()
def check_copy_gives_the_same_output(subject: Subject) -> None:
    """A deep copy has the same output, bit for bit."""
    inputs = subject.examples()
    padded = subject.examples(padding="left")
    copy = subject.copy()
    require_equal(copy.run(inputs), subject.run(inputs), "for the output")
    require_equal(copy.run(padded), subject.run(padded), "with padding on the left")


@law(without=Trait.FITTED)
@torch.no_grad()
def check_half_precision_is_close(subject: Subject) -> None:
    """In bfloat16 the output is bfloat16 and roughly the same, with fused and plain kernels."""
    half = subject.copy()
    inputs = subject.examples(padding="left")
    half.network.bfloat16()
    expected = subject.run(inputs)
    for pattern in (NOTHING, EVERYTHING):
        with Trace(half.network, pattern, allow_missing=True):
            output = half.run(inputs)
        require(output.dtype == torch.bfloat16, f"for the output: its type is {output.dtype}")
        where = f"while {pattern} is traced"
        require_close(output.to(expected.dtype), expected, 0.2, where, relative=0.1)


@law(Trait.COMPILABLE)
@torch.no_grad()
def check_compiles_to_one_graph(subject: Subject) -> None:
    """torch.compile compiles the network to one graph with the same output."""
    compiled = torch.compile(subject.copy().network, fullgraph=True, backend="eager")
    try:
        for inputs in (subject.examples(), subject.examples(padding="left")):
            where = "with padding" if "keep" in inputs else "without padding"
            require_close(compiled(**inputs), subject.run(inputs), subject.tolerance, where)
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
