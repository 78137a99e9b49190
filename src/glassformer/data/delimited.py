"""Read tables with a separator between cells (CSV, TSV): separator, quotes and header row."""

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from glassformer.core.errors import GlassError
from glassformer.data.compression import file_type
from glassformer.data.files import (
    MAX_LINE_LENGTH,
    BadRowPolicy,
    IgnoreBadRows,
    Row,
    read_lines,
)
from glassformer.data.format import DETECT, FileFormat

MAX_CELL_LINES = 2_000  # lines in one quoted cell
MAX_KNOWN_VALUES = 100  # per column, remembered to detect stray quotation marks
SEPARATORS = ("\t", ";", "|", ",")  # if two fit equally well, the first
FIRST_ROWS = 100  # looked at to find the separator and the header
MAX_NAME_LENGTH = 30  # characters in the name of a column that is not a known name
csv.field_size_limit(MAX_LINE_LENGTH)

Cells = list[str]


def read_delimited(
    path: Path, on_bad_row: BadRowPolicy, format: FileFormat = DETECT
) -> Iterator[Row]:
    """Yield the rows of a table in a text file."""
    format = replace(format, separator=format.separator or guess_separator(path, format))
    yield from name_columns(path, read_cells(path, on_bad_row, format), on_bad_row, format)


def name_columns(
    path: Path, rows: Iterator[tuple[str, Cells]], on_bad_row: BadRowPolicy, format: FileFormat
) -> Iterator[Row]:
    """Yield rows with named cells. Without a header, the columns are named 1, 2, 3, ...

    Rows without any content are skipped, and so are empty cells beyond the last column.
    """
    first_rows = list(islice(rows, FIRST_ROWS))
    if not first_rows:
        return
    names = [cell.strip() for cell in first_rows[0][1]]
    numbers = [str(i + 1) for i in range(len(names))]
    has_header = starts_with_header([cells for _, cells in first_rows], format)
    header = [a or b for a, b in zip(names, numbers, strict=True)] if has_header else numbers
    for name in header:
        if header.count(name) > 1:
            raise GlassError(f"{path}: two columns are named {name!r}; rename one of them")
    for location, all_cells in chain(first_rows[has_header:], rows):
        extra = all_cells[len(header) :]
        cells = all_cells if any(extra) else all_cells[: len(header)]
        if len(cells) != len(header):
            on_bad_row(location, f"expected {len(header)} columns, got {len(cells)}", str(cells))
        elif len(cells) == 1 or any(cell.strip() for cell in cells):
            yield Row(location, dict(zip(header, cells, strict=True)))


# --- the separator --------------------------------------------------------------------------------


def guess_separator(path: Path, format: FileFormat = DETECT) -> str:
    """A tab for .tsv, or the separator that divides most of the first rows into equal parts.

    Excel's line `sep=;` at the start of a file decides.
    """
    if file_type(path) in (".tsv", ".tab"):
        return "\t"
    lines = [text for _, text in islice(read_lines(path, IgnoreBadRows(), format.encoding), 20)]
    if lines and (stated := parse_separator_line(lines[0])):
        return stated

    def score(separator: str) -> tuple[float, bool]:
        rows = islice(
            read_cells(path, IgnoreBadRows(), replace(format, separator=separator)), FIRST_ROWS
        )
        sizes = Counter(len(cells) for _, cells in rows)
        size, count = sizes.most_common(1)[0] if sizes else (1, 0)
        is_in_first = bool(lines) and separator in lines[0]
        return (count / sizes.total() if size > 1 else 0.0), is_in_first

    scores = {separator: score(separator) for separator in SEPARATORS}
    best = max(SEPARATORS, key=lambda separator: scores[separator])  # the first of equals
    return best if scores[best][0] else ","


def parse_separator_line(line: str) -> str | None:
    """The separator in a line like `sep=;`, which Excel reads and writes before the header."""
    match = re.fullmatch(r'"?sep=(.)"?', line.strip("\n"))
    return match[1] if match else None


# --- cells ----------------------------------------------------------------------------------------


def read_cells(
    path: Path, on_bad_row: BadRowPolicy, format: FileFormat
) -> Iterator[tuple[str, Cells]]:
    """Yield the location and cells of each row; empty lines are skipped.

    If a quotation mark is never closed, or is closed only in a later row, only the line that
    contains it is treated as bad.
    """
    separator = format.separator or ","
    lines = read_lines(path, on_bad_row, format.encoding)
    pending = deque[tuple[str, str]]()  # lines that were read ahead but belong to later rows
    known: list[set[str]] = []  # up to `MAX_KNOWN_VALUES` values of each column

    def next_line() -> tuple[str, str] | None:
        return pending.popleft() if pending else next(lines, None)

    is_first = True
    while (first := next_line()) is not None:
        location, text = first
        is_first, was_first = False, is_first
        if was_first and parse_separator_line(text):
            continue
        if not has_quoted_cell(text, separator):
            cells: Cells | None = text.rstrip("\n").split(separator) if text.strip("\n") else []
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


def has_quoted_cell(line: str, separator: str) -> bool:
    """Whether a quotation mark in the line may delimit a cell; in TSV only one at its start."""
    if separator == "\t":
        return line.startswith('"') or '\t"' in line
    return '"' in line


def parse_quoted(
    first: tuple[str, str],
    next_line: Callable[[], tuple[str, str] | None],
    separator: str,
    known: list[set[str]],
) -> tuple[Cells | None, list[tuple[str, str]]]:
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
    if separator == "\t":
        first_cells = first[1].rstrip("\n").split(separator)
    else:
        try:
            first_cells = next(csv.reader([first[1]], delimiter=separator), [])
        except csv.Error:  # such as a carriage return inside the line
            return None, lines[1:]
    is_row = not known or len(first_cells) == len(known)
    return first_cells if is_row else None, lines[1:]


def has_stray_quote(lines: list[str], separator: str, cells: Cells, known: list[set[str]]) -> bool:
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


# --- the header -----------------------------------------------------------------------------------

HEADER_NAMES = frozenset(
    """text texts review reviews sentence sentences content body message comment document title
    label labels class classes category sentiment target source topic tag id rating score premise
    hypothesis question answer sentence1 sentence2 question1 question2 english chinese german
    french spanish en zh de fr es src tgt translation""".split()
)


def starts_with_header(rows: list[Cells], format: FileFormat = DETECT) -> bool:
    """Whether the first of these rows has the names of the columns.

    The user's word decides: `format.header`, or a name in `format.columns` that is in the row.
    """
    if format.header is not None:
        return format.header
    first, *rest = [[cell.strip() for cell in cells] for cells in rows]
    if any(name in first for name in format.columns):
        return True
    if any(cell.casefold() in HEADER_NAMES for cell in first):
        return True
    return looks_like_header(first, [cells for cells in rest if len(cells) == len(first)])


def looks_like_header(first: Cells, rest: list[Cells]) -> bool:
    """Whether a row differs from the rows below as names differ from values.

    Not if a cell is a number, is empty, or also occurs below it. Otherwise it is a header if the
    values below a cell are all numbers, or are few and repeated, or if all cells are shorter than
    almost all texts below them.
    """
    if len(rest) < 2 or len(set(first)) < len(first):
        return False
    columns = [list(column) for column in zip(*rest, strict=True)]
    pairs = list(zip(first, columns, strict=True))
    if any(not cell or is_number(cell) or cell in column for cell, column in pairs):
        return False
    if any(all(map(is_number, column)) or is_categorical(column) for column in columns):
        return all(len(cell) <= MAX_NAME_LENGTH for cell in first)
    return all(is_shorter(cell, column) for cell, column in pairs)


def is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?[\d.,]*\d%?", cell) is not None


def is_categorical(column: Cells) -> bool:
    """Whether a column has few different values, such as labels."""
    return len(column) >= 6 and len(set(column)) <= len(column) / 3


def is_shorter(cell: str, column: Cells) -> bool:
    """Whether a cell looks like a name above this column of texts."""
    longer = sum(len(text) > len(cell) for text in column) if len(column) > 2 else 0
    is_name = len(cell) <= MAX_NAME_LENGTH and cell[-1] not in ".!?。！？"
    return is_name and longer > 0.95 * len(column)
