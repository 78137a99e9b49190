"""Write rows to a table; the file extension determines the format."""

import csv
import json
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from glassformer.core.errors import GlassError
from glassformer.data.tables import import_arrow

OUTPUTS = (".csv", ".tsv", ".jsonl", ".parquet")
ROWS_PER_GROUP = 10_000  # of a Parquet file


def check_output_type(path: Path) -> None:
    if path.suffix.lower() not in OUTPUTS:
        raise GlassError(f"{path}: expected a name that ends in {', '.join(OUTPUTS)}")


class TableWriter:
    """Writes rows to a file as they come; the first row determines the columns.

    The file is created with the first row, or, if there is none, at the end. A CSV file starts with
    a byte order mark, so that Excel recognizes UTF-8.
    """

    def __init__(self, path: Path) -> None:
        check_output_type(path)
        self.path, self.type = path, path.suffix.lower()
        self.count = 0
        self.rows: list[dict[str, Any]] = []  # of a Parquet file, not yet written
        self.parquet: Any = None
        if self.type == ".parquet":
            self.arrow = import_arrow(path)

    @cached_property
    def file(self) -> TextIO:
        encoding = "utf-8-sig" if self.type == ".csv" else "utf-8"
        return self.path.open("w", encoding=encoding, newline="")

    @cached_property
    def table(self) -> "DelimitedWriter":
        return DelimitedWriter(self.file, "\t" if self.type == ".tsv" else ",")

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        if error is None or self.count:
            self.close()

    def write(self, row: dict[str, Any]) -> None:
        self.count += 1
        if self.type == ".parquet":
            self.rows.append(row)
            if len(self.rows) == ROWS_PER_GROUP:
                self.flush()
        elif self.type == ".jsonl":
            self.file.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            self.table.write(row)

    def flush(self) -> None:
        """Write the pending rows of a Parquet file."""
        table = self.arrow.Table.from_pylist(self.rows)
        if self.parquet is None:
            self.parquet = self.arrow.parquet.ParquetWriter(self.path, table.schema)
        self.parquet.write_table(table.cast(self.parquet.schema))
        self.rows = []

    def close(self) -> None:
        if self.type != ".parquet":
            self.file.close()
            return
        if self.rows or self.parquet is None:
            self.flush()
        self.parquet.close()


class DelimitedWriter:
    """Writes rows as CSV or TSV, with a header; lists and objects as JSON."""

    def __init__(self, file: TextIO, separator: str = ",") -> None:
        self.writer = csv.writer(file, delimiter=separator)
        self.has_header = False

    def write(self, row: dict[str, Any]) -> None:
        if not self.has_header:
            self.writer.writerow(row)
            self.has_header = True
        self.writer.writerow([to_cell(value) for value in row.values()])


def to_cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def merge_columns(columns: dict[str, str], results: dict[str, Any]) -> dict[str, Any]:
    """The columns of an input, and the results; a result whose name is taken gets another name."""
    row: dict[str, Any] = dict(columns)
    for name, value in results.items():
        free = name
        while free in columns:
            free = f"new_{free}"
        row[free] = value
    return row
