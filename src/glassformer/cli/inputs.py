"""From the inputs of a command (arguments, a file, standard input) to its predictions."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo

if TYPE_CHECKING:
    from glassformer.data.files import BadRowPolicy
    from glassformer.data.inputs import Input

CHUNK = 64  # inputs that are predicted at once

results = options.combine(
    options.out(
        help="Write a table with all columns of the input and the results: .csv, .tsv, .jsonl or "
        ".parquet."
    ),
    options.overwrite(help="Overwrite the --out file if it exists."),
)


def run_predictions(
    predict: Callable[[list["Input"]], Iterator[dict[str, Any]]],
    show: Callable[["Input", dict[str, Any]], None],
    to_columns: Callable[[dict[str, Any]], dict[str, Any]],
    out: Path | None,
    *,
    overwrite: bool,
    skip_bad: bool,
    trained: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    **values: Any,
) -> None:
    """Predict on the inputs in chunks; show each result or, with `out`, write it to a table.

    `trained` are the text columns of the training data, `outputs` other endings that the command
    accepts for `out`, and `values` the other options of `options.texts`.
    """
    from glassformer.core.reporter import ProgressBar, Reporter, format_count
    from glassformer.data.files import BadRowPolicy, CountBadRows
    from glassformer.data.output import OUTPUTS, TableWriter, merge_columns

    options.check_output_paths(out, overwrite=overwrite)
    if out is not None and out.suffix.lower() not in OUTPUTS:
        endings = ", ".join((*outputs, *OUTPUTS))
        raise click.UsageError(f"--out: expected a file name ending in {endings}, got {out}")
    with contextlib.ExitStack() as stack:
        on_bad_row = CountBadRows() if skip_bad else BadRowPolicy()
        stack.callback(report_skipped, on_bad_row)
        inputs, count = open_inputs(
            stack, on_bad_row, trained=trained, count=out is not None, **values
        )
        reporter = Reporter()
        writer = stack.enter_context(TableWriter(out)) if out else None
        bar = ProgressBar(reporter, "predicting", count) if count else None
        is_empty = True
        while chunk := list(islice(inputs, CHUNK)):
            is_empty = False
            for item, result in predict_chunk(predict, chunk, on_bad_row):
                if writer:
                    writer.write(merge_columns(item.columns, to_columns(result)))
                else:
                    show(item, result)
            if bar:
                bar.add(len(chunk))
        reporter.clear()
        if is_empty:
            report_no_input(values.get("file"))
        if writer:
            echo(f"wrote {format_count(writer.count, 'row')} to {out}", err=True)


def report_no_input(file: Path | None = None) -> None:
    """Print that a file, or standard input, has no texts."""
    echo(f"{file} has no texts" if file else "there is no input: standard input is empty", err=True)


def predict_chunk(
    predict: Callable[[list["Input"]], Iterator[dict[str, Any]]],
    chunk: list["Input"],
    on_bad_row: "BadRowPolicy",
) -> list[tuple["Input", dict[str, Any]]]:
    """Return the inputs with their results; report rows of a file without a result as bad rows."""
    from glassformer.core.errors import GlassError

    try:
        return list(zip(chunk, predict(chunk), strict=True))
    except GlassError as error:
        if not chunk[0].location:
            raise
        if len(chunk) == 1:
            on_bad_row(chunk[0].location, str(error), " ".join(chunk[0].texts))
            return []
    return [pair for item in chunk for pair in predict_chunk(predict, [item], on_bad_row)]


def open_inputs(
    stack: contextlib.ExitStack,
    on_bad_row: "BadRowPolicy",
    *,
    texts: tuple[str, ...],
    file: Path | None,
    text: tuple[str, ...],
    trained: tuple[str, ...],
    count: bool,
    **format: Any,
) -> tuple[Iterator["Input"], int]:
    """Return the inputs, from arguments, a file or standard input; with `count`, also their number.

    Temporary files are deleted when `stack` is closed.
    """
    from glassformer.data.files import IgnoreBadRows, save_streams
    from glassformer.data.format import FileFormat
    from glassformer.data.images import is_image_file
    from glassformer.data.inputs import read_inputs, to_inputs
    from glassformer.data.tables import describe_formats

    names = text or trained
    if file is None:
        for name in texts:
            # Path.is_file fails for texts that are too long to be a name
            if os.path.isfile(name) and not is_image_file(Path(name)):  # noqa: PTH113
                echo(f"{name} is treated as text; to read the file: --file {name}", err=True)
        lines = list(texts) or [line.rstrip("\n") for line in sys.stdin]
        values = make_pairs(list(texts), lines) if len(names) > 1 else lines
        return iter(to_inputs(values, names)), len(values) if count else 0
    if texts:
        raise click.UsageError("give TEXTS or --file, not both")
    file_format = FileFormat(columns=names, **format)
    scratch = Path(stack.enter_context(TemporaryDirectory()))
    (path,) = save_streams((file,), scratch)
    for line in describe_formats((path,), file_format):
        echo(line, err=True)
    report = partial(echo, err=True)
    inputs = read_inputs(path, on_bad_row, file_format, text, trained, report)
    if not count:
        return inputs, 0
    return inputs, sum(1 for _ in read_inputs(path, IgnoreBadRows(), file_format, text, trained))


def report_skipped(on_bad_row: "BadRowPolicy") -> None:
    from glassformer.core.reporter import format_count
    from glassformer.data.files import CountBadRows

    if isinstance(on_bad_row, CountBadRows) and on_bad_row.count:
        rows = format_count(on_bad_row.count, "bad row")
        echo(f"left out {rows}; the first: {on_bad_row.first[0]}", err=True)


def make_pairs(arguments: list[str], texts: list[str]) -> list[tuple[str, ...]]:
    """Group the texts into pairs if they are arguments; else split each line at its tab."""
    if arguments:
        return [tuple(texts[i : i + 2]) for i in range(0, len(texts), 2)]
    return [tuple(line.split("\t")) for line in texts]
