"""Texts with labels, and texts in pairs: from tables, folders or aligned files to examples."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from glassformer.core.errors import GlassError
from glassformer.data.files import (
    TABLES,
    BadRowPolicy,
    IgnoreBadRows,
    Row,
    file_type,
    read_lines,
    read_rows,
)

LABELS = ("label", "labels", "class", "category", "sentiment", "target", "topic", "tag", "y")
PAIRS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"))


@dataclass(frozen=True)
class Columns:
    text: tuple[str, ...]
    label: str


def read_table_rows(
    files: tuple[Path, ...], on_bad_row: BadRowPolicy, separator: str | None
) -> Iterator[Row]:
    """The rows of tables, and those of folders, in which a folder's name is the label."""
    for file in files:
        if file.is_dir():
            yield from folder_rows(file, on_bad_row)
        elif file_type(file) in TABLES:
            yield from read_rows(file, on_bad_row, separator)
        else:
            raise GlassError(f"{file}: a table ({', '.join(TABLES)}) or a folder is needed")


def folder_rows(folder: Path, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    """aclImdb's layout and plain ones: folder/label/file or folder/train/label/file."""
    folder = folder / "train" if (folder / "train").is_dir() else folder
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and p.name != "unsup")
    if not classes:
        raise GlassError(f"{folder} has no folders inside; each should be a label with its texts")
    for location in classes:
        for file in sorted(p for p in location.rglob("*") if p.is_file()):
            text = "".join(text for _, text in read_lines(file, on_bad_row))
            yield Row(str(file), {"text": text, "label": location.name})


def guess_columns(first: list[Row], text: tuple[str, ...], label: str | None) -> Columns:
    """Which columns are the label and the text: by name, else by what stands in them."""
    if not first:
        raise GlassError("there are no rows to learn from")
    names = list(first[0].values)
    for name in (*text, *([label] if label else [])):
        if name not in names:
            raise GlassError(f"there is no column {name!r}; there are {', '.join(names)}")
    if label in text:
        raise GlassError(f"the column {label!r} cannot be both the label and the text")
    lower = {name.casefold(): name for name in names}
    if label is None:
        kinds = {name: len({row.values.get(name) for row in first}) for name in names}
        few = [n for n in names if n not in text and 2 <= kinds[n] <= max(len(first) // 4, 2)]
        named = [lower[name] for name in LABELS if name in lower]
        if not named and not few:
            raise GlassError(f"no column looks like a label: name it with --label; have {names}")
        label = named[0] if named else min(few, key=kinds.__getitem__)
    if not text:
        pair = next((p for p in PAIRS if all(name in lower for name in p)), None)
        rest = [name for name in names if name != label]
        if not rest:
            raise GlassError(f"there is no column of text beside the label {label!r}")
        length = {n: sum(len(row.values.get(n, "")) for row in first) for n in rest}
        longest = max(rest, key=length.__getitem__)
        text = tuple(lower[name] for name in pair) if pair else (longest,)
    return Columns(text, label)


def peek_rows(files: tuple[Path, ...], separator: str | None, most: int = 1000) -> list[Row]:
    """A look at the data, which complains of nothing."""
    return list(islice(read_table_rows(files, IgnoreBadRows(), separator), most))


def read_aligned_lines(
    source: Path, target: Path, on_bad_row: BadRowPolicy
) -> Iterator[tuple[str, str, str]]:
    """The lines of two files that translate each other, with their place."""
    missing = ("", None)
    for one, other in zip_longest(
        read_lines(source, on_bad_row), read_lines(target, on_bad_row), fillvalue=missing
    ):
        if one[1] is None or other[1] is None:
            short, long = (source, target) if one[1] is None else (target, source)
            raise GlassError(f"{short} ends before {long}: aligned files have equally many lines")
        yield one[0], one[1].rstrip("\n"), other[1].rstrip("\n")


def check_labels(counts: Counter[str]) -> list[str]:
    """The labels in order; an error where there is nothing to tell apart."""
    if len(counts) < 2:
        only = next(iter(counts), None)
        raise GlassError(f"every text has the label {only!r}: at least two are needed")
    if len(counts) > 1000:
        raise GlassError(f"{len(counts)} different labels: is the right column the label?")
    return sorted(counts)
