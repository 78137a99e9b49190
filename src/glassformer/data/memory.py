"""Data that is in memory: lists and tables of Python, written to a file as if it came from one."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.data.tables import to_values

# The columns of tuples with this many items, by task.
TUPLE_COLUMNS: dict[str, dict[int, tuple[str, ...]]] = {
    "classify": {2: ("text", "label"), 3: ("text_1", "text_2", "label")},
    "translate": {2: ("source", "target")},
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
