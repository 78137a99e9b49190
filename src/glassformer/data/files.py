"""Read lines and rows from files, each with its location. A `BadRowPolicy` handles bad ones.

Text is UTF-8; a byte order mark and Windows line endings are removed.
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

MAX_LINE_LENGTH = 10_000_000  # characters
PIPE_TIMEOUT = 10.0  # seconds to wait for the first data from a pipe
MAX_CELL_LINES = 2_000  # lines in one quoted cell of a table
MAX_KNOWN_VALUES = 100  # per column, remembered to detect stray quotation marks
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
csv.field_size_limit(MAX_LINE_LENGTH)


@dataclass(frozen=True)
class Row:
    """One row of a table: its values by column, and its location (file:line)."""

    location: str
    values: dict[str, str]


@dataclass
class BadRowPolicy:
    """Handles rows that cannot be used: raises an error, or logs and counts them.

    Without `log`, a call raises a `GlassError` with the row's location and the reason. With
    `log`, it appends the row to that JSONL file, and the caller skips the row.
    """

    log: Path | None = None
    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        if self.log is None:
            hint = "fix it, or skip such rows with `glass train --skip-bad`"
            raise GlassError(f"{location}: {reason}; {hint}")
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        entry = {"location": location, "reason": reason, "content": content[:1000]}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


class IgnoreBadRows(BadRowPolicy):
    """Ignores bad rows, because another pass over the data reports them."""

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        pass


def file_type(path: Path) -> str:
    """The extension without compression: .csv for reviews.csv.gz."""
    return Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix


def open_bytes(path: Path) -> BinaryIO:
    """Open a file, decompressing .gz and .xz.

    Pipes and devices are rejected because data is read more than once.
    """
    if not path.exists():
        raise GlassError(f"{path} does not exist")
    if not path.is_file():
        raise GlassError(
            f"{path} is not a regular file; data is read more than once, so save it to a file first"
        )
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".xz":
        return lzma.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def save_streams(
    files: tuple[Path, ...], folder: Path, *, table: bool, name: str = "input"
) -> tuple[Path, ...]:
    """Copy standard input ("-") and pipes to files in the folder, so that they can be read twice.

    Returns the paths to read. With `table`, a copy gets the extension of its table format.
    """
    paths = []
    for number, file in enumerate(files):
        if str(file) != "-" and not file.is_fifo():
            paths.append(file)
            continue
        copy = folder / f"{name}-{number}.txt"
        with copy.open("wb") as out:
            if str(file) == "-":
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                copy_pipe(file, out)
        paths.append(copy.rename(copy.with_suffix(guess_extension(copy))) if table else copy)
    return tuple(paths)


def copy_pipe(path: Path, out: BinaryIO) -> None:
    """Copy a pipe's data; raise an error if no process opens it within `PIPE_TIMEOUT`."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb", buffering=0) as pipe:  # noqa: PTH123
        deadline = time.monotonic() + PIPE_TIMEOUT
        # None means that a writer is connected but has not sent anything yet
        while not (block := pipe.read(1 << 16)):
            if block is not None and time.monotonic() > deadline:
                raise GlassError(
                    f"{path} is a pipe, and no data arrived within {PIPE_TIMEOUT:g} seconds"
                )
            time.sleep(0.01)
        os.set_blocking(handle, True)
        while block:
            out.write(block)
            block = pipe.read(1 << 20)


def guess_extension(file: Path) -> str:
    """The extension of a table, guessed from its first line."""
    with file.open("rb") as content:
        first = content.readline(MAX_LINE_LENGTH).lstrip()
    return ".jsonl" if first.startswith(b"{") else ".tsv" if b"\t" in first else ".csv"


def read_lines(path: Path, on_bad_row: BadRowPolicy) -> Iterator[tuple[str, str]]:
    """Yield the location and text of each line, including its newline, if any.

    Lines end with \\n or \\r\\n, or with \\r if the file has no \\n near its start.
    """
    with wrap_read_errors(path), open_bytes(path) as file:
        start = file.peek(1 << 16)[: 1 << 16]  # type: ignore[attr-defined]
        end = "\r" if b"\r" in start and b"\n" not in start else "\n"
        text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=end)
        number = 0
        while line := text.readline(MAX_LINE_LENGTH):
            number += 1
            if line.endswith(end):
                line = line.removesuffix(end).removesuffix("\r") + "\n"
            location = f"{path}:{number}"
            if len(line) == MAX_LINE_LENGTH and not line.endswith("\n"):
                while (rest := text.readline(MAX_LINE_LENGTH)) and not rest.endswith(end):
                    pass
                limit = f"{MAX_LINE_LENGTH // 1_000_000} million characters"
                on_bad_row(location, f"the line is longer than {limit}")
            elif is_text(line, location, on_bad_row):
                yield location, line


def is_text(line: str, location: str, on_bad_row: BadRowPolicy) -> bool:
    """Whether a line is valid UTF-8 without NUL characters; if not, report it as a bad row.

    The line was decoded with surrogateescape, so invalid bytes are lone surrogates in it.
    """
    if "\0" in line:
        on_bad_row(location, "the line has a NUL character", line)
        return False
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raw, i = line.encode(errors="surrogateescape"), len(line[: error.start].encode())
        content = f"byte {i + 1} (0x{raw[i]:02x}): {raw[:200]!r}"
        on_bad_row(location, "the line is not valid UTF-8", content)
        return False
    return True


def read_rows(path: Path, on_bad_row: BadRowPolicy, separator: str | None = None) -> Iterator[Row]:
    """Yield the rows of a table. Without a header, the columns are named 1, 2, 3, ..."""
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
    for location, cells in read_cells(path, on_bad_row, separator):
        if header is None:
            has_header = looks_like_header(cells)
            numbers = [str(i + 1) for i in range(len(cells))]
            header = [c.strip() or i for c, i in zip(cells, numbers, strict=True)]
            header = header if has_header else numbers
            check_duplicate_columns(path, header)
            if has_header:
                continue
        if len(cells) != len(header):
            on_bad_row(location, f"expected {len(header)} columns, got {len(cells)}", str(cells))
        else:
            yield Row(location, dict(zip(header, cells, strict=True)))


def check_duplicate_columns(path: Path, header: list[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise GlassError(f"{path}: two columns are named {name!r}; rename one of them")


def read_cells(
    path: Path, on_bad_row: BadRowPolicy, separator: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the location and cells of each row; empty lines are skipped.

    If a quotation mark is never closed, or is closed only in a later row, only the line that
    contains it is treated as bad.
    """
    lines = read_lines(path, on_bad_row)
    pending = deque[tuple[str, str]]()  # lines that were read ahead but belong to later rows
    known: list[set[str]] = []  # up to `MAX_KNOWN_VALUES` values of each column

    def next_line() -> tuple[str, str] | None:
        return pending.popleft() if pending else next(lines, None)

    while (first := next_line()) is not None:
        location, text = first
        if separator == "\t" or '"' not in text:  # in TSV, a quotation mark is plain text
            cells: list[str] | None = text.rstrip("\n").split(separator) if text.strip("\n") else []
        else:
            cells, unused = parse_quoted(first, next_line, separator, known)
            pending.extendleft(reversed(unused))
        if cells is None:
            on_bad_row(location, "a quoted cell starts here but is not closed properly", text)
        elif cells:
            known = known or [set() for _ in cells]
            for values, cell in zip(known, cells, strict=False):
                if len(values) < MAX_KNOWN_VALUES:
                    values.add(cell.strip())
            yield location, cells


def parse_quoted(
    first: tuple[str, str],
    next_line: Callable[[], tuple[str, str] | None],
    separator: str,
    known: list[set[str]],
) -> tuple[list[str] | None, list[tuple[str, str]]]:
    """Parse a row that starts with the line `first` and may span several lines.

    Returns: the cells, or None if a quotation mark is stray; and the lines that were read but do
    not belong to the row.
    """
    lines = [first]

    def content() -> Iterator[str]:
        yield first[1]
        while len(lines) < MAX_CELL_LINES and (line := next_line()) is not None:
            lines.append(line)
            yield line[1]

    try:
        cells = next(csv.reader(content(), delimiter=separator, strict=True), [])
    except csv.Error:
        cells = None
    texts = [text for _, text in lines]
    if cells is not None and not has_stray_quote(texts, separator, cells, known):
        return cells, []
    # Parse the first line again, leniently: a quotation mark inside a cell is then literal text.
    first_cells = next(csv.reader([first[1]], delimiter=separator), [])
    is_row = not known or len(first_cells) == len(known)
    return first_cells if is_row else None, lines[1:]


def has_stray_quote(
    lines: list[str], separator: str, cells: list[str], known: list[set[str]]
) -> bool:
    """Whether a row of several lines is really a stray quotation mark followed by other rows.

    This is assumed if it has a different number of columns from the rows before it; or if each of
    its lines would be a row by itself, and in some column all these rows have values that also
    occur in other rows.
    """
    columns = len(known)
    if len(lines) == 1 or not columns:
        return False
    if len(cells) != columns:
        return True
    rows = [[cell.strip(' "\n') for cell in line.split(separator)] for line in lines]
    if columns < 2 or any(len(row) != columns for row in rows):
        return False
    for known_values, values in zip(known, zip(*rows, strict=True), strict=True):
        if all(value in known_values or values.count(value) > 1 for value in values):
            return True
    return False


HEADER_NAMES = frozenset(
    """text texts review reviews sentence sentences content body message comment document title
    label labels class classes category sentiment target source topic tag id rating score premise
    hypothesis question answer sentence1 sentence2 question1 question2 english chinese german
    french spanish en zh de fr es src tgt translation""".split()
)


def looks_like_header(cells: list[str]) -> bool:
    return any(cell.strip().casefold() in HEADER_NAMES for cell in cells)


def guess_separator(path: Path) -> str:
    """A tab for .tsv; otherwise the most frequent separator that is in each of the first lines."""
    if file_type(path) == ".tsv":
        return "\t"
    lines = [
        text for (_, text), _ in zip(read_lines(path, IgnoreBadRows()), range(20), strict=False)
    ]
    counts = {s: min((text.count(s) for text in lines), default=0) for s in (",", "\t", ";", "|")}
    return max(counts, key=counts.__getitem__)


def read_json_lines(path: Path, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    for location, text in read_lines(path, on_bad_row):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            on_bad_row(location, f"the line is not valid JSON ({first_line(error)})", text)
            continue
        yield from to_row(location, record, on_bad_row)


def read_json_array(path: Path, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    with wrap_read_errors(path), open_bytes(path) as file:
        content = file.read()
    try:
        array = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not valid JSON: {first_line(error)}") from None
    if not isinstance(array, list):
        raise GlassError(
            f"{path} is not a list of objects; if it has one object per line, name it .jsonl"
        )
    for number, record in enumerate(array, start=1):
        yield from to_row(f"{path}, record {number}", record, on_bad_row)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]


def to_row(location: str, record: object, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    if isinstance(record, dict):
        yield Row(location, {str(name): to_text(value) for name, value in record.items()})
    else:
        on_bad_row(location, "the record is not a JSON object", str(record))


def to_text(value: object) -> str:
    """A value as text; empty for null and for numbers that are not finite."""
    is_missing = value is None or (isinstance(value, float) and not math.isfinite(value))
    return "" if is_missing else str(value)


def read_parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as arrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise GlassError(
            f"{path}: reading Parquet needs pyarrow: pip install 'glassformer[data]'"
        ) from None
    number = 0
    try:
        with wrap_read_errors(path):
            for batch in parquet.ParquetFile(path).iter_batches():
                for record in batch.to_pylist():
                    number += 1
                    values = {str(k): to_text(v) for k, v in record.items()}
                    yield Row(f"{path}, record {number}", values)
    except arrow.ArrowException as error:
        raise GlassError(f"{path} is corrupted: {first_line(error)}") from None
