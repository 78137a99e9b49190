"""A network under test, with seeded inputs for it.

Shapes: b batch, t tokens, s source tokens.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.models.network import Network, Trait

BATCH, SOURCE_LENGTH, MIN_LENGTH = 3, 7, 4  # sequences; tokens
TOLERANCE = 1e-5
Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True)
class Subject:
    """A network, and the ids, padding masks and sources that the laws use as its inputs.

    All inputs depend only on the seed: the same call returns the same tensor.
    """

    network: Network
    name: str = ""  # for messages; by default the name of its class
    max_length: int = 12  # tokens in a sequence, unless the context is shorter
    tolerance: float = TOLERANCE  # for values computed in two ways
    seed: int = 0

    def __post_init__(self) -> None:
        if self.length < MIN_LENGTH:
            raise GlassError(
                f"laws need a context of at least {MIN_LENGTH} tokens, got {self.length}"
            )

    def __call__(self, ids: Tensor, **kwargs: Any) -> Tensor:
        """The output of the network for these ids (and the source of each row, for a Seq2Seq)."""
        output: Tensor = self.network(**self.inputs(ids, **kwargs))
        return output

    def inputs(self, ids: Tensor, *, row: int | None = None, **kwargs: Any) -> dict[str, Any]:
        """The arguments of `forward`: ids, and a source for a Seq2Seq.

        If the ids are a single row of the batch, `row` is its index.
        """
        cache = kwargs.get("cache")
        has_cached_source = cache is not None and cache.length > 0
        if self.has(Trait.SEQ2SEQ) and not has_cached_source and "source" not in kwargs:
            source = self.source(len(ids)) if row is None else self.source()[row : row + 1]
            kwargs["source"] = source
        return {"ids": ids, **kwargs}

    def examples(self, batch: int = BATCH, *, padding: Side | None = None) -> dict[str, Tensor]:
        """Random arguments of `forward`, with padding on one side if the network can have that."""
        inputs = self.network.random_inputs(batch, self.length, self.generator(0))
        if self.has(Trait.SEQ2SEQ):
            inputs["source"] = self.source(batch)
        if padding and "keep" in self.network.forward_inputs:
            inputs["keep"] = self.keep(padding)
        return {name: value.to(self.network.device) for name, value in inputs.items()}

    def run(self, inputs: dict[str, Tensor]) -> Tensor:
        """The output of the network for these arguments, as floats of the network's precision."""
        dtype = next((p.dtype for p in self.network.parameters()), torch.float32)
        output: Tensor = self.network(
            **{n: x.to(dtype) if x.is_floating_point() else x for n, x in inputs.items()}
        )
        return output

    @property
    def length(self) -> int:
        return min(self.max_length, self.network.context or self.max_length)

    @property
    def prefix(self) -> int:
        """The number of tokens before those that a law changes or adds."""
        return 2 * self.length // 3

    def has(self, *traits: Trait) -> bool:
        return self.network.has(*traits)

    def ids(self, batch: int = BATCH) -> Tensor:
        """Random ids: b t."""
        return self.random_ids(batch, self.length, stream=0)

    def source(self, batch: int = BATCH) -> Tensor:
        """Random source ids for a Seq2Seq: b s."""
        return self.random_ids(batch, SOURCE_LENGTH, stream=1)

    def other_ids(self, ids: Tensor) -> Tensor:
        """Ids that differ from these everywhere."""
        return (ids + 1) % self.network.vocab

    def keep(self, side: Side) -> Tensor:
        """A padding mask (b t), false at padding: the first row has none, the last row the most."""
        padding = torch.tensor([[0], [self.length // 4], [7 * self.length // 12]])
        keep = (torch.arange(self.length) >= padding).to(self.network.device)
        return keep if side == "left" else keep.flip(1)

    def random_ids(self, batch: int, length: int, *, stream: int) -> Tensor:
        ids = torch.randint(self.network.vocab, (batch, length), generator=self.generator(stream))
        return ids.to(self.network.device)

    def random_like(self, value: Tensor, *, stream: int = 2) -> Tensor:
        """Normally distributed values with the shape, type and device of `value`."""
        return torch.randn(value.shape, generator=self.generator(stream)).to(value)

    def generator(self, stream: int) -> torch.Generator:
        return torch.Generator().manual_seed(1000 * self.seed + stream)

    def copy(self) -> "Subject":
        """A subject with a deep copy of the network, which a law may change."""
        return replace(self, network=copy.deepcopy(self.network))

    def trainable_copy(self) -> "Subject":
        """A copy with gradients cleared and turned on for every parameter."""
        subject = self.copy()
        if not self.has(Trait.FITTED):
            subject.network.requires_grad_(True)
        subject.network.zero_grad()
        return subject
