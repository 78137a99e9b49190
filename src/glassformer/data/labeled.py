"""Read labeled texts from tables or folders."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.examples import Example, ExampleReader
from glassformer.data.files import BadRowPolicy, IgnoreBadRows, Row, read_lines
from glassformer.data.format import DETECT, FileFormat
from glassformer.data.request import DataRequest
from glassformer.data.sample import code_passages
from glassformer.data.split import choose_held_out
from glassformer.data.tables import describe_formats, is_table, read_rows

LABEL_NAMES = (
    *("label", "labels", "class", "category", "categories", "sentiment", "target", "topic", "tag"),
    *("y", "genre", "genres", "intent", "verdict", "kategorie", "klasse", "urteil", "标签", "类别"),
)
PAIR_NAMES = (
    *(("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2")),
    *(("text1", "text2"), ("text_1", "text_2")),
)


@dataclass(frozen=True)
class Columns:
    text: tuple[str, ...]
    label: str


def make_labeled_reader(
    request: DataRequest, reporter: Reporter
) -> tuple[ExampleReader, dict[str, Any]]:
    """Return a function that reads the examples, and metadata about the columns."""
    if not request.files:
        reporter(
            "no data given: using source code from Python's standard library, labeled by package"
        )
        return lambda _: read_sample(request), {}
    for line in describe_formats((*request.files, *request.valid), request.format):
        reporter(line)
    columns = choose_columns(peek_rows(request.files, request.format), request)
    texts = " and ".join(f'"{name}"' for name in columns.text)
    reporter(f'columns: text = {texts}, label = "{columns.label}"')

    def read(on_bad_row: BadRowPolicy) -> Iterator[Example]:
        needed = (*columns.text, columns.label, *([request.group] if request.group else []))
        for files, split in request.split_files():
            for row in read_table_rows(files, on_bad_row, request.format):
                missing = [name for name in needed if name not in row.values]
                if missing:
                    on_bad_row(row.location, f"there is no column {missing[0]!r}", str(row.values))
                elif not row.values[columns.label].strip():
                    on_bad_row(row.location, "the label is empty", str(row.values))
                elif not any(row.values[name].strip() for name in columns.text):
                    on_bad_row(row.location, "the text is empty", str(row.values))
                elif unknown := find_unknown_labels(row.values[columns.label], request):
                    known = list(request.labels)
                    reason = f"unknown label {unknown[0]!r}: the model was trained with {known}"
                    on_bad_row(row.location, reason, str(row.values))
                else:
                    texts = tuple(row.values[name] for name in columns.text)
                    group = row.values[request.group] if request.group else None
                    key = "\0".join(texts) if group is None else group
                    label = row.values[columns.label].strip()
                    part = split or request.assign_split(key)
                    yield Example(row.location, texts, part, label, group)

    return read, {"text": list(columns.text), "label": columns.label}


def read_sample(request: DataRequest) -> Iterator[Example]:
    """Yield the built-in examples.

    Some files of each package are held out, so that each label has validation examples and
    neighboring passages are in the same split.
    """
    passages = list(code_passages())
    sizes: dict[str, Counter[str]] = {}
    for _, package, file in passages:
        sizes.setdefault(package, Counter())[file] += 1
    held_out = {
        file
        for files in sizes.values()
        for file in choose_held_out(files, request.seed, request.valid_fraction)
    }
    for text, package, file in passages:
        yield Example("", (text,), "valid" if file in held_out else "train", package)


def read_table_rows(
    files: tuple[Path, ...], on_bad_row: BadRowPolicy, format: FileFormat = DETECT
) -> Iterator[Row]:
    """Yield the rows of tables, and of folders with one subfolder per label."""
    for file in files:
        if file.is_dir() and not is_table(file):
            yield from read_folder_rows(file, on_bad_row, format.encoding)
        else:
            yield from read_rows(file, on_bad_row, format)


def read_folder_rows(
    folder: Path, on_bad_row: BadRowPolicy, encoding: str | None = None
) -> Iterator[Row]:
    """Read folder/label/file, or folder/train/label/file as in aclImdb."""
    folder = folder / "train" if (folder / "train").is_dir() else folder
    label_folders = sorted(p for p in folder.iterdir() if p.is_dir() and p.name != "unsup")
    if not label_folders:
        raise GlassError(f"{folder} has no subfolders: expected one per label, with its texts")
    for label_folder in label_folders:
        for file in sorted(p for p in label_folder.rglob("*") if p.is_file()):
            text = "".join(text for _, text in read_lines(file, on_bad_row, encoding))
            yield Row(str(file), {"text": text, "label": label_folder.name})


def choose_columns(first_rows: list[Row], request: DataRequest) -> Columns:
    """Return the columns that the user named, or those of the training data, or guess them.

    The group column is not used as text or label, unless it is named explicitly or fewer than two
    other columns exist.
    """
    names = first_rows[0].values if first_rows else {}
    text, label = request.text, request.label
    group = request.group
    if group in names and group not in (*text, label) and len(names) > 2:
        first_rows = [
            Row(row.location, {name: value for name, value in row.values.items() if name != group})
            for row in first_rows
        ]
        names = first_rows[0].values
    if not text and all(name in names for name in request.trained_text):
        text = request.trained_text
    if not label and request.trained_label in names and request.trained_label not in text:
        label = request.trained_label
    if not label and request.labels:
        known = [n for n in names if n not in text and has_labels(first_rows, n, request.labels)]
        label = known[0] if known else None
    return guess_columns(first_rows, text, label)


def has_labels(rows: list[Row], column: str, labels: tuple[str, ...]) -> bool:
    """Whether all values of a column are among these labels."""
    return all(row.values.get(column, "").strip() in labels for row in rows)


def guess_columns(first_rows: list[Row], text: tuple[str, ...], label: str | None) -> Columns:
    """Return the text and label columns: those passed in, or guessed by name or content."""
    if not first_rows:
        raise GlassError("there are no rows to train on: the files are empty")
    names = list(first_rows[0].values)
    if len(names) < 2:
        raise GlassError(
            f"the data has only one column, {names[0]!r}: expected a text and a label; if they "
            "are separated by an unusual character, name it with --separator"
        )
    for name in (*text, *([label] if label else [])):
        if name not in names:
            raise GlassError(f"unknown column {name!r}; the columns are {', '.join(names)}")
    if label in text:
        raise GlassError(f"the column {label!r} cannot be both the label and the text")
    lower = {name.casefold(): name for name in names}
    lengths = {n: sum(len(row.values.get(n, "")) for row in first_rows) for n in names}
    if label is None:
        values = {name: {row.values.get(name, "").strip() for row in first_rows} for name in names}
        n_values = {name: len(values[name]) for name in names}
        limit = max(len(first_rows) // 4, 2)
        categorical = [n for n in names if n not in text and 2 <= n_values[n] <= limit]
        categorical = [n for n in categorical if "" not in values[n]] or categorical
        by_name = [lower[n] for n in LABEL_NAMES if n in lower and lower[n] not in text]
        if not by_name and not categorical:
            columns = ", ".join(names)
            raise GlassError(
                f"no column looks like a label: choose one with --label; the columns are {columns}"
            )
        fewest = min(categorical, key=lambda n: (n_values[n], lengths[n]), default="")
        label = by_name[0] if by_name else fewest
    if not text:
        pair = next((p for p in PAIR_NAMES if all(name in lower for name in p)), None)
        others = [name for name in names if name != label]
        longest = max(others, key=lengths.__getitem__)
        text = tuple(lower[name] for name in pair) if pair else (longest,)
    return Columns(text, label)


def peek_rows(files: tuple[Path, ...], format: FileFormat = DETECT, limit: int = 1000) -> list[Row]:
    """The first rows of the data; bad rows are ignored."""
    return list(islice(read_table_rows(files, IgnoreBadRows(), format), limit))


def split_labels(cell: str) -> list[str]:
    """The labels in a cell like `a|b`."""
    return [label.strip() for label in cell.split("|") if label.strip()]


def find_unknown_labels(cell: str, request: DataRequest) -> list[str]:
    """The labels in a cell that the model being evaluated was not trained on."""
    labels = split_labels(cell) if request.multi_label else [cell.strip()]
    return [label for label in labels if request.labels and label not in request.labels]


def describe_unvalidated_labels(labels: Sequence[str], total: int) -> str:
    """A warning that lists the labels without validation examples; `total` is the number of all
    labels."""
    names = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
    return (
        f"labels without validation examples: {names} ({len(labels)} of {total}), so their scores "
        "are undefined: use more data or --valid"
    )


def check_labels(counts: Counter[str]) -> list[str]:
    """Return the sorted labels; raise an error if there are fewer than 2 or more than 1000."""
    if not counts:
        raise GlassError("the data has no valid row with a text and a label")
    if len(counts) < 2:
        only = next(iter(counts))
        raise GlassError(f"every text has the label {only!r}: at least two labels are needed")
    if len(counts) > 1000:
        raise GlassError(
            f"there are {len(counts):,} different labels, but at most 1,000 are allowed: "
            "choose the label column with --label"
        )
    return sorted(counts)
