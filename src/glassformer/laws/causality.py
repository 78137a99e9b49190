"""Laws for networks that predict from left to right."""

import torch
from torch import Tensor

from glassformer.laws.comparison import require, require_different, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Trait
from glassformer.trace import Trace


@law(Trait.CAUSAL)
@torch.no_grad()
def check_future_is_hidden(subject: Subject) -> None:
    """Changing later tokens changes their own outputs, but no bit of any earlier output."""
    ids, prefix = subject.ids(), subject.prefix
    changed_ids = ids.clone()
    changed_ids[:, prefix:] = subject.other_ids(ids[:, prefix:])
    output = subject(ids)
    changed = subject(changed_ids)
    require_equal(changed[:, :prefix], output[:, :prefix], "before the changed tokens")
    require_different(changed[:, prefix:], output[:, prefix:], 0.0, "at the changed tokens")


@law(Trait.CAUSAL, Trait.ATTENTION)
def check_gradients_respect_the_mask(subject: Subject) -> None:
    """The gradient of earlier outputs is 0 at later tokens, and not 0 at any earlier one.

    This is checked with the fused kernel and, by tracing the pattern, with the plain one.
    """
    subject, prefix = subject.trainable_copy(), subject.prefix
    for patterns, kernel in (((), "fused"), (("*.pattern",), "plain")):
        leaves: list[Tensor] = []

        def as_leaf(value: Tensor, leaves: list[Tensor] = leaves) -> Tensor:
            leaves.append(value.detach().requires_grad_())
            return leaves[-1]

        with Trace(subject.network, *patterns, edit={subject.network.embeddings[0]: as_leaf}):
            torch.autograd.backward(subject(subject.ids())[:, :prefix].sum())
        gradient = leaves[-1].grad  # for the target tokens: a Seq2Seq embeds the source first
        assert gradient is not None
        later, earlier = gradient[:, prefix:], gradient[:, :prefix]
        require_equal(later, torch.zeros_like(later), f"at later tokens, {kernel} kernel")
        require(bool((earlier != 0).all()), f"at earlier tokens, {kernel} kernel: some are 0")
