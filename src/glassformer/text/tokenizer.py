"""Text to ids and back: what every tokenizer can do, and its one file, `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Tokenizer(Protocol):
    """Text becomes ids below `vocab`. Special tokens have ids that no text can become."""

    kind: str
    vocab: int
    specials: dict[str, int]

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def token(self, id: int) -> str:
        """One token, as a person reads it."""
        ...

    def to_json(self) -> str: ...


def clean(text: str) -> str:
    """The text with halves of characters (lone surrogates), which are not text, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
