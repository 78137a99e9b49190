"""Read pairs of texts, as source and target, from tables or line-aligned files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.examples import Example, ExampleReader
from glassformer.data.files import BadRowPolicy, Row, read_lines
from glassformer.data.labeled import peek_rows, read_table_rows
from glassformer.data.request import DataRequest
from glassformer.data.sample import number_pairs, reports
from glassformer.data.tables import describe_formats, is_table


@dataclass(frozen=True)
class PairKind:
    """What the two texts of a pair are."""

    names: tuple[str, str]  # in messages
    columns: tuple[tuple[str, str], ...]  # names of columns, in order of preference
    sample: Callable[[], Iterator[tuple[str, str]]]  # the built-in pairs
    sample_name: str


TRANSLATION = PairKind(
    ("source", "target"),
    (("source", "target"), ("src", "tgt")),
    number_pairs,
    "numbers and dates in Chinese and English",
)
SUMMARY = PairKind(
    ("document", "summary"),
    (
        *product(
            ("document", "article", "body", "text", "content", "正文", "文章"),
            ("summary", "headline", "subject", "title", "highlights", "摘要", "标题"),
        ),
    ),
    reports,
    "generated reports with headlines",
)


def make_pair_reader(
    request: DataRequest, reporter: Reporter, kind: PairKind = TRANSLATION
) -> tuple[ExampleReader, dict[str, Any]]:
    """Return a function that reads pairs, and metadata about the columns.

    Pairs are read from a table, two aligned files or the built-in sample.
    """
    if not request.files:
        reporter(f"no data given: using {kind.sample_name}")

        def sample(_: BadRowPolicy) -> Iterator[Example]:
            for pair in kind.sample():
                yield Example("", pair, request.assign_split(pair[0]), group=pair[0])

        return sample, {}
    for line in describe_formats((*request.files, *request.valid), request.format):
        reporter(line)
    readers = []
    reported = set[tuple[str, ...]]()
    metadata = dict[str, Any]()
    for files, split in request.split_files():
        read, columns = open_pairs(replace(request, files=files), kind)
        readers.append((split, read))
        if columns and columns not in reported:
            first, second = kind.names
            reporter(f'columns: {first} = "{columns[0]}", {second} = "{columns[1]}"')
            reported.add(columns)
            metadata = metadata or {"text": [columns[0]], "target": columns[1]}

    def pairs(on_bad_row: BadRowPolicy) -> Iterator[Example]:
        for split, read in readers:
            for location, source, target in read(on_bad_row):
                if source.strip() and target.strip():
                    texts = (source.strip(), target.strip())
                    yield Example(
                        location, texts, split or request.assign_split(texts[0]), group=texts[0]
                    )
                else:
                    first, second = kind.names
                    on_bad_row(location, f"the {first} or {second} is empty", f"{source}\t{target}")

    return pairs, metadata


def open_pairs(
    request: DataRequest, kind: PairKind = TRANSLATION
) -> tuple[Callable[[BadRowPolicy], Iterator[tuple[str, str, str]]], tuple[str, ...]]:
    """Return a function that yields (location, source, target), and the two columns of a table."""
    are_tables = all(map(is_table, request.files))
    if len(request.files) == 2 and not request.text and not are_tables:
        source, target = request.files
        encoding = request.format.encoding
        return lambda on_bad_row: read_aligned_lines(source, target, on_bad_row, encoding), ()
    first = peek_rows(request.files, request.format)
    first_name, second_name = kind.names
    if not first:
        raise GlassError(f"{request.files[0]} has no rows")
    if len(first[0].values) < 2:
        raise GlassError(
            f"{request.files[0]} has only one column: expected a {first_name} and a {second_name}; "
            "give two line-aligned files with --source and --target (for validation data, give "
            "--valid twice)"
        )
    trained_targets = (request.trained_target,) if request.trained_target else ()
    trained = (*request.trained_text, *trained_targets)  # the columns in training
    has_trained = len(trained) == 2 and all(name in first[0].values for name in trained)
    names = request.text or (trained if has_trained else choose_pair_columns(first, kind))
    if len(names) != 2 or not all(name in first[0].values for name in names):
        raise GlassError(
            f"{request.files[0]}: expected two columns, a {first_name} and a {second_name}, got "
            f"{', '.join(names)}; the columns are {', '.join(first[0].values)}; name both with "
            "--text"
        )

    def read(on_bad_row: BadRowPolicy) -> Iterator[tuple[str, str, str]]:
        for row in read_table_rows(request.files, on_bad_row, request.format):
            yield row.location, row.values.get(names[0], ""), row.values.get(names[1], "")

    return read, names


def choose_pair_columns(rows: list[Row], kind: PairKind = TRANSLATION) -> tuple[str, ...]:
    """The columns with known names, or else the first two with letters in most rows."""
    names = list(rows[0].values)
    lower = {name.casefold(): name for name in names}
    for pair in kind.columns:
        if all(name in lower for name in pair):
            return tuple(lower[name] for name in pair)

    def has_letters(name: str) -> bool:
        values = [row.values.get(name, "") for row in rows]
        return sum(any(c.isalpha() for c in value) for value in values) > len(values) / 2

    texts = [name for name in names if has_letters(name)]
    return tuple((texts if len(texts) > 1 else names)[:2])


def read_aligned_lines(
    source: Path, target: Path, on_bad_row: BadRowPolicy, encoding: str | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield the location, the source line and the target line of each pair in two aligned files."""
    end = ("", None)
    for (location, source_line), (_, target_line) in zip_longest(
        read_lines(source, on_bad_row, encoding),
        read_lines(target, on_bad_row, encoding),
        fillvalue=end,
    ):
        if source_line is None or target_line is None:
            short, long = (source, target) if source_line is None else (target, source)
            raise GlassError(
                f"{short} ends before {long}: aligned files must have the same number of lines"
            )
        yield location, source_line.rstrip("\n"), target_line.rstrip("\n")
