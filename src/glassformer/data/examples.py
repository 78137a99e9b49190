"""An example as read from a file, before encoding."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from glassformer.data.files import BadRowPolicy


@dataclass(frozen=True)
class Example:
    location: str  # file:line
    texts: tuple[str, ...]
    split: str  # train or valid
    label: str | None = None
    group: str | None = None  # examples in a group must be in the same split

    @property
    def key(self) -> str:
        """Determines the split; a key that occurs in both splits is a data leak."""
        return "\0".join(self.texts) if self.group is None else self.group


ExampleReader = Callable[[BadRowPolicy], Iterable[Example]]  # may be called more than once
