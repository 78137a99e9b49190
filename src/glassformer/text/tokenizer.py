"""Text to ids and back: what every tokenizer can do, and its one file, `tokenizer.json`."""

from collections.abc import Iterable
from typing import Protocol

REPLACEMENT = "\ufffd"


class Tokenizer(Protocol):
    """Text becomes ids below `vocab`. Special tokens have ids that no text can become."""

    kind: str
    vocab: int
    special_tokens: dict[str, int]

    @property
    def prefix(self) -> list[int]:
        """The ids that stand before a text to continue, such as <s> of Llama."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; one that is no token, which a larger network can predict, is shown as
        `REPLACEMENT`."""
        ...

    def token(self, id: int) -> str:
        """One token, as a person reads it."""
        ...

    def to_json(self) -> str: ...


def clean(text: str) -> str:
    """The text with halves of characters (lone surrogates), which are not text, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
