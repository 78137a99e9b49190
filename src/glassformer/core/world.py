"""The processes that train together. Alone, there is one, and nothing changes."""

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Which of how many processes this is; what one decides or sums up, all of them share."""

    rank: int = 0
    size: int = 1

    def shard(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rows of a batch that this process works on."""
        if self.size == 1:
            return batch
        return {name: value[self.rank :: self.size] for name, value in batch.items()}

    def agree(self, value: T) -> T:
        """What the first process decided."""
        return value

    def add(self, value: T) -> T:
        """The sum over all processes."""
        return value
