"""The interface for distributed training. With one process, as now, every call is a no-op."""

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

    def agree(self, value: T) -> T:
        """Broadcast the value of the first process."""
        return value

    def add(self, value: T) -> T:
        """Sum a value over all processes."""
        return value
