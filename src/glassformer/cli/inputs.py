"""Texts for a command: its arguments, a file, or the lines of standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from glassformer.cli.columns import F


def inputs(command: F) -> F:
    """Add TEXTS, --file and --text."""
    for option in (
        click.option("--text", multiple=True, help="A column of the file; twice for pairs."),
        click.option("--file", type=click.Path(exists=True, path_type=Path), help="Read this."),
        click.argument("texts", nargs=-1),
    ):
        command = option(command)
    return command


def given_texts(texts: tuple[str, ...], file: Path | None, text: tuple[str, ...] = ()) -> list[Any]:
    """What to work on: texts, or pairs of texts where two columns are named."""
    from glassformer.data.files import kept_input

    if file is None:
        for name in texts:
            if len(name) < 200 and Path(name).is_file():
                click.echo(f"{name} is taken as a text; --file {name} reads the file", err=True)
        return list(texts) or [line.rstrip("\n") for line in sys.stdin]
    if texts:
        raise click.UsageError("give texts or --file, not both")
    with TemporaryDirectory() as scratch:
        (file,) = kept_input((file,), Path(scratch), table=False)
        return texts_of(file, text)


def texts_of(file: Path, text: tuple[str, ...]) -> list[Any]:
    """The lines of a file, or what stands in columns of a table."""
    from glassformer.data.corpus import guess_column
    from glassformer.data.files import TABLES, Bad, kind_of, lines, rows
    from glassformer.core.errors import GlassError

    if kind_of(file) not in TABLES:
        return [line.rstrip("\n") for _, line in lines(file, Bad())]
    columns = text or (guess_column([file]) or "",)
    found: list[Any] = []
    for row in rows(file, Bad()):
        missing = [name for name in columns if name not in row.values]
        if missing:
            raise GlassError(f"{row.place}: there is no {missing[0]!r}; have {list(row.values)}")
        values = tuple(row.values[name] for name in columns)
        found.append(values if len(values) > 1 else values[0])
    return found


def free(*files: Path | None, overwrite: bool = False) -> None:
    """Refuse to write over files that are there, or into no folder, before any work is done."""
    for file in files:
        if file is not None and file.exists() and not overwrite:
            raise click.UsageError(f"{file} exists already: name another, or --overwrite")
        if file is not None and not file.absolute().parent.is_dir():
            raise click.UsageError(f"there is no folder {file.parent}: make it first")
