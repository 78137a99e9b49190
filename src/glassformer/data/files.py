"""Files to lines and rows, each with its place; what cannot be used is named, or noted and passed.

Text is UTF-8; a byte-order mark and Windows' line ends are taken away.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from glassformer.errors import GlassError

LONGEST = 10_000_000  # bytes in a line; more is hardly text
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
csv.field_size_limit(LONGEST)


@dataclass(frozen=True)
class Row:
    """One record of a table: its values by column, and where it stands."""

    place: str
    values: dict[str, str]


@dataclass
class Bad:
    """What happens to a row that cannot be used: an error, or a line in a log of such rows."""

    log: Path | None = None
    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def __call__(self, place: str, reason: str, content: str = "") -> None:
        if self.log is None:
            raise GlassError(
                f"{place}: {reason}; mend it (`glass train` can pass over such rows: --skip-bad)"
            )
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        entry = {"place": place, "reason": reason, "content": content[:1000]}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


class Quiet(Bad):
    """Passes over bad rows in silence: a first pass has complained of them already."""

    def __call__(self, place: str, reason: str, content: str = "") -> None:
        pass


def kind_of(path: Path) -> str:
    """The ending that tells what a file holds: of reviews.csv.gz it is .csv."""
    return Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix


def open_bytes(path: Path) -> BinaryIO:
    """A file, packed or not."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".xz":
        return lzma.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def kept_input(files: tuple[Path, ...], folder: Path, *, table: bool) -> tuple[Path, ...]:
    """The files, with standard input, which can be read only once, kept in one of our own."""
    if Path("-") not in files:
        return files
    kept = folder / "input.txt"
    with kept.open("wb") as file:
        while block := sys.stdin.buffer.read(1 << 20):
            file.write(block)
    if table:
        with kept.open("rb") as content:
            first = content.readline().lstrip()
        ending = ".jsonl" if first.startswith(b"{") else ".tsv" if b"\t" in first else ".csv"
        kept = kept.rename(kept.with_suffix(ending))
    return tuple(kept if str(file) == "-" else file for file in files)


def lines(path: Path, bad: Bad) -> Iterator[tuple[str, str]]:
    """Each line with its place, ending in a newline where the file has one."""
    try:
        with open_bytes(path) as file:
            number = 0
            while raw := file.readline(LONGEST):
                number += 1
                place = f"{path}:{number}"
                if len(raw) == LONGEST and not raw.endswith(b"\n"):
                    while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
                        pass
                    bad(place, f"the line is longer than {LONGEST // 1_000_000} MB")
                    continue
                text = decoded(
                    raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, place, bad
                )
                if text is not None:
                    yield place, text
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise GlassError(f"{path} is damaged: {error}") from None


def decoded(raw: bytes, place: str, bad: Bad) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} (0x{raw[error.start]:02x})"
        bad(place, "not UTF-8", f"{byte}: {raw[:200]!r}")
        return None
    if "\0" in text:
        bad(place, "a NUL character", text)
        return None
    return text.removesuffix("\n").removesuffix("\r") + "\n" if text.endswith("\n") else text


def rows(path: Path, bad: Bad, separator: str | None = None) -> Iterator[Row]:
    """The records of a table; without a header its columns are called 1, 2, 3."""
    match kind_of(path):
        case ".jsonl":
            yield from json_lines(path, bad)
        case ".json":
            yield from json_records(path, bad)
        case ".parquet":
            yield from parquet_records(path)
        case _:
            yield from separated(path, bad, separator or guess_separator(path))


def separated(path: Path, bad: Bad, separator: str) -> Iterator[Row]:
    content = (text for _, text in lines(path, bad))
    if separator == "\t":  # there a quotation mark is part of the text
        reader = csv.reader(content, delimiter=separator, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(content, delimiter=separator)
    header: list[str] | None = None
    for cells in reader:
        place = f"{path}:{reader.line_num}"
        if header is None:
            named = looks_like_header(cells)
            header = (
                [c.strip() for c in cells] if named else [str(i + 1) for i in range(len(cells))]
            )
            if named:
                continue
        if not cells:
            continue
        if len(cells) != len(header):
            bad(place, f"{len(cells)} columns where there should be {len(header)}", str(cells))
        else:
            yield Row(place, dict(zip(header, cells, strict=True)))


NAMES = frozenset(
    """text texts review reviews sentence sentences content body message comment document title
    label labels class classes category sentiment target source topic tag id rating score premise
    hypothesis question answer sentence1 sentence2 question1 question2 english chinese german
    french spanish en zh de fr es src tgt translation""".split()
)


def looks_like_header(cells: list[str]) -> bool:
    return any(cell.strip().casefold() in NAMES for cell in cells)


def guess_separator(path: Path) -> str:
    """A tab in .tsv; else what stands equally often, and most often, in the first lines."""
    if kind_of(path) == ".tsv":
        return "\t"
    first = [text for (_, text), _ in zip(lines(path, Bad()), range(20), strict=False)]
    counts = {s: min((text.count(s) for text in first), default=0) for s in (",", "\t", ";", "|")}
    return max(counts, key=counts.__getitem__)


def json_lines(path: Path, bad: Bad) -> Iterator[Row]:
    for place, text in lines(path, bad):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            bad(place, f"not JSON ({error.msg} at column {error.colno})", text)
            continue
        yield from as_row(place, record, bad)


def json_records(path: Path, bad: Bad) -> Iterator[Row]:
    with open_bytes(path) as file:
        try:
            records = json.loads(file.read())
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise GlassError(f"{path} is not JSON: {error}") from None
    if not isinstance(records, list):
        raise GlassError(f"{path} is not a list of records; one record a line is .jsonl")
    for number, record in enumerate(records, start=1):
        yield from as_row(f"{path}, record {number}", record, bad)


def as_row(place: str, record: object, bad: Bad) -> Iterator[Row]:
    if isinstance(record, dict):
        yield Row(place, {str(k): "" if v is None else str(v) for k, v in record.items()})
    else:
        bad(place, "not a record with named values", str(record))


def parquet_records(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as arrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise GlassError(f"{path}: parquet needs pip install 'glassformer[data]'") from None
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for record in batch.to_pylist():
                number += 1
                values = {str(k): "" if v is None else str(v) for k, v in record.items()}
                yield Row(f"{path}, record {number}", values)
    except arrow.ArrowException as error:
        raise GlassError(f"{path} is damaged: {error}") from None
