"""Laws for traces: a traced network computes the same values, but with different kernels."""

import torch

from glassformer.laws.comparison import require, require_close, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Trait
from glassformer.trace import Trace

NOTHING, EVERYTHING = "nothing", "*"  # patterns of tap names


@law()
@torch.no_grad()
def check_tracing_changes_nothing(subject: Subject) -> None:
    """Tracing everything changes the output by rounding only; tracing a few values, not at all.

    Every attention layer has a pattern in the trace, and only matching values are recorded.
    """
    inputs = subject.examples()
    network = subject.network
    plain = subject.run(inputs)
    with Trace(network) as trace:
        require_close(subject.run(inputs), plain, subject.tolerance, "while everything is traced")
    require_close(trace["output"], plain, subject.tolerance, "for the output in the trace")
    if subject.has(Trait.ATTENTION):
        layers = sum(len(list(network.get_submodule(stack).children())) for stack in network.stacks)
        patterns = sum(name.endswith("attention.pattern") for name in trace)
        require(patterns >= layers, f"because {layers} layers have {patterns} attention patterns")
    with Trace(network, "*.attention", "*.q", allow_missing=True) as trace:
        require_equal(
            subject.run(inputs), plain, "while values outside the fused kernel are traced"
        )
    others = [name for name in trace if not name.endswith((".attention", ".q"))]
    require(not others, f"because {others} are traced but match no pattern")
    require_equal(subject.run(inputs), plain, "after the trace is closed")


@law(without=Trait.FITTED)
def check_fused_and_traced_gradients_match(subject: Subject) -> None:
    """The fused kernels and the plain ones, which a trace needs, have the same gradients."""
    inputs = subject.examples(padding="right")
    gradients = []
    for pattern in (NOTHING, EVERYTHING):
        copy = subject.trainable_copy()
        with Trace(copy.network, pattern, allow_missing=True):
            torch.autograd.backward(copy.run(inputs).square().mean())
        parameters = copy.network.named_parameters()
        gradients.append({name: p.grad for name, p in parameters if p.grad is not None})
    fused, plain = gradients
    is_same = bool(fused) and fused.keys() == plain.keys()
    require(is_same, "for the set of parameters with a gradient")
    for name, gradient in fused.items():
        require_close(gradient, plain[name], subject.tolerance, f"for {name}")


@law(without=Trait.FITTED)
def check_inference_mode_leaves_network_trainable(subject: Subject) -> None:
    """After a traced pass in inference mode, the network can be trained as before."""
    subject = subject.trainable_copy()
    inputs = subject.examples(padding="right")
    with torch.inference_mode(), Trace(subject.network, "*.pattern", allow_missing=True) as trace:
        subject.run(inputs)
    require(bool(trace) or not subject.has(Trait.ATTENTION), "because no pattern is traced")
    torch.autograd.backward(subject.run(inputs).sum())
    has_gradient = any(p.grad is not None for p in subject.network.parameters())
    require(has_gradient, "because no parameter has a gradient")
