"""Plain text for language models: from files to two stores of ids, in constant memory."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from glassformer.core.errors import GlassError
from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data.files import (
    TABLES,
    BadRowPolicy,
    IgnoreBadRows,
    file_type,
    read_lines,
    read_rows,
)
from glassformer.data.store import StoreWriter
from glassformer.text import TOKENIZERS
from glassformer.text.plain import UNKNOWN, ListTokenizer
from glassformer.text.subword import BERT_SPECIAL_TOKENS, SubwordTokenizer
from glassformer.text.tokenizer import Tokenizer

PIECE = 1 << 16  # characters that are encoded at once
MAX_TOKENIZER_CHARACTERS = 20_000_000  # characters that a tokenizer learns from at the most

T = TypeVar("T")


def texts(
    files: tuple[Path, ...], on_bad_row: BadRowPolicy, column: str | None = None
) -> Iterator[str]:
    """The text of files, of a column of tables, or of all files in folders, in pieces."""
    for file in files:
        if file.is_dir():
            inside = tuple(sorted(p for p in file.rglob("*") if p.is_file()))
            if not inside:
                raise GlassError(f"{file} is empty: there is nothing to learn from")
            yield from texts(inside, on_bad_row, column)
        elif file_type(file) in TABLES:
            yield from column_texts(file, on_bad_row, column)
        else:
            yield from pieces(text for _, text in read_lines(file, on_bad_row))


def column_texts(file: Path, on_bad_row: BadRowPolicy, column: str | None) -> Iterator[str]:
    for row in read_rows(file, on_bad_row):
        if column is None or column not in row.values:
            raise GlassError(
                f"{row.location}: there is no column {column!r}; have {', '.join(row.values)}"
            )
        yield row.values[column] + "\n"


def guess_column(files: Iterable[Path]) -> str | None:
    """The column of the tables among the files that holds most text at first sight."""
    for file in files:
        if file.is_dir():
            inside = guess_column(sorted(p for p in file.rglob("*") if p.is_file()))
            if inside is not None:
                return inside
        elif file_type(file) in TABLES:
            first = list(islice(read_rows(file, IgnoreBadRows()), 100))
            sizes = Counter[str]()
            for row in first:
                sizes.update({name: len(value) for name, value in row.values.items()})
            return max(sizes, key=sizes.__getitem__, default=None)
    return None


def pieces(content: Iterable[str]) -> Iterator[str]:
    """Lines joined into pieces of at least `PIECE` characters."""
    held: list[str] = []
    size = 0
    for text in content:
        held.append(text)
        size += len(text)
        if size >= PIECE:
            yield "".join(held)
            held, size = [], 0
    if held:
        yield "".join(held)


@dataclass(frozen=True)
class CorpusSummary:
    """How much text there is, and a sample of it to learn a tokenizer from."""

    bytes: int
    sample: list[str]


def summarize_corpus(content: Iterable[str]) -> CorpusSummary:
    total, sample, room = 0, [], MAX_TOKENIZER_CHARACTERS
    for piece in content:
        total += len(piece.encode("utf-8", "replace"))
        if room > 0:
            sample.append(piece[:room])
            room -= len(piece)
    if total == 0:
        raise GlassError("there is no text to learn from: the files are empty")
    return CorpusSummary(total, sample)


def default_vocab(name: str, size: int) -> int | None:
    """Larger texts can teach more tokens: about one for each 400 bytes, as a power of two."""
    if name in ("characters", "bytes"):
        return None
    return int(2 ** min(max(round(math.log2(max(size / 400, 1))), 9), 13))


def train_tokenizer(
    name: str, sample: list[str], *, vocab: int | None, special_tokens: tuple[str, ...] = ()
) -> Tokenizer:
    """A tokenizer of a kind; besides its own special tokens it has those that a task needs."""
    if name not in TOKENIZERS:
        raise GlassError(f"there is no tokenizer {name!r}; there are {', '.join(TOKENIZERS)}")
    own = {"bytes": (), "bpe": (), "wordpiece": BERT_SPECIAL_TOKENS}.get(name, (UNKNOWN,))
    options: dict[str, Any] = {} if name == "bytes" or vocab is None else {"vocab": vocab}
    if special_tokens or name != "bpe":
        options["special_tokens"] = (*own, *special_tokens)
    tokenizer: Tokenizer = TOKENIZERS[name].train(sample, **options)
    return tokenizer


def reuse_tokenizer(
    tokenizer: Tokenizer, sample: list[str], *, extend: bool, reporter: Reporter
) -> Tokenizer:
    """A tokenizer that there is, with what it does not know added if asked, or told."""
    if extend:
        if not isinstance(tokenizer, ListTokenizer):
            raise GlassError(f"a tokenizer of the kind {tokenizer.kind} cannot learn more tokens")
        old = tokenizer.vocab
        tokenizer = tokenizer.extend(sample)
        reporter(f"the tokenizer has {tokenizer.vocab - old:,} tokens more")
    unknown = [
        tokenizer.special_tokens[m] for m in (UNKNOWN, "[UNK]") if m in tokenizer.special_tokens
    ]
    ids = [i for text in sample[:1000] for i in tokenizer.encode(text[:10_000])]
    share = sum(i in unknown for i in ids) / max(len(ids), 1)
    if share > 0.001:
        way = "; --extend adds them" if isinstance(tokenizer, ListTokenizer) else ""
        reporter(f"{share:.1%} of the tokens are unknown to the model's tokenizer{way}")
    return tokenizer


def encode_corpus(
    content: Iterable[tuple[str, str]], tokenizer: Tokenizer, folder: Path, bar: ProgressBar
) -> dict[str, int]:
    """Write the ids of pieces of text, each with its part; give back bytes and tokens."""
    names = ("train", "valid")
    writers = {name: StoreWriter(folder / f"{name}.ids", tokenizer.vocab) for name in names}
    facts = {f"{name}_{what}": 0 for name in names for what in ("bytes", "tokens")}
    for batch in batched(content, 64):
        for (name, text), ids in zip(
            batch, encode_batch(tokenizer, [t for _, t in batch]), strict=True
        ):
            size = len(text.encode("utf-8", "replace"))
            writers[name].add(ids)
            facts[f"{name}_bytes"] += size
            facts[f"{name}_tokens"] += len(ids)
            bar.add(size)
    for writer in writers.values():
        writer.close()
    return facts


def split_at_byte(content: Iterable[str], limit: int) -> Iterator[tuple[str, str]]:
    """The text up to so many bytes to train on, and the rest to validate on."""
    read = 0
    for piece in content:
        raw = piece.encode("utf-8", "replace")
        cut = min(max(limit - read, 0), len(raw))
        while cut < len(raw) and raw[cut] & 0xC0 == 0x80:  # not inside a character
            cut += 1
        read += len(raw)
        for name, part in (("train", raw[:cut]), ("valid", raw[cut:])):
            if part:
                yield name, part.decode()


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def encode_batch(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """On all cores, where the tokenizer can."""
    if isinstance(tokenizer, SubwordTokenizer):
        return tokenizer.encode_batch(texts)
    return [tokenizer.encode(text) for text in texts]
