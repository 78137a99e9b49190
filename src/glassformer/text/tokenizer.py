"""The interface of every tokenizer, and the special tokens that have a role."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

REPLACEMENT = "\ufffd"
CLS, SEP = "[CLS]", "[SEP]"  # BERT's special tokens: before the first text, and after each text
SEPARATOR = "<sep>"  # between the two texts of a pair
SEPARATORS = (SEP, SEPARATOR, "<|endoftext|>")  # in order of preference
UNKNOWN_TOKENS = ("<unk>", "[UNK]")
EOS_TOKENS = ("<|endoftext|>", "</s>", "<s>")


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


def unknown_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids of tokens that stand for unknown text; empty if the tokenizer reads all text."""
    special = tokenizer.special_tokens
    return {special[token] for token in UNKNOWN_TOKENS if token in special}


def unknown_fraction(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """The fraction of tokens in the texts that are unknown; 1 if there are no tokens."""
    unknown = unknown_ids(tokenizer)
    ids = [id for text in texts for id in tokenizer.encode(text)]
    return sum(id in unknown for id in ids) / len(ids) if ids else 1.0


def find_eos(tokenizer: Tokenizer | None, metadata: Mapping[str, Any]) -> list[int]:
    """The ids that end a generated text: those in the metadata, or else of `EOS_TOKENS`."""
    special = tokenizer.special_tokens if tokenizer else {}
    return metadata.get("eos") or [special[token] for token in EOS_TOKENS if token in special]
