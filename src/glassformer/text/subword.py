"""Byte-level BPE and WordPiece on the library `tokenizers`; `by_hand.py` is their definition."""

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
from glassformer.text.by_hand import BYTE
from glassformer.text.components import check_token
from glassformer.text.tokenizer import clean

LONG_WORD = re.compile(r"\S{1000}")
BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class SubwordTokenizer:
    """Pieces of words, as any `tokenizer.json` of that library describes them."""

    def __init__(self, engine: Engine) -> None:
        engine.no_padding()
        engine.no_truncation()
        engine.encode_special_tokens = True  # a special token that a person types stays text
        self.engine, self.vocab = engine, max(engine.get_vocab().values(), default=-1) + 1
        self.kind = type(engine.model).__name__.lower()
        added = engine.get_added_tokens_decoder().items()
        self.special_tokens = {token.content: i for i, token in added if token.special}

    @property
    def prefix(self) -> list[int]:
        marked = self.engine.encode("a", add_special_tokens=True)
        marks = zip(marked.ids, marked.special_tokens_mask, strict=True)
        return [id for id, _ in takewhile(lambda pair: pair[1], marks)]

    def with_prefix(self, token: str | None) -> SubwordTokenizer:
        """A tokenizer on the same engine, with this special token, or none, before each text."""
        template, marks = ("$A", []) if token is None else (f"{token} $A", [token])
        self.engine.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(mark, self.special_tokens[mark]) for mark in marks]
        )
        return SubwordTokenizer(self.engine)

    def encode(self, text: str) -> list[int]:
        try:
            ids: list[int] = self.engine.encode(clean(text), add_special_tokens=False).ids
        except Exception as error:  # so the library says that it has no token for something
            raise GlassError(f"the tokenizer cannot encode {text[:40]!r}: {error}") from None
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for many texts at once, on all cores."""
        batch = self.engine.encode_batch_fast(list(map(clean, texts)), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self.engine.decode(list(ids), skip_special_tokens=False)
        return text

    def token(self, id: int) -> str:
        name, text = str(self.engine.id_to_token(id)), self.decode([id])
        if "\ufffd" in text and all(sign in BYTE for sign in name):  # a piece of a character
            return " ".join(f"{BYTE[sign]:02x}" for sign in name)
        return name if id in self.special_tokens.values() or not text else text

    def to_json(self) -> str:
        text: str = self.engine.to_str()
        return text


class BPE(SubwordTokenizer):
    """GPT-2's: text as bytes, and common neighbours merged. Nothing is unknown or lost."""

    @classmethod
    def of(
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
        """Merge neighbours that occur at least so often, until there are `vocab` tokens.

        The special tokens stand behind the others, as in GPT-2.
        """
        engine = cls.of({}, [], ()).engine
        trainer = trainers.BpeTrainer(
            vocab_size=vocab - len(special_tokens),
            min_frequency=min_count,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        engine.train_from_iterator(map(cut_words, texts), trainer)
        return cls(add_special_tokens(engine, special_tokens))

    @classmethod
    def read(cls, vocabulary: Path, merges: Path) -> Self:
        """GPT-2's two files, `vocab.json` (or encoder.json) and `merges.txt` (or vocab.bpe)."""
        ids = read_json(vocabulary)
        if not isinstance(ids, dict):
            raise GlassError(f"{vocabulary} is no table of tokens and their ids")
        try:
            for token, id in ids.items():
                check_token(token, id)
        except GlassError as error:
            raise GlassError(f"{vocabulary}: {error}") from None
        for sign in pre_tokenizers.ByteLevel.alphabet():
            if sign not in ids:
                raise GlassError(f"{vocabulary} has no token for the byte that is written {sign!r}")
        lines = read_text(merges).split("\n")
        pairs = [
            tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")
        ]
        for number, pair in enumerate(pairs, start=1):
            if len(pair) != 2 or not {*pair, "".join(pair)} <= ids.keys():
                raise GlassError(f"{merges}: merge {number}, {' '.join(pair)!r}, is not a merge")
        special_tokens = [token for token in ids if token == "<|endoftext|>"]
        return cls.of(ids, pairs, special_tokens)  # type: ignore[arg-type]


class WordPiece(SubwordTokenizer):
    """BERT's: words cut into the longest known pieces, those inside a word marked ##."""

    @classmethod
    def of(
        cls,
        tokens: Sequence[str],
        special_tokens: Sequence[str] = BERT_SPECIAL_TOKENS,
        *,
        lower: bool = True,
        strip: bool | None = None,  # accents; None: where case is folded
        ideographs: bool = True,  # each is a word
    ) -> Self:
        ids = {token: i for i, token in enumerate(tokens)}
        if "[UNK]" not in ids or len(ids) != len(tokens):
            raise GlassError("a WordPiece vocabulary needs [UNK], and no token twice")
        engine = Engine(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
        engine.normalizer = normalizers.BertNormalizer(
            lowercase=lower, strip_accents=strip, handle_chinese_chars=ideographs
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
        """Merge as BPE does, inside words; letters take at most half of the vocabulary.

        The library numbers letters inside words (##a) in an order of chance, and its choice
        between equally common pairs depends on that: so the letters are counted and numbered here.
        """
        counts = count_words(cls.of(["[UNK]"], lower=lower).engine, texts)
        letters, counts = choose_letters(counts, vocab)
        start = [*special_tokens, *letters]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab, min_frequency=min_count, special_tokens=start, show_progress=False
        )
        engine = Engine(models.WordPiece(unk_token="[UNK]"))
        engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        engine.train_from_iterator(repeated(counts), trainer)
        ids = engine.get_vocab()
        return cls.of(sorted(ids, key=ids.__getitem__), special_tokens, lower=lower)

    @classmethod
    def read(
        cls,
        vocabulary: Path,
        *,
        lower: bool = True,
        strip: bool | None = None,
        ideographs: bool = True,
    ) -> Self:
        """BERT's `vocab.txt`, a token a line."""
        tokens = read_text(vocabulary).removesuffix("\n").split("\n")
        return cls.of(tokens, lower=lower, strip=strip, ideographs=ideographs)


def add_special_tokens(engine: Engine, special_tokens: Sequence[str]) -> Engine:
    """Add tokens that no text can become: so they must not be a word, which a text may hold."""
    for token in special_tokens:
        normal = engine.normalizer.normalize_str(token) if engine.normalizer else token
        if len(engine.pre_tokenizer.pre_tokenize_str(normal)) < 2:
            raise GlassError(f"the special token {token!r} is a word of its own: write <{token}>")
    engine.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in special_tokens]
    )
    return engine


def cut_words(text: str) -> str:
    """The text with spaces in words so long that merging their letters would take minutes."""
    return LONG_WORD.sub(r"\g<0> ", clean(text))


def count_words(engine: Engine, texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, as the engine normalises and splits text."""
    counts: Counter[str] = Counter()
    for text in texts:
        normal = engine.normalizer.normalize_str(cut_words(text))
        counts.update(word for word, _ in engine.pre_tokenizer.pre_tokenize_str(normal))
    return counts


def choose_letters(counts: Counter[str], vocab: int) -> tuple[list[str], Counter[str]]:
    """The commonest letters, then those inside words; and the words that they can spell."""
    often: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            often[letter] += count
    kept = set(sorted(often, key=lambda letter: (-often[letter], letter))[: vocab // 4])
    counts = Counter({word: n for word, n in counts.items() if kept.issuperset(word)})
    inside = {f"##{letter}" for word in counts for letter in word[1:]}
    return sorted(kept) + sorted(inside), counts


def repeated(counts: Counter[str], most: int = 1000) -> Iterator[str]:
    """Each word as often as it occurs, in lines of bounded length."""
    for word, count in counts.items():
        for done in range(0, count, most):
            yield " ".join([word] * min(most, count - done))
