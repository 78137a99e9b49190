"""The interface of every tokenizer."""

from collections.abc import Iterable
from typing import Protocol

REPLACEMENT = "\ufffd"


class Tokenizer(Protocol):
    """Converts text to ids below `vocab` and back.

    No text is ever encoded as a special token, except as an unknown token.
    """

    kind: str
    vocab: int
    special_tokens: dict[str, int]

    @property
    def prefix(self) -> list[int]:
        """The ids to put before a prompt, such as Llama's <s>."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids.

        Networks may have more outputs than there are tokens: ids outside the vocabulary are decoded
        as `REPLACEMENT`.
        """
        ...

    def token(self, id: int) -> str:
        """One token in readable form."""
        ...

    def to_json(self) -> str:
        """The content of `tokenizer.json`."""
        ...


def clean(text: str) -> str:
    """The text with lone surrogates, which cannot be encoded as UTF-8, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
