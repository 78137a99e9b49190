"""A tokenizer with a vocabulary for each of two languages."""

import json
from collections.abc import Iterable

from glassformer.text.tokenizer import Tokenizer


class Bilingual:
    """The tokenizers of a source and of a target language; everywhere else, that of the target."""

    kind = "bilingual"

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self.source, self.target = source, target
        self.vocab, self.special_tokens = target.vocab, target.special_tokens
        self.prefix = target.prefix

    def encode(self, text: str) -> list[int]:
        return self.target.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self.target.decode(ids)

    def token(self, id: int) -> str:
        return self.target.token(id)

    def to_json(self) -> str:
        parts = {"source": self.source.to_json(), "target": self.target.to_json()}
        content = {"kind": self.kind, **{name: json.loads(text) for name, text in parts.items()}}
        return json.dumps(content, ensure_ascii=False)


def source_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of source texts: the same as that of target texts, unless there are two."""
    return tokenizer.source if isinstance(tokenizer, Bilingual) else tokenizer
