"""Read the rows of tables of every type: delimited text, JSON, Excel, Parquet, Hugging Face."""

import contextlib
import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json, wrap_read_errors
from glassformer.data.compression import file_type, open_bytes
from glassformer.data.delimited import name_columns, read_delimited
from glassformer.data.encoding import UTF8, detect_encoding
from glassformer.data.files import BadRowPolicy, IgnoreBadRows, Row, read_lines
from glassformer.data.format import DETECT, FileFormat

TABLES = (".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".xlsx", ".parquet")
MAX_EXCEL_BYTES = 2_000_000_000  # of an unpacked file
DATASET_FILES = ("dataset_dict.json", "dataset_info.json")  # written by `save_to_disk` of datasets


def is_table(path: Path) -> bool:
    """Whether the name of a file says that it is a table, or a folder has a saved dataset."""
    if path.is_dir():
        return any((path / name).is_file() for name in DATASET_FILES)
    return file_type(path) in TABLES


def read_rows(path: Path, on_bad_row: BadRowPolicy, format: FileFormat = DETECT) -> Iterator[Row]:
    """Yield the rows of a table; a file with an unknown extension is read as what it looks like."""
    if path.is_dir():
        yield from read_dataset(path)
        return
    match table_type(path, format):
        case ".jsonl" | ".ndjson":
            yield from read_json_lines(path, on_bad_row, format)
        case ".json":
            yield from read_json_file(path, on_bad_row)
        case ".parquet":
            yield from read_parquet(path)
        case ".xlsx":
            yield from read_excel(path, on_bad_row, format)
        case _:
            yield from read_delimited(path, on_bad_row, format)


def table_type(path: Path, format: FileFormat = DETECT) -> str:
    """The extension of a table; for other files, .jsonl or .csv, guessed from the first line."""
    if file_type(path) in TABLES:
        return file_type(path)
    first = next((text for _, text in read_lines(path, IgnoreBadRows(), format.encoding)), "")
    return ".jsonl" if first.lstrip().startswith("{") else ".csv"


def describe_formats(files: Iterable[Path], format: FileFormat) -> Iterator[str]:
    """Say which files are not in UTF-8, and which split of a saved dataset is read."""
    for file in files:
        if (file / "dataset_dict.json").is_file():
            names = ", ".join(sorted(p.name for p in file.iterdir() if p.is_dir()))
            yield f"{file} has the splits {names}: `train` is read; to read another: {file}/NAME"
        if not file.is_file() or file_type(file) in (".xlsx", ".parquet"):
            continue
        encoding = format.encoding or detect_encoding(file)
        if encoding not in (UTF8, "utf-8", format.encoding):
            yield (
                f"{file} is read as {encoding}; if letters look wrong, name the encoding "
                "with --encoding"
            )


# --- JSON -----------------------------------------------------------------------------------------


def read_json_lines(path: Path, on_bad_row: BadRowPolicy, format: FileFormat) -> Iterator[Row]:
    for location, text in read_lines(path, on_bad_row, format.encoding):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            on_bad_row(location, f"the line is not valid JSON ({first_line(error)})", text)
            continue
        yield from to_row(location, record, on_bad_row)


def read_json_file(path: Path, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    with wrap_read_errors(path), open_bytes(path) as file:
        content = file.read()
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not valid JSON: {first_line(error)}") from None
    records = find_records(value)
    if records is None:
        raise GlassError(
            f"{path} is not a list of objects; if it has one object per line, name it .jsonl"
        )
    for number, record in enumerate(records, start=1):
        yield from to_row(f"{path}, record {number}", record, on_bad_row)


def find_records(value: Any) -> list[Any] | None:
    """The records in a JSON file: a list, the only list in an object, or columns (as of pandas)."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or not value:
        return None
    columns = {k: list(v.values()) if isinstance(v, dict) else v for k, v in value.items()}
    lists = [column for column in columns.values() if isinstance(column, list)]
    if len(lists) == 1 and lists[0] and isinstance(lists[0][0], dict):
        return lists[0]
    if len(lists) < len(columns) or len({len(column) for column in lists}) > 1:
        return None
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]


def to_row(location: str, record: object, on_bad_row: BadRowPolicy) -> Iterator[Row]:
    if isinstance(record, dict):
        yield Row(location, to_values(record))
    else:
        on_bad_row(location, "the record is not a JSON object", str(record))


def to_values(record: dict[Any, Any]) -> dict[str, str]:
    """The values of a record as text; those of an object in it are columns named `outer.inner`."""
    values: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            values |= {f"{name}.{inner}": to_text(v) for inner, v in value.items()}
        else:
            values[str(name)] = to_text(value)
    return values


def to_text(value: object) -> str:
    """A value as text: a list with | between its items; empty for null, NaN and infinity."""
    if isinstance(value, list | tuple):
        return "|".join(map(to_text, value))
    is_missing = value is None or (isinstance(value, float) and not math.isfinite(value))
    return "" if is_missing else str(value)


# --- Excel ----------------------------------------------------------------------------------------


def read_excel(path: Path, on_bad_row: BadRowPolicy, format: FileFormat) -> Iterator[Row]:
    """Yield the rows of the first sheet that has any."""
    try:
        import openpyxl  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise GlassError(
            f"{path}: reading Excel files needs openpyxl: pip install 'glassformer[data]'"
        ) from None
    with wrap_read_errors(path):
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except zipfile.BadZipFile:
            raise GlassError(
                f"{path} is not an .xlsx file; save the table as .xlsx or .csv"
            ) from None
        if size > MAX_EXCEL_BYTES:
            raise GlassError(f"{path} has {size:,} bytes when unpacked; save the table as .csv")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = [sheet for sheet in book.worksheets if next(sheet.iter_rows(), None)]
        if sheets:
            cells = read_excel_cells(path, sheets[0])
            yield from name_columns(path, cells, on_bad_row, format)


def read_excel_cells(path: Path, sheet: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the location and cells of each row that is not empty."""
    for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        if any(value is not None for value in values):
            yield f"{path}:{number}", [to_text(value) for value in values]


# --- Arrow: Parquet and Hugging Face datasets -----------------------------------------------------


def read_parquet(path: Path) -> Iterator[Row]:
    arrow = import_arrow(path)
    with wrap_arrow_errors(path, arrow):
        yield from read_record_batches(path, arrow.parquet.ParquetFile(path).iter_batches())


def read_dataset(folder: Path) -> Iterator[Row]:
    """Yield the rows that `save_to_disk` of Hugging Face's `datasets` wrote to a folder.

    Of several splits, `train` is read. Labels are shown by their names.
    """
    if (folder / "dataset_dict.json").is_file():
        if not (folder / "train").is_dir():
            splits = ", ".join(p.name for p in sorted(folder.iterdir()) if p.is_dir())
            raise GlassError(f"{folder} has no split `train`; give one of its folders: {splits}")
        folder = folder / "train"
    arrow = import_arrow(folder)
    with wrap_arrow_errors(folder, arrow):
        features = read_json(folder / "dataset_info.json").get("features") or {}
        names = {k: v["names"] for k, v in features.items() if "names" in v}
        for file in sorted(folder.glob("*.arrow")):
            with arrow.memory_map(str(file)) as source:
                yield from read_record_batches(file, arrow.ipc.open_stream(source), names)


def read_record_batches(
    path: Path, batches: Iterable[Any], label_names: dict[str, list[str]] | None = None
) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for record in batch.to_pylist():
            number += 1
            for name, labels in (label_names or {}).items():
                if isinstance(record[name], int) and 0 <= record[name] < len(labels):
                    record[name] = labels[record[name]]
            yield Row(f"{path}, record {number}", to_values(record))


def import_arrow(path: Path) -> Any:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise GlassError(
            f"{path}: reading Parquet and Arrow files needs pyarrow: pip install "
            "'glassformer[data]'"
        ) from None
    return pyarrow


@contextlib.contextmanager
def wrap_arrow_errors(path: Path, arrow: Any) -> Iterator[None]:
    try:
        with wrap_read_errors(path):
            yield
    except arrow.ArrowException as error:
        raise GlassError(f"{path} is corrupted: {first_line(error)}") from None
