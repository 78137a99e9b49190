"""`glass compare`: several models, one task, an equal budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from glassformer.cli.columns import columns


@click.command()
@click.argument("task")
@click.argument("data", nargs=-1, type=click.Path(exists=True))
@click.option("--models", required=True, help="Names with commas between; NAME:SETTING=VALUE too.")
@click.option(
    "--run", type=click.Path(path_type=Path), help="The folder.  [default: runs/compare-1, ...]"
)
@click.option("--minutes", type=float, help="Budget of each in time (5 unless another is given).")
@click.option("--steps", type=int, help="Budget of each in steps.")
@click.option("--epochs", type=float, help="Budget of each in passes over the data.")
@click.option("--params", type=int, help="Make each about as large, by its width.")
@columns
@click.option("--valid", multiple=True, type=click.Path(exists=True), help="Data to validate on.")
@click.option("--tokenizer", help="characters, bytes, words, bpe or wordpiece.")
@click.option("--vocab", type=int, help="How many kinds of token.")
@click.option("--seed", type=int, help="Of split, weights, batches.  [default: 0]")
@click.option("--threads", type=int, help="CPU threads.")
@click.option("--device", help="cpu, cuda, mps.  [default: the best there is]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `glass train`.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def compare(task: str, data: tuple[str, ...], **options: Any) -> None:
    """Train several models for TASK on DATA under an equal budget; show which is best at what cost.

    Writes a table and a picture into the folder. The same command goes on where it was stopped.

    \b
    glass compare generate book.txt --models markov,recurrent,gpt2 --minutes 3
    glass compare generate book.txt --models decoder:position=rotary,decoder:position=alibi
    glass compare classify reviews.csv --models bag,classifier --params 1000000
    """
    from glassformer.core.reporter import Reporter
    from glassformer.tasks import TASKS
    from glassformer.training.compare import compare as run_all
    from glassformer.training.compare import table
    from glassformer.training.settings import MINUTES

    names = [name.strip() for name in options.pop("models").split(",") if name.strip()]
    as_json, run = options.pop("as_json"), options.pop("run")
    options["parameters"] = options.pop("params")
    if not any(options[budget] for budget in ("minutes", "steps", "epochs")):
        options["minutes"] = MINUTES
    asked = {
        n: list(v) if isinstance(v, tuple) else v for n, v in options.items() if v not in (None, ())
    }
    run, rows = run_all(task, *data, models=names, run=run, tell=Reporter(), **asked)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    lines = table(TASKS[task], rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        said = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        click.echo("  ".join((f"{name:<{widths[0]}}", *said)))
    click.echo(f"report: {run / 'README.md'}")
