"""One example of a task, as it was read: texts, perhaps a label, and the part that it is for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    location: str  # file:line
    texts: tuple[str, ...]
    part: str  # train or valid
    label: str | None = None
    group: str | None = None  # what must not stand in both parts, if not all of its texts

    @property
    def key(self) -> str:
        """Examples with equal keys in both parts are a leak."""
        return "\0".join(self.texts) if self.group is None else self.group
