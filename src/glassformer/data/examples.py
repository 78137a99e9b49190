"""An example as read from a file, before encoding."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    location: str  # file:line
    texts: tuple[str, ...]
    part: str  # train or valid
    label: str | None = None
    group: str | None = None  # examples of a group must be in the same part

    @property
    def key(self) -> str:
        """Decides the part; an equal key in both parts is a data leak."""
        return "\0".join(self.texts) if self.group is None else self.group
