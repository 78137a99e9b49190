"""Read pairs of a source and a target text from tables or line-aligned files."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.examples import Example, ExampleReader
from glassformer.data.files import TABLES, BadRowPolicy, file_type, read_lines
from glassformer.data.labeled import peek_rows, read_table_rows
from glassformer.data.request import DataRequest
from glassformer.data.sample import number_pairs


def make_pair_reader(request: DataRequest, reporter: Reporter) -> ExampleReader:
    """Return a function that reads pairs from a table, two aligned files or the built-in sample."""
    if not request.files:
        reporter("no data given: using numbers and dates in Chinese and English")
        return lambda _: (
            Example("", pair, request.assign_split(pair[0]), group=pair[0])
            for pair in number_pairs()
        )
    readers, reported = [], set[tuple[str, ...]]()
    for files, split in request.split_files():
        read, columns = open_pairs(replace(request, files=files))
        readers.append((split, read))
        if columns and columns not in reported:
            reporter(f'columns: source = "{columns[0]}", target = "{columns[1]}"')
            reported.add(columns)

    def pairs(on_bad_row: BadRowPolicy) -> Iterator[Example]:
        for split, read in readers:
            for location, source, target in read(on_bad_row):
                if source.strip() and target.strip():
                    texts = (source.strip(), target.strip())
                    yield Example(
                        location, texts, split or request.assign_split(texts[0]), group=texts[0]
                    )
                else:
                    on_bad_row(location, "the source or target is empty", f"{source}\t{target}")

    return pairs


def open_pairs(
    request: DataRequest,
) -> tuple[Callable[[BadRowPolicy], Iterator[tuple[str, str, str]]], tuple[str, ...]]:
    """Return a function that yields (location, source, target), and the two columns of a table."""
    are_tables = all(file_type(file) in TABLES for file in request.files)
    if len(request.files) == 1 and not are_tables and not request.files[0].is_dir():
        raise GlassError(
            f"{request.files[0]} is not a table: give two line-aligned files with --source and "
            "--target (for validation data, give --valid twice)"
        )
    if len(request.files) == 2 and not request.text and not are_tables:
        source, target = request.files
        return lambda on_bad_row: read_aligned_lines(source, target, on_bad_row), ()
    first = peek_rows(request.files, request.separator)
    if not first:
        raise GlassError(f"{request.files[0]} has no rows")
    names = request.text or tuple(first[0].values)[:2]
    if len(names) != 2 or not all(name in first[0].values for name in names):
        raise GlassError(
            f"{request.files[0]}: expected two columns, a source and a target, got {list(names)}; "
            f"the columns are {list(first[0].values)}"
        )

    def read(on_bad_row: BadRowPolicy) -> Iterator[tuple[str, str, str]]:
        for row in read_table_rows(request.files, on_bad_row, request.separator):
            yield row.location, row.values.get(names[0], ""), row.values.get(names[1], "")

    return read, names


def read_aligned_lines(
    source: Path, target: Path, on_bad_row: BadRowPolicy
) -> Iterator[tuple[str, str, str]]:
    """Yield the location, the source line and the target line of each pair in two aligned files."""
    end = ("", None)
    for (location, source_line), (_, target_line) in zip_longest(
        read_lines(source, on_bad_row), read_lines(target, on_bad_row), fillvalue=end
    ):
        if source_line is None or target_line is None:
            short, long = (source, target) if source_line is None else (target, source)
            raise GlassError(
                f"{short} ends before {long}: aligned files must have the same number of lines"
            )
        yield location, source_line.rstrip("\n"), target_line.rstrip("\n")
