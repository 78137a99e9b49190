"""Laws of what a trace sees: the same values, whichever kernel computes them."""

import torch

from glassformer.laws.comparison import require, require_close, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Trait
from glassformer.trace import Trace

NOTHING, EVERYTHING = "nothing", "*"  # patterns of names


@law()
@torch.no_grad()
def check_tracing_changes_nothing(subject: Subject) -> None:
    """A trace of everything changes the output by rounding only; one of a few values, not at all.

    Every layer that attends has a pattern in it, and only what was asked for is recorded.
    """
    ids, network = subject.ids(), subject.network
    plain = subject(ids)
    with Trace(network) as trace:
        require_close(subject(ids), plain, subject.tolerance, "while everything is traced")
    require_close(trace["output"], plain, subject.tolerance, "for the output in the trace")
    if subject.has(Trait.ATTENTION):
        layers = sum(len(list(network.get_submodule(stack).children())) for stack in network.stacks)
        patterns = sum(name.endswith("attention.pattern") for name in trace)
        require(patterns >= layers, f"because {layers} layers have {patterns} attention patterns")
    with Trace(network, "*.attention", "*.q", allow_missing=True) as few:
        require_equal(subject(ids), plain, "while values beside the fused kernel are traced")
    others = [name for name in few if not name.endswith((".attention", ".q"))]
    require(not others, f"because {others} are traced, which were not asked for")
    require_equal(subject(ids), plain, "after the trace is closed")


@law(without=Trait.FITTED)
def check_fast_and_traced_gradients_match(subject: Subject) -> None:
    """The fast kernels and the plain ones, which a trace sees, have the same gradients."""
    ids, keep, gradients = subject.ids(), subject.keep("right"), []
    for pattern in (NOTHING, EVERYTHING):
        copied = subject.trainable_copy()
        with Trace(copied.network, pattern, allow_missing=True):
            torch.autograd.backward(copied(ids, keep=keep).square().mean())
        named = copied.network.named_parameters()
        gradients.append({name: p.grad for name, p in named if p.grad is not None})
    fast, plain = gradients
    require(bool(fast) and fast.keys() == plain.keys(), "for which parameters have a gradient")
    for name, gradient in fast.items():
        require_close(gradient, plain[name], subject.tolerance, f"for {name}")


@law(without=Trait.FITTED)
def check_inference_mode_leaves_it_trainable(subject: Subject) -> None:
    """It runs under inference mode, traced; afterwards it can be trained as before."""
    subject = subject.trainable_copy()
    ids, keep = subject.ids(), subject.keep("right")
    with torch.inference_mode(), Trace(subject.network, "*.pattern", allow_missing=True) as trace:
        subject(ids, keep=keep)
    require(bool(trace) or not subject.has(Trait.ATTENTION), "because no pattern is traced")
    torch.autograd.backward(subject(ids, keep=keep).sum())
    require(any(p.grad is not None for p in subject.network.parameters()), "for any gradient")
