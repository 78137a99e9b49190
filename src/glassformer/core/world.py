"""The interface for distributed training. For now there is one process: calls are no-ops."""

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's rank among `size` processes, and the communication between them."""

    rank: int = 0
    size: int = 1

    def shard(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rows of a batch that this process trains on."""
        if self.size == 1:
            return batch
        return {name: value[self.rank :: self.size] for name, value in batch.items()}

    def broadcast(self, value: T) -> T:
        """Return the value of the first process."""
        return value

    def all_reduce(self, value: T) -> T:
        """Return the sum of a value over all processes."""
        return value
