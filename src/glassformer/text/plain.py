"""Tokenizers without merges: characters, bytes, words."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

from glassformer.text.tokenizer import REPLACEMENT, clean

UNKNOWN = "<unk>"
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # written without spaces: each character is a word
WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+(?:'[^\W{CJK}]+)*|[^\w\s]")
# the same in the syntax of the `tokenizers` library, in which \w and \s have another meaning
LETTER = rf"[\p{{L}}\p{{N}}_&&[^{CJK}]]"
LIBRARY_WORD = rf"[{CJK}]|{LETTER}+(?:'{LETTER}+)*|[^\p{{L}}\p{{N}}_\s\x1c-\x1f]"


def split_words(text: str) -> list[str]:
    return WORD.findall(clean(text))


class ListTokenizer:
    """A tokenizer with a list of tokens; an id is an index into it. Other tokens become <unk>."""

    kind: ClassVar[str]
    split: ClassVar[staticmethod[[str], Iterable[str]]]
    join: ClassVar[staticmethod[[Iterable[str]], str]]

    def __init__(self, tokens: Sequence[str], special_tokens: Sequence[str] = (UNKNOWN,)) -> None:
        if len(set(tokens)) != len(tokens) or UNKNOWN not in special_tokens:
            raise ValueError(f"tokens must be distinct, and special_tokens must include {UNKNOWN}")
        self.tokens = (*special_tokens, *tokens)
        self.vocab = len(self.tokens)
        self.special_tokens = {t: i for i, t in enumerate(special_tokens)}
        self.unknown = self.special_tokens[UNKNOWN]
        self.prefix = list[int]()
        self._ids = {token: i for i, token in enumerate(tokens, start=len(special_tokens))}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        vocab: int | None = None,
        min_count: int = 1,
        special_tokens: Sequence[str] = (UNKNOWN,),
    ) -> Self:
        """Return a tokenizer with the tokens that occur at least `min_count` times.

        More frequent tokens get lower ids. `vocab` limits the number of tokens, including special
        tokens.
        """
        counts = Counter(token for text in texts for token in cls.split(text))
        by_count = sorted(counts, key=lambda token: (-counts[token], token))
        limit = None if vocab is None else max(vocab - len(special_tokens), 0)
        tokens = [token for token in by_count[:limit] if counts[token] >= min_count]
        return cls(tokens, special_tokens)

    def extend(self, texts: Iterable[str]) -> Self:
        """A tokenizer that also has the new tokens in the texts, appended most frequent first."""
        counts = Counter(token for text in texts for token in self.split(text))
        new = sorted(counts.keys() - self._ids.keys(), key=lambda token: (-counts[token], token))
        return type(self)([*self._ids, *new], list(self.special_tokens))

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, self.unknown) for token in self.split(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return self.join(map(self.token, ids))

    def token(self, id: int) -> str:
        return self.tokens[id] if id < self.vocab else REPLACEMENT

    def to_json(self) -> str:
        tokens = self.tokens[len(self.special_tokens) :]
        special_tokens = list(self.special_tokens)
        content = {"kind": self.kind, "special_tokens": special_tokens, "tokens": tokens}
        return json.dumps(content, ensure_ascii=False)


class Characters(ListTokenizer):
    """Every character is a token."""

    kind = "characters"
    split = staticmethod(clean)
    join = staticmethod("".join)


class Words(ListTokenizer):
    """Words and punctuation marks are tokens; spaces are lost."""

    kind = "words"
    split = staticmethod(split_words)
    join = staticmethod(" ".join)


class Bytes:
    """Every byte of the UTF-8 text is a token: none is unknown, and decoding is lossless."""

    kind = "bytes"

    def __init__(self, special_tokens: Sequence[str] = ()) -> None:
        self.vocab = 256 + len(special_tokens)
        self.special_tokens = {t: 256 + i for i, t in enumerate(special_tokens)}
        self._names = {i: t for t, i in self.special_tokens.items()}
        self.prefix = list[int]()

    @classmethod
    def train(cls, texts: Iterable[str] = (), *, special_tokens: Sequence[str] = ()) -> Self:
        """Return a tokenizer without training: `texts` is ignored."""
        return cls(special_tokens)

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
        return json.dumps({"kind": self.kind, "special_tokens": list(self.special_tokens)})
