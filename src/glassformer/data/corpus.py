"""Plain text for language models: read files and write the ids to stores, in constant memory."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data.compression import open_bytes
from glassformer.data.encoding import UTF8, detect_encoding
from glassformer.data.files import BadRowPolicy, IgnoreBadRows, read_lines
from glassformer.data.format import DETECT, FileFormat
from glassformer.data.store import StoreWriter
from glassformer.data.tables import is_table, read_rows
from glassformer.text import TOKENIZERS
from glassformer.text.plain import UNKNOWN, ListTokenizer
from glassformer.text.subword import BERT_SPECIAL_TOKENS, SubwordTokenizer
from glassformer.text.tokenizer import Tokenizer, unknown_fraction

MODEL_FILES = ("config.toml", "manifest.json")  # in the folder of a run or a trained model
CHUNK_CHARACTERS = 1 << 16  # minimum size of a chunk of text, which is encoded at once
MAX_TOKENIZER_CHARACTERS = 20_000_000  # max text that a tokenizer is trained on
MAX_COUNTED_CHARACTERS = 2_000_000  # max text whose different characters are counted

T = TypeVar("T")


def read_texts(
    files: Iterable[Path],
    on_bad_row: BadRowPolicy,
    column: str | None = None,
    format: FileFormat = DETECT,
) -> Iterator[str]:
    """Yield text in chunks: from files, from all files in folders, or from one column of tables."""
    for file in files:
        if is_table(file):
            yield from read_column(file, on_bad_row, column, format)
        elif file.is_dir():
            folder_files = list_texts(file)
            if not folder_files:
                raise GlassError(f"the folder {file} has no text files to train on")
            yield from read_texts(folder_files, on_bad_row, column, format)
        else:
            yield from join_lines(text for _, text in read_lines(file, on_bad_row, format.encoding))


def list_texts(folder: Path) -> list[Path]:
    """The files below a folder, without hidden and binary files, trained models and runs."""
    files = list[Path]()
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and not any((path / name).is_file() for name in MODEL_FILES):
            files += [path] if is_table(path) else list_texts(path)
        elif path.is_file() and (is_table(path) or not is_binary(path)):
            files.append(path)
    return files


def is_binary(file: Path) -> bool:
    """Whether a file has NUL bytes near its start but is not UTF-16."""
    with wrap_read_errors(file), open_bytes(file) as content:
        return b"\0" in content.read(8192) and detect_encoding(file) == UTF8


def read_column(
    file: Path, on_bad_row: BadRowPolicy, column: str | None, format: FileFormat
) -> Iterator[str]:
    for row in read_rows(file, on_bad_row, format):
        if column is None or column not in row.values:
            raise GlassError(
                f"{row.location}: unknown column {column!r}; "
                f"the columns are {', '.join(row.values)}"
            )
        yield row.values[column] + "\n"


def guess_column(files: Iterable[Path], format: FileFormat = DETECT) -> str | None:
    """The column with the most text in the first rows of the first table, or None."""
    for file in files:
        if is_table(file):
            sizes = Counter[str]()
            for row in islice(read_rows(file, IgnoreBadRows(), format), 100):
                sizes.update({name: len(value) for name, value in row.values.items()})
            return max(sizes, key=sizes.__getitem__, default=None)
        if file.is_dir():
            column = guess_column(list_texts(file), format)
            if column is not None:
                return column
    return None


def join_lines(lines: Iterable[str]) -> Iterator[str]:
    """Join lines into chunks of at least `CHUNK_CHARACTERS` characters."""
    buffer: list[str] = []
    size = 0
    for line in lines:
        buffer.append(line)
        size += len(line)
        if size >= CHUNK_CHARACTERS:
            yield "".join(buffer)
            buffer, size = [], 0
    if buffer:
        yield "".join(buffer)


@dataclass(frozen=True)
class CorpusSummary:
    """The size of a corpus, and a sample of it to train a tokenizer on."""

    bytes: int
    sample: list[str]


def summarize_corpus(chunks: Iterable[str]) -> CorpusSummary:
    total = 0
    sample = []
    characters_left = MAX_TOKENIZER_CHARACTERS
    for chunk in chunks:
        total += len(chunk.encode("utf-8", "replace"))
        if characters_left > 0:
            sample.append(chunk[:characters_left])
            characters_left -= len(chunk)
    if total == 0:
        raise GlassError("there is no text to train on: the files are empty")
    return CorpusSummary(total, sample)


def default_vocab(name: str, size: int, sample: Iterable[str] = ()) -> int | None:
    """About one token for every 400 bytes of text, rounded to a power of two from 512 to 8192.

    At least two tokens for every frequent character of the sample: with fewer, the characters of
    Chinese texts would be split into bytes. None if the tokenizer `name` needs no vocabulary size.
    """
    if name in ("characters", "bytes"):
        return None
    minimum = math.ceil(math.log2(2 * max(count_frequent_characters(sample), 1)))
    return int(2 ** min(max(round(math.log2(max(size / 400, 1))), minimum, 9), 13))


def count_frequent_characters(sample: Iterable[str], share: float = 0.995) -> int:
    """Return how many different characters make up this share of the start of a sample."""
    counts: Counter[str] = Counter()
    for text in sample:
        counts.update(text)
        if counts.total() > MAX_COUNTED_CHARACTERS:
            break
    frequencies = np.sort([*counts.values(), 0])[::-1]
    return int((frequencies.cumsum() < share * frequencies.sum()).sum()) + 1


def train_tokenizer(
    name: str, sample: list[str], *, vocab: int | None, special_tokens: tuple[str, ...] = ()
) -> Tokenizer:
    """Train the tokenizer `name`; `special_tokens` are added to its own special tokens."""
    if name not in TOKENIZERS:
        raise GlassError(f"unknown tokenizer {name!r}; the tokenizers are {', '.join(TOKENIZERS)}")
    defaults = {"bytes": (), "bpe": (), "wordpiece": BERT_SPECIAL_TOKENS}.get(name, (UNKNOWN,))
    options: dict[str, Any] = {} if name == "bytes" or vocab is None else {"vocab": vocab}
    if special_tokens or name != "bpe":
        options["special_tokens"] = (*defaults, *special_tokens)
    tokenizer: Tokenizer = TOKENIZERS[name].train(sample, **options)
    return tokenizer


def reuse_tokenizer(
    tokenizer: Tokenizer, sample: list[str], *, extend: bool, reporter: Reporter
) -> Tokenizer:
    """Return a trained model's tokenizer; with `extend`, add the new tokens in the sample to it.

    Report the percentage of tokens in the sample that are still unknown.
    """
    if extend:
        if not isinstance(tokenizer, ListTokenizer):
            raise GlassError(f"a {tokenizer.kind} tokenizer cannot be extended: omit --extend")
        old = tokenizer.vocab
        tokenizer = tokenizer.extend(sample)
        reporter(f"tokens added to the tokenizer: {tokenizer.vocab - old:,}")
    fraction = unknown_fraction(tokenizer, (text[:10_000] for text in sample[:1000]))
    if fraction > 0.001:
        hint = "; --extend adds them" if isinstance(tokenizer, ListTokenizer) else ""
        reporter(f"{fraction:.1%} of the tokens are unknown to the model's tokenizer{hint}")
    return tokenizer


def encode_corpus(
    chunks: Iterable[tuple[str, str]], tokenizer: Tokenizer, folder: Path, bar: ProgressBar
) -> dict[str, int]:
    """Write the ids of chunks of text to `train.ids` and `valid.ids` in the folder.

    Each chunk comes as (split, text), where split is train or valid. Returns the number of bytes
    and tokens in both splits, such as `train_bytes`.
    """
    splits = ("train", "valid")
    writers = {split: StoreWriter(folder / f"{split}.ids", tokenizer.vocab) for split in splits}
    counts = {f"{split}_{unit}": 0 for split in splits for unit in ("bytes", "tokens")}
    for batch in batched(chunks, 64):
        for (split, text), ids in zip(
            batch, encode_batch(tokenizer, [t for _, t in batch]), strict=True
        ):
            size = len(text.encode("utf-8", "replace"))
            writers[split].add(ids)
            counts[f"{split}_bytes"] += size
            counts[f"{split}_tokens"] += len(ids)
            bar.add(size)
    for writer in writers.values():
        writer.close()
    return counts


def split_at_byte(chunks: Iterable[str], limit: int) -> Iterator[tuple[str, str]]:
    """Yield (split, text): train up to `limit` bytes, then valid. No character is cut in two."""
    position = 0
    for chunk in chunks:
        raw = chunk.encode("utf-8", "replace")
        cut = min(max(limit - position, 0), len(raw))
        while cut < len(raw) and raw[cut] & 0xC0 == 0x80:  # inside a character
            cut += 1
        position += len(raw)
        for split, content in (("train", raw[:cut]), ("valid", raw[cut:])):
            if content:
                yield split, content.decode()


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def encode_batch(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Encode texts, in parallel if the tokenizer supports it."""
    if isinstance(tokenizer, SubwordTokenizer):
        return tokenizer.encode_batch(texts)
    return [tokenizer.encode(text) for text in texts]
