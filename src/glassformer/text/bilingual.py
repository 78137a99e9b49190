"""A tokenizer with a vocabulary for each of two languages."""

import json
from collections import Counter
from collections.abc import Iterable

from glassformer.text.tokenizer import Tokenizer


class Bilingual:
    """The tokenizers of a source and of a target language; everywhere else, that of the target."""

    kind = "bilingual"

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self.source, self.target = source, target
        self.vocab = target.vocab
        self.special_tokens = target.special_tokens
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


def shared_characters(sources: Iterable[str], targets: Iterable[str]) -> float:
    """How similar the frequencies of characters are: 1 if equal, 0 if none occurs in both.

    Languages with a common alphabet share most characters, Chinese and English hardly any.
    """
    counts = [Counter("".join("".join(texts).split())) for texts in (sources, targets)]
    source, target = ({c: n / max(count.total(), 1) for c, n in count.items()} for count in counts)
    return sum(min(share, target.get(c, 0.0)) for c, share in source.items())
