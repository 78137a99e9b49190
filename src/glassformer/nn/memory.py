"""The memory of Transformer-XL: what each layer read before, without gradients.

Shapes: b batch, t new tokens, m remembered tokens, s both, d features.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from glassformer.nn.block import Block
from glassformer.nn.cache import Cache, RecurrentState
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import tap


class MemoryBlock(Block):
    """A pre-norm block that also attends to its inputs for earlier tokens."""

    def __init__(self, dim: int, attention: nn.Module, feedforward: nn.Module) -> None:
        super().__init__(dim, attention, feedforward)

    def forward(self, inputs: Tensor, layout: SequenceLayout) -> Tensor:  # type: ignore[override]
        """b s d -> b t d: the last t inputs, the queries of the layout, are the new tokens."""
        normalized = self.attention_norm(inputs)
        x, queries = (value[:, -layout.queries :] for value in (inputs, normalized))
        x = tap("attention_residual", x + self.attention(queries, layout, source=normalized))
        return self.residual("feedforward", x, self.feedforward_norm, self.feedforward)


class LayerMemory(RecurrentState):
    """The inputs of one layer for the last `limit` tokens: a layer of `Cache`."""

    def __init__(self, capacity: int | None, *, limit: int) -> None:
        super().__init__(capacity)
        self.limit = limit

    @property
    def size(self) -> int:
        """The number of remembered tokens."""
        return 0 if self.state is None else int(self.state.shape[2])

    def extend(self, x: Tensor) -> Tensor:
        """Remember the inputs x (b t d); return them after those remembered before: b m+t d."""
        if self.state is not None and len(self.state[0]) != len(x):
            raise ValueError(f"the cache has batch size {len(self.state[0])}, got {len(x)}")
        inputs = x if self.state is None else torch.cat((self.state[0], x), dim=1)
        latest = inputs[:, max(inputs.shape[1] - self.limit, 0) :].detach()
        self.advance(x.shape[1], latest[None])
        return inputs

    def recall(self, inputs: Tensor) -> None:
        """Start with these inputs (b m d) as the memory."""
        self.length = inputs.shape[1]
        self.states = {self.length: inputs[None]}


class StreamMemory:
    """The memory of several streams of text, which are read one segment after the other.

    A segment that is read again, because a step failed, starts from the same memory as before.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        # by stream: the index of the last segment, and the memory before and after it (depth m d)
        self.states: dict[int, tuple[int, Tensor | None, Tensor]] = {}

    @contextmanager
    def open(self, streams: Tensor, segment: int, limit: int) -> Iterator[Cache]:
        """A cache with the memory of some streams (b), to read one segment of each of them."""
        rows = streams.tolist()
        before = [self.find(stream, segment) for stream in rows]
        cache = Cache(self.depth, None, layer_type=partial(LayerMemory, limit=limit))
        known = [memory[:, -limit:] for memory in before if memory is not None and limit]
        if len(known) == len(rows):
            memory = torch.stack(known, dim=1).to(streams.device)  # depth b m d
            for layer, inputs in zip(cache.layers, memory, strict=True):
                layer.recall(inputs)
        yield cache
        # values that are not finite would spoil all later segments
        after = torch.stack([layer.state[0] for layer in cache.layers]).nan_to_num(0, 0, 0)
        for i, stream in enumerate(rows):
            self.states[stream] = (segment, before[i], after[:, i])

    def find(self, stream: int, segment: int) -> Tensor | None:
        """The memory of a stream before a segment: depth m d; None if it starts there."""
        last, before, after = self.states.get(stream, (-1, None, torch.empty(0)))
        if segment == 0 or segment not in (last, last + 1):
            return None
        return before if segment == last else after

    def to_tensors(self) -> dict[str, Tensor]:
        """What `restore` needs to continue after the last segment."""
        tensors = {}
        for stream, (segment, _, after) in self.states.items():
            tensors[f"{stream}.{segment}"] = after
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.states = {}
        for name, after in tensors.items():
            stream, _, segment = name.partition(".")
            self.states[int(stream)] = (int(segment), None, after)
