"""Byte-level BPE and WordPiece with the `tokenizers` library.

`by_hand.py` has the same algorithms in plain Python.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Self

from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Engine

from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json, read_text
from glassformer.text.by_hand import CHAR_TO_BYTE
from glassformer.text.components import check_token
from glassformer.text.tokenizer import clean

LONG_WORD = re.compile(r"\S{1000}")  # training merges on longer words would take minutes
BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class SubwordTokenizer:
    """A tokenizer described by a `tokenizer.json` of the `tokenizers` library."""

    def __init__(self, engine: Engine) -> None:
        engine.no_padding()
        engine.no_truncation()
        engine.encode_special_tokens = True  # a special token in the input is encoded as text
        self.engine = engine
        self.vocab = max(engine.get_vocab().values(), default=-1) + 1
        self.kind = type(engine.model).__name__.lower()
        added = engine.get_added_tokens_decoder().items()
        self.special_tokens = {token.content: i for i, token in added if token.special}

    @property
    def prefix(self) -> list[int]:
        encoding = self.engine.encode("a", add_special_tokens=True)
        pairs = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        return [id for id, _ in takewhile(lambda pair: pair[1], pairs)]

    def with_prefix(self, token: str | None) -> SubwordTokenizer:
        """A tokenizer on the same engine that puts this special token, or none, before a text."""
        template, tokens = ("$A", []) if token is None else (f"{token} $A", [token])
        self.engine.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(t, self.special_tokens[t]) for t in tokens]
        )
        return SubwordTokenizer(self.engine)

    def encode(self, text: str) -> list[int]:
        try:
            ids: list[int] = self.engine.encode(clean(text), add_special_tokens=False).ids
        except Exception as error:  # raised by the library for text that no token covers
            raise GlassError(f"the tokenizer cannot encode {text[:40]!r}: {error}") from None
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts in parallel on all cores."""
        batch = self.engine.encode_batch_fast(list(map(clean, texts)), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self.engine.decode(list(ids), skip_special_tokens=False)
        return text

    def token(self, id: int) -> str:
        name = str(self.engine.id_to_token(id))
        text = self.decode([id])
        if "\ufffd" in text and all(c in CHAR_TO_BYTE for c in name):  # part of a character
            return " ".join(f"{CHAR_TO_BYTE[c]:02x}" for c in name)
        return name if id in self.special_tokens.values() or not text else text

    def to_json(self) -> str:
        text: str = self.engine.to_str()
        return text


class BPE(SubwordTokenizer):
    """GPT-2's byte-level BPE: no text is unknown, and decoding is lossless."""

    @classmethod
    def from_vocab(
        cls,
        vocabulary: dict[str, int],
        merges: list[tuple[str, str]],
        special_tokens: Sequence[str],
    ) -> Self:
        engine = Engine(models.BPE(vocabulary, merges))
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        return cls(add_special_tokens(engine, special_tokens))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        vocab: int = 8192,
        min_count: int = 2,
        special_tokens: Sequence[str] = ("<|endoftext|>",),
    ) -> Self:
        """Merge pairs that occur at least `min_count` times until there are `vocab` tokens.

        Special tokens get the last ids, as in GPT-2.
        """
        engine = cls.from_vocab({}, [], ()).engine
        trainer = trainers.BpeTrainer(
            vocab_size=vocab - len(special_tokens),
            min_frequency=min_count,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        engine.train_from_iterator(map(split_long_words, texts), trainer)
        return cls(add_special_tokens(engine, special_tokens))

    @classmethod
    def read(cls, vocabulary: Path, merges: Path) -> Self:
        """Load GPT-2's files `vocab.json` (or encoder.json) and `merges.txt` (or vocab.bpe)."""
        ids = read_json(vocabulary)
        if not isinstance(ids, dict):
            raise GlassError(f"{vocabulary} is not a JSON object that maps tokens to ids")
        try:
            for token, id in ids.items():
                check_token(token, id)
        except GlassError as error:
            raise GlassError(f"{vocabulary}: {error}") from None
        for character in pre_tokenizers.ByteLevel.alphabet():
            if character not in ids:
                byte = CHAR_TO_BYTE[character]
                raise GlassError(
                    f"{vocabulary} has no token {character!r} for the byte {byte:#04x}"
                )
        lines = read_text(merges).split("\n")
        pairs = [
            tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")
        ]
        for number, pair in enumerate(pairs, start=1):
            if len(pair) != 2 or not {*pair, "".join(pair)} <= ids.keys():
                raise GlassError(
                    f"{merges}: merge {number}, {' '.join(pair)!r}, is not a pair of tokens"
                )
        special_tokens = [token for token in ids if token == "<|endoftext|>"]
        return cls.from_vocab(ids, pairs, special_tokens)  # type: ignore[arg-type]


class WordPiece(SubwordTokenizer):
    """BERT's WordPiece: words split into the longest known pieces; inner pieces start with ##."""

    @classmethod
    def from_vocab(
        cls,
        tokens: Sequence[str],
        special_tokens: Sequence[str] = BERT_SPECIAL_TOKENS,
        *,
        lower: bool = True,
        strip_accents: bool | None = None,  # None: only with `lower`
        ideographs: bool = True,  # treat each ideograph as a word
    ) -> Self:
        ids = {token: i for i, token in enumerate(tokens)}
        if "[UNK]" not in ids or len(ids) != len(tokens):
            raise GlassError("a WordPiece vocabulary must contain [UNK] and no duplicates")
        engine = Engine(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
        engine.normalizer = normalizers.BertNormalizer(
            lowercase=lower, strip_accents=strip_accents, handle_chinese_chars=ideographs
        )
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece()
        return cls(add_special_tokens(engine, [token for token in special_tokens if token in ids]))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        vocab: int = 8192,
        min_count: int = 2,
        special_tokens: Sequence[str] = BERT_SPECIAL_TOKENS,
        lower: bool = True,
    ) -> Self:
        """Merge pieces inside words, as BPE does.

        Single characters are at most half of the vocabulary. The `tokenizers` library assigns ids
        to continuation characters (##a) in random order, and breaks ties between pairs by these
        ids. Passing it the characters in a fixed order makes training deterministic.
        """
        counts = count_words(cls.from_vocab(["[UNK]"], lower=lower).engine, texts)
        characters, counts = choose_characters(counts, vocab)
        initial = [*special_tokens, *characters]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab, min_frequency=min_count, special_tokens=initial, show_progress=False
        )
        engine = Engine(models.WordPiece(unk_token="[UNK]"))
        engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        engine.train_from_iterator(repeat_words(counts), trainer)
        ids = engine.get_vocab()
        return cls.from_vocab(sorted(ids, key=ids.__getitem__), special_tokens, lower=lower)

    @classmethod
    def read(
        cls,
        vocabulary: Path,
        *,
        lower: bool = True,
        strip_accents: bool | None = None,
        ideographs: bool = True,
    ) -> Self:
        """Load BERT's `vocab.txt`, with one token per line."""
        tokens = read_text(vocabulary).removesuffix("\n").split("\n")
        return cls.from_vocab(
            tokens, lower=lower, strip_accents=strip_accents, ideographs=ideographs
        )


def add_special_tokens(engine: Engine, special_tokens: Sequence[str]) -> Engine:
    """Add special tokens to an engine.

    No text may be encoded as a special token, so a special token that is an ordinary word is
    rejected.
    """
    for token in special_tokens:
        normal = engine.normalizer.normalize_str(token) if engine.normalizer else token
        if len(engine.pre_tokenizer.pre_tokenize_str(normal)) < 2:
            raise GlassError(f"the special token {token!r} is an ordinary word: use <{token}>")
    engine.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in special_tokens]
    )
    return engine


def split_long_words(text: str) -> str:
    """The text with spaces inserted into very long words."""
    return LONG_WORD.sub(r"\g<0> ", clean(text))


def count_words(engine: Engine, texts: Iterable[str]) -> Counter[str]:
    """Count the words into which the engine splits the normalized texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        normal = engine.normalizer.normalize_str(split_long_words(text))
        counts.update(word for word, _ in engine.pre_tokenizer.pre_tokenize_str(normal))
    return counts


def choose_characters(counts: Counter[str], vocab: int) -> tuple[list[str], Counter[str]]:
    """Return the most frequent characters, and the counts of the words made of only these.

    Characters that occur after the start of a word are also included as continuations (##a).
    """
    char_counts: Counter[str] = Counter()
    for word, count in counts.items():
        for char in word:
            char_counts[char] += count
    by_count = sorted(char_counts, key=lambda char: (-char_counts[char], char))
    characters = set(by_count[: vocab // 4])
    counts = Counter({word: n for word, n in counts.items() if characters.issuperset(word)})
    continuations = {f"##{char}" for word in counts for char in word[1:]}
    return sorted(characters) + sorted(continuations), counts


def repeat_words(counts: Counter[str], max_words: int = 1000) -> Iterator[str]:
    """Yield lines that repeat one word, at most `max_words` times each.

    In all lines together, each word occurs as many times as it was counted.
    """
    for word, count in counts.items():
        for done in range(0, count, max_words):
            yield " ".join([word] * min(max_words, count - done))
