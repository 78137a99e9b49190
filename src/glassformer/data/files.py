"""Files to lines and rows, each with its place; what cannot be used is named, or noted and passed.

Text is UTF-8; a byte-order mark and Windows' line ends are taken away.
"""

import csv
import gzip
import io
import json
import lzma
import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors

LONGEST = 10_000_000  # characters in a line; more is hardly text
PATIENCE = 10.0  # seconds until a pipe through which nothing comes is given up
QUOTED_LINES = 2_000  # that one cell of a table may have
FEW = 100  # values of a column that are remembered
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
csv.field_size_limit(LONGEST)


@dataclass(frozen=True)
class Row:
    """One record of a table: its values by column, and where it stands."""

    location: str
    values: dict[str, str]


@dataclass
class BadRowPolicy:
    """What happens to a row that cannot be used: an error, or a line in a log of such rows."""

    log: Path | None = None
    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        if self.log is None:
            raise GlassError(
                f"{location}: {reason}; mend it (`glass train` can pass over such rows: --skip-bad)"
            )
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        entry = {"location": location, "reason": reason, "content": content[:1000]}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


class IgnoreBadRows(BadRowPolicy):
    """Passes over bad rows in silence: a first pass has complained of them already."""

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        pass


def file_type(path: Path) -> str:
    """The ending that tells what a file holds: of reviews.csv.gz it is .csv."""
    return Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix


def open_bytes(path: Path) -> BinaryIO:
    """A file, packed or not. Pipes and devices are refused: data is read more than once."""
    if not path.exists():
        raise GlassError(f"there is no file {path}")
    if not path.is_file():
        raise GlassError(
            f"{path} is a folder, a pipe or a device, which cannot be read again and again: save "
            "it as a file first"
        )
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".xz":
        return lzma.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def save_streams(
    files: tuple[Path, ...], folder: Path, *, table: bool, name: str = "input"
) -> tuple[Path, ...]:
    """The files; standard input and pipes, which are read only once, are copied to the folder."""
    kept = []
    for number, file in enumerate(files):
        if str(file) != "-" and not file.is_fifo():
            kept.append(file)
            continue
        copy = folder / f"{name}-{number}.txt"
        with copy.open("wb") as out:
            if str(file) == "-":
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                copy_pipe(file, out)
        kept.append(copy.rename(copy.with_suffix(guess_extension(copy))) if table else copy)
    return tuple(kept)


def copy_pipe(path: Path, out: BinaryIO) -> None:
    """Copy all that comes through a pipe; an error if nobody writes to it for a while."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb", buffering=0) as pipe:  # noqa: PTH123
        give_up = time.monotonic() + PATIENCE
        while not (block := pipe.read(1 << 16)):  # None: somebody writes, but has not yet
            if block is not None and time.monotonic() > give_up:
                raise GlassError(f"{path} is a pipe, and nothing came through it in {PATIENCE:g} s")
            time.sleep(0.01)
        os.set_blocking(handle, True)
        while block:
            out.write(block)
            block = pipe.read(1 << 20)


def guess_extension(file: Path) -> str:
    """The ending of a file of records, by its first line."""
    with file.open("rb") as content:
        first = content.readline(LONGEST).lstrip()
    return ".jsonl" if first.startswith(b"{") else ".tsv" if b"\t" in first else ".csv"


def read_lines(path: Path, on_bad_row: BadRowPolicy) -> Iterator[tuple[str, str]]:
    """Each line with its place, ending in a newline where the file has one.

    Lines may end as on Unix, Windows or the first Macs, whose files have no other line ends.
    """
    with wrap_read_errors(path), open_bytes(path) as file:
        start = file.peek(1 << 16)[: 1 << 16]  # type: ignore[attr-defined]
        end = "\r" if b"\r" in start and b"\n" not in start else "\n"
        text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=end)
        number = 0
        while line := text.readline(LONGEST):
            number += 1
            if line.endswith(end):
                line = line.removesuffix(end).removesuffix("\r") + "\n"
            location = f"{path}:{number}"
            if len(line) == LONGEST and not line.endswith("\n"):
                while (rest := text.readline(LONGEST)) and not rest.endswith("\n"):
                    pass
                on_bad_row(
                    location, f"the line is longer than {LONGEST // 1_000_000} million characters"
                )
            elif is_text(line, location, on_bad_row):
                yield location, line


def is_text(line: str, location: str, on_bad_row: BadRowPolicy) -> bool:
    """Whether a line is UTF-8 without a NUL; a byte that is not UTF-8 is half a character here."""
    if "\0" in line:
        on_bad_row(location, "a NUL character", line)
        return False
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raw, at = line.encode(errors="surrogateescape"), len(line[: error.start].encode())
        on_bad_row(location, "not UTF-8", f"byte {at + 1} (0x{raw[at]:02x}): {raw[:200]!r}")
        return False
    return True


def read_rows(path: Path, on_bad_row: BadRowPolicy, separator: str | None = None) -> Iterator[Row]:
    """The records of a table; without a header its columns are called 1, 2, 3."""
    match file_type(path):
        case ".jsonl":
            yield from read_json_lines(path, on_bad_row)
        case ".json":
            yield from read_json_array(path, on_bad_row)
        case ".parquet":
            yield from read_parquet(path)
        case _:
            yield from read_delimited(path, on_bad_row, separator or guess_separator(path))


def read_delimited(path: Path, on_bad_row: BadRowPolicy, separator: str) -> Iterator[Row]:
    header: list[str] | None = None
    for location, cells in records(path, on_bad_row, separator):
        if header is None:
            named = looks_like_header(cells)
            numbers = [str(i + 1) for i in range(len(cells))]
            header = [c.strip() or i for c, i in zip(cells, numbers, strict=True)]
            header = header if named else numbers
            refuse_duplicate_columns(path, header)
            if named:
                continue
        if len(cells) != len(header):
            on_bad_row(
                location, f"{len(cells)} columns where there should be {len(header)}", str(cells)
            )
        else:
            yield Row(location, dict(zip(header, cells, strict=True)))


def refuse_duplicate_columns(path: Path, header: list[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise GlassError(f"{path}: two columns are called {name!r}: rename one of them")


def records(
    path: Path, on_bad_row: BadRowPolicy, separator: str
) -> Iterator[tuple[str, list[str]]]:
    """The cells of each record with the place where it starts; empty lines are left out.

    A quotation mark that is opened and never closed, or closed only some rows further on, spoils
    the line where it stands and no other.
    """
    source, ahead = (
        read_lines(path, on_bad_row),
        deque[tuple[str, str]](),
    )  # read, but of a later record
    seen: list[set[str]] = []  # values of each column, while they are few: labels, for one

    def next_line() -> tuple[str, str] | None:
        return ahead.popleft() if ahead else next(source, None)

    while (first := next_line()) is not None:
        location, text = first
        if separator == "\t" or '"' not in text:  # between tabs a quotation mark is text
            cells: list[str] | None = text.rstrip("\n").split(separator) if text.strip("\n") else []
        else:
            cells, unread = quoted_cells(first, next_line, separator, seen)
            ahead.extendleft(reversed(unread))
        if cells is None:
            on_bad_row(
                location, "a quotation mark is opened here and not closed as it should be", text
            )
        elif cells:
            seen = seen or [set() for _ in cells]
            for values, cell in zip(seen, cells, strict=False):
                if len(values) < FEW:
                    values.add(cell.strip())
            yield location, cells


def quoted_cells(
    first: tuple[str, str],
    next_line: Callable[[], tuple[str, str] | None],
    separator: str,
    seen: list[set[str]],
) -> tuple[list[str] | None, list[tuple[str, str]]]:
    """The cells of a record that starts with a line, and lines that were read but are not in it.

    The cells are None if a quotation mark is astray.
    """
    held = [first]

    def content() -> Iterator[str]:
        yield first[1]
        while len(held) < QUOTED_LINES and (line := next_line()) is not None:
            held.append(line)
            yield line[1]

    try:
        cells = next(csv.reader(content(), delimiter=separator, strict=True), [])
    except csv.Error:
        cells = None
    if cells is not None and not swallows_rows([text for _, text in held], separator, cells, seen):
        return cells, []
    alone = next(csv.reader([first[1]], delimiter=separator), [])
    sound = not seen or len(alone) == len(seen)  # marks inside a text, none of them special
    return alone if sound else None, held[1:]


def swallows_rows(held: list[str], separator: str, cells: list[str], seen: list[set[str]]) -> bool:
    """Whether a record of several lines is rather a stray quotation mark and the rows behind it.

    So it is where it has another number of columns than the rows before it, or where each of its
    lines alone would be a row, with a value in some column that other rows have there too.
    """
    columns = len(seen)
    if len(held) == 1 or not columns:
        return False
    if len(cells) != columns:
        return True
    rows = [[cell.strip(' "\n') for cell in line.split(separator)] for line in held]
    if columns < 2 or any(len(row) != columns for row in rows):
        return False
    for known, column in zip(seen, zip(*rows, strict=True), strict=True):
        if all(value in known or column.count(value) > 1 for value in column):
            return True
    return False


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
    if file_type(path) == ".tsv":
        return "\t"
    first = [
        text for (_, text), _ in zip(read_lines(path, IgnoreBadRows()), range(20), strict=False)
    ]
    counts = {s: min((text.count(s) for text in first), default=0) for s in (",", "\t", ";", "|")}
    return max(counts, key=counts.__getitem__)


def read_json_lines(path: Path, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    for location, text in read_lines(path, on_bad_row):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            on_bad_row(location, f"not JSON ({first_line(error)})", text)
            continue
        yield from as_row(location, record, on_bad_row)


def read_json_array(path: Path, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    with wrap_read_errors(path), open_bytes(path) as file:
        content = file.read()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not JSON: {first_line(error)}") from None
    if not isinstance(found, list):
        raise GlassError(f"{path} is not a list of records; one record a line is .jsonl")
    for number, record in enumerate(found, start=1):
        yield from as_row(f"{path}, record {number}", record, on_bad_row)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]


def as_row(location: str, record: object, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    if isinstance(record, dict):
        yield Row(location, {str(name): as_text(value) for name, value in record.items()})
    else:
        on_bad_row(location, "not a record with named values", str(record))


def as_text(value: object) -> str:
    """A value of a record; nothing for one that is missing or no number (NaN)."""
    missing = value is None or (isinstance(value, float) and not math.isfinite(value))
    return "" if missing else str(value)


def read_parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as arrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise GlassError(f"{path}: parquet needs pip install 'glassformer[data]'") from None
    number = 0
    try:
        with wrap_read_errors(path):
            for batch in parquet.ParquetFile(path).iter_batches():
                for record in batch.to_pylist():
                    number += 1
                    values = {str(k): as_text(v) for k, v in record.items()}
                    yield Row(f"{path}, record {number}", values)
    except arrow.ArrowException as error:
        raise GlassError(f"{path} is damaged: {first_line(error)}") from None
