"""Laws for networks that read streams of text in segments, with a memory.

Shapes: b batch, t tokens, v vocabulary.
"""

import torch
from torch import Tensor

from glassformer.laws.comparison import require, require_close, require_different
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Trait


def read_segments(subject: Subject, size: int, memory: int) -> list[Tensor]:
    """The outputs for the ids of a subject in segments of `size` tokens: each b size v."""
    ids, outputs = subject.ids(), list[Tensor]()
    streams = torch.arange(len(ids), device=ids.device)
    for segment, start in enumerate(range(0, ids.shape[1], size)):
        inputs = {"ids": ids[:, start : start + size], "past_ids": ids[:, :start]}
        index = torch.full_like(streams, segment)
        outputs.append(subject(**inputs, streams=streams, segment=index, memory=memory))
    return outputs


@law(Trait.SEGMENT_MEMORY)
@torch.no_grad()
def check_segments_with_a_long_memory_equal_one_pass(subject: Subject) -> None:
    """Reading segments with a memory of all tokens before them gives the output of one pass."""
    subject, expected = subject.copy(), subject(subject.ids())
    for size in (1, 5, subject.length):
        actual = torch.cat(read_segments(subject, size, subject.length), dim=1)
        require_close(actual, expected, subject.tolerance, f"in segments of {size} tokens")
    without = torch.cat(read_segments(subject, 5, memory=0), dim=1)
    require_close(without[:, :5], expected[:, :5], subject.tolerance, "in the first segment")
    require_different(
        without[:, 5:], expected[:, 5:], subject.tolerance, "after it, without a memory"
    )


@law(Trait.SEGMENT_MEMORY)
def check_gradients_stop_at_the_segment(subject: Subject) -> None:
    """The backward pass of a segment does not reach the segments before it."""
    subject = subject.trainable_copy()
    subject.network.train()
    outputs = read_segments(subject, 5, subject.length)
    torch.autograd.backward(outputs[0].sum())  # frees the graph of the first segment
    torch.autograd.backward(outputs[1].sum())  # fails if it is part of the second one's graph
    tensors = subject.network.training_state().values()
    is_detached = all(not tensor.requires_grad for tensor in tensors)
    require(bool(tensors) and is_detached, "because the memory is missing or has a gradient")
