"""Data that is in memory: lists and tables of Python, written to a file as if it came from one."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.data.tables import to_values

# The columns of tuples with this many items, by task.
TUPLE_COLUMNS: dict[str, dict[int, tuple[str, ...]]] = {
    "classify": {2: ("text", "label"), 3: ("text_1", "text_2", "label")},
    "translate": {2: ("source", "target")},
    "summarize": {2: ("document", "summary")},
    "recommend": {3: ("user", "item", "rating"), 4: ("user", "item", "rating", "time")},
    "recommend-next": {3: ("user", "item", "time"), 4: ("user", "item", "rating", "time")},
}


def save_data(task: str, data: Any, file: Path) -> Path:
    """Write data to a JSONL file and return its path.

    `data` is a DataFrame of pandas or polars, a pyarrow table, a dataset of Hugging Face, or a list
    of dicts, tuples or, for tasks on running text, strings.
    """
    with file.open("w", encoding="utf-8") as out:
        for number, record in enumerate(to_records(data), start=1):
            out.write(json.dumps(to_record(task, record, number), ensure_ascii=False) + "\n")
    return file


@contextlib.contextmanager
def open_scratch_folder() -> Iterator[Path]:
    """A temporary folder for data; errors name the rows of the data, not of its files there."""
    with TemporaryDirectory() as folder:
        try:
            yield Path(folder)
        except GlassError as error:
            file = rf"{re.escape(folder)}.(data|validation)-\d+\.jsonl"
            message = re.sub(rf"{file}:(\d+)", r"row \2 of the \1 in memory", str(error))
            raise GlassError(re.sub(file, r"the \1 in memory", message)) from error


def save_in_memory_data(
    task: str | None, data: Sequence[Any], folder: Path, name: str = "data"
) -> tuple[str | Path, ...]:
    """Return files as they are; write other data to files in the folder."""
    return tuple(
        item
        if isinstance(item, str | Path)
        else save_data(str(task), item, folder / f"{name}-{i}.jsonl")
        for i, item in enumerate(data)
    )


def to_records(data: Any) -> Iterator[Any]:
    """Yield the rows of a table or list."""
    for method in ("to_dicts", "to_pylist"):  # polars, pyarrow
        if hasattr(data, method):
            yield from getattr(data, method)()
            return
    if hasattr(data, "columns") and hasattr(data, "itertuples"):  # pandas
        names = [str(name) for name in data.columns]
        for values in data.itertuples(index=False, name=None):
            yield dict(zip(names, values, strict=True))
        return
    if isinstance(data, dict | bytes | bytearray) or not isinstance(data, Iterable):
        raise GlassError(
            f"expected a file, a DataFrame or a list of rows, got {type(data).__name__}"
        )
    yield from data


def to_record(task: str, record: Any, number: int) -> dict[str, str]:
    """One row as a dict of texts."""
    if hasattr(record, "tolist"):  # a row of a NumPy array
        record = record.tolist()
    if isinstance(record, dict):
        return to_values({name: to_python(value) for name, value in record.items()})
    if isinstance(record, str) and task not in TUPLE_COLUMNS:
        return {"text": record}
    names = TUPLE_COLUMNS.get(task, {})
    if isinstance(record, tuple | list) and len(record) in names:
        columns = zip(names[len(record)], record, strict=True)
        return to_values({name: to_python(value) for name, value in columns})
    expected = " or ".join(f"({', '.join(columns)})" for columns in names.values()) or "a string"
    raise GlassError(
        f"row {number} of the data: expected a dict or {expected}, got {str(record)[:80]!r}"
    )


def to_python(value: Any) -> Any:
    """A value without NumPy's types; missing values of pandas become None."""
    value = value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def select_texts(data: Any, columns: Sequence[str]) -> Any:
    """Return the text columns of a DataFrame as rows; other data is returned as it is."""
    names = getattr(data, "columns", None)
    if names is None:
        return data
    missing = [name for name in columns if name not in list(names)]
    if missing and len(names) != len(columns):
        raise GlassError(f"the DataFrame has no column {missing[0]!r}, which the model reads")
    values = data if missing else data[list(columns)]
    return [tuple(row) for row in values.to_numpy()]


def check_texts(texts: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of one example as a tuple; raise an error if they do not fit the columns."""
    row = (texts,) if isinstance(texts, str) else texts
    is_valid = isinstance(row, tuple | list) and all(isinstance(text, str) for text in row)
    if not is_valid or len(row) != len(columns):
        expected = f"{len(columns)} texts" if len(columns) > 1 else "1 text"
        names = ", ".join(columns)
        raise GlassError(f"this model expects {expected} ({names}), got {str(row)[:80]}")
    return tuple(row)
