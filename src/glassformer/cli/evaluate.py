"""`glass evaluate`: measure a trained model on data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from glassformer.cli.columns import columns


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("data", nargs=-1, type=click.Path(exists=True))
@columns
@click.option("--context", type=int, help="Tokens of a running text to read at once.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw which label is taken for which."
)
@click.option("--json", "as_json", is_flag=True, help="One object.")
def evaluate(run: str, data: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Measure the model in RUN on DATA, or on what its run kept for validation.

    \b
    glass evaluate runs/generate-1
    glass evaluate runs/classify-1 test.csv --plot confusion.png
    glass evaluate runs/classify-1 test.csv --json
    glass evaluate runs/generate-1 --context 256
    """
    from glassformer.core.reporter import shown
    from glassformer.training.measure import measure

    if options["plot"] and options["plot"].suffix not in (".png", ".svg", ".pdf"):
        raise click.UsageError("--plot draws a .png, .svg or .pdf")

    figures = measure(
        Path(run),
        tuple(map(Path, data)),
        **options,
    )
    if as_json:
        click.echo(json.dumps(figures))
        return
    beside = figures.pop("baseline", {})
    for name, value in figures.items():
        other = beside.get(name, "") if name not in ("task", "tokens", "bytes", "examples") else ""
        click.echo(f"{name:<16} {shown(value):<14} {shown(other)}".rstrip())
