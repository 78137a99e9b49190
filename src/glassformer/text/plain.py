"""Tokenizers that need no merges: characters, bytes, words."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

from glassformer.text.tokenizer import REPLACEMENT, clean

UNKNOWN = "<unk>"
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # written without spaces: each is a word
WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+(?:'[^\W{CJK}]+)*|[^\w\s]")


def split_words(text: str) -> list[str]:
    return WORD.findall(clean(text))


class Listed:
    """A list of tokens; an id is a place in it. What is not listed is unknown."""

    kind: ClassVar[str]
    split: ClassVar[staticmethod[[str], Iterable[str]]]
    join: ClassVar[staticmethod[[Iterable[str]], str]]

    def __init__(self, tokens: Sequence[str], specials: Sequence[str] = (UNKNOWN,)) -> None:
        if len(set(tokens)) != len(tokens) or UNKNOWN not in specials:
            raise ValueError(f"tokens must differ from each other, and specials hold {UNKNOWN}")
        self.tokens = (*specials, *tokens)
        self.vocab, self.specials = len(self.tokens), {t: i for i, t in enumerate(specials)}
        self.unknown, self.prefix = self.specials[UNKNOWN], list[int]()
        self._ids = {token: i for i, token in enumerate(tokens, start=len(specials))}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        vocab: int | None = None,
        least: int = 1,
        specials: Sequence[str] = (UNKNOWN,),
    ) -> Self:
        """List what occurs at least so often: the `vocab` commonest, commonest first."""
        counts = Counter(token for text in texts for token in cls.split(text))
        common = sorted(counts, key=lambda token: (-counts[token], token))
        room = None if vocab is None else max(vocab - len(specials), 0)
        return cls([token for token in common[:room] if counts[token] >= least], specials)

    def extended(self, texts: Iterable[str]) -> Self:
        """The same list with what else occurs in the texts behind it, commonest first."""
        counts = Counter(token for text in texts for token in self.split(text))
        new = sorted(counts.keys() - self._ids.keys(), key=lambda token: (-counts[token], token))
        return type(self)([*self._ids, *new], list(self.specials))

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, self.unknown) for token in self.split(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return self.join(map(self.token, ids))

    def token(self, id: int) -> str:
        return self.tokens[id] if id < self.vocab else REPLACEMENT

    def to_json(self) -> str:
        listed, specials = self.tokens[len(self.specials) :], list(self.specials)
        content = {"kind": self.kind, "specials": specials, "tokens": listed}
        return json.dumps(content, ensure_ascii=False)


class Characters(Listed):
    """Every character is a token."""

    kind, split, join = "characters", staticmethod(clean), staticmethod("".join)


class Words(Listed):
    """Words and signs; spaces are not kept."""

    kind, split, join = "words", staticmethod(split_words), staticmethod(" ".join)


class Bytes:
    """Every byte of UTF-8 is a token: nothing is unknown, nothing is lost."""

    kind = "bytes"

    def __init__(self, specials: Sequence[str] = ()) -> None:
        self.vocab, self.specials = (
            256 + len(specials),
            {t: 256 + i for i, t in enumerate(specials)},
        )
        self._names, self.prefix = {i: t for t, i in self.specials.items()}, list[int]()

    @classmethod
    def train(cls, texts: Iterable[str] = (), *, specials: Sequence[str] = ()) -> Self:
        """There is nothing to learn: the texts are not read."""
        return cls(specials)

    def encode(self, text: str) -> list[int]:
        return list(clean(text).encode())

    def decode(self, ids: Iterable[int]) -> str:
        pieces = (bytes([i]) if i < 256 else self._names.get(i, REPLACEMENT).encode() for i in ids)
        return b"".join(pieces).decode(errors="replace")

    def token(self, id: int) -> str:
        if id > 255:
            return self._names.get(id, REPLACEMENT)
        return chr(id) if 32 < id < 127 else f"{id:02x}"

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "specials": list(self.specials)})
