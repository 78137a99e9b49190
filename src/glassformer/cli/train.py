"""Commands that train: train, resume, compare."""

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options


@click.command()
@click.argument("task", required=False)
@click.argument("data", nargs=-1, type=click.Path())
@click.option("--config", type=click.Path(exists=True), help="A recipe: task, data, model, train.")
@options.run_folder(help="The run folder.  [default: runs/TASK-1, -2, ...]")
@click.option("--model", help="The architecture; every task has a good default.")
@click.option("--from", "base", type=click.Path(exists=True), help="A model to start from.")
@click.option("--lora", type=int, metavar="RANK", help="Train a small adapter beside --from.")
@click.option("--freeze", multiple=True, metavar="PATTERN", help="Weights that stay as they are.")
@click.option("--extend", is_flag=True, help="Add unknown tokens to the tokenizer of --from.")
@options.budget("Budget", "5 unless another budget is given")
@options.columns
@options.valid(help="Data to validate on; twice for two files.", type=click.Path())
@options.group
@options.source_and_target
@options.tokenizer
@options.machine
@click.option("--save-every", type=int, metavar="STEPS", help="Save so often.")
@options.settings(help="Any other setting, as said above.")
@click.option("--shrink-on-oom", is_flag=True, help="If memory runs out, cut batches into pieces.")
@click.option("--skip-bad", is_flag=True, help="Note bad rows in skipped.jsonl and go on.")
@options.overwrite(help="Replace the run folder if it exists.")
@click.option("--no-baseline", is_flag=True, help="Do not see first what counting alone reaches.")
@options.json(help="Print the result for a program to read.")
def train(task: str | None, data: tuple[str, ...], as_json: bool, **values: Any) -> None:
    """Train a model for TASK on DATA; without DATA, on a sample that needs no download.

    TASK is generate, classify, translate or fill-mask. A recipe (--config) says it itself. A tenth
    of DATA is kept to validate on, unless --valid names other data for it. Columns without names
    are called 1, 2, ...; of two --text, the first is translated into the second. --set takes any
    model.SETTING (`glass models` lists them) and any train.SETTING (`glass models --training`).

    \b
    glass train generate book.txt --minutes 10
    glass train classify reviews.csv --text review --label sentiment
    glass train translate --source a.de --target a.en
    glass train fill-mask corpus.txt --set model.depth=6
    glass train --config recipes/shakespeare.toml input.txt
    glass train classify reviews.csv --from runs/fill-mask-1 --lora 8
    glass train generate
    """
    from glassformer.training.train import train as start

    source, target = values.pop("source"), values.pop("target")
    if source or target:
        if not (source and target) or data:
            raise click.UsageError("--source and --target go together, without DATA")
        data = (source, target)
    if task is None and not values["config"]:
        raise click.UsageError("TASK is missing: generate, classify, translate or fill-mask")
    chosen = drop_unset(values)
    if chosen.pop("no_baseline", False):
        chosen["baseline"] = False
    start_time = click.get_current_context().obj  # nothing where it is not the command that runs
    print_result(start(task, *data, start_time=start_time, **chosen), as_json)


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False))
@click.option("--steps", type=click.IntRange(1), help="Go on to this step.")
@click.option(
    "--minutes", type=click.FloatRange(0, 10**6, min_open=True), help="Go on for so long."
)
@options.json(help="Print the result for a program to read.")
def resume(run: str, steps: int | None, minutes: float | None, as_json: bool) -> None:
    """Go on with the training in the folder RUN; with a new budget also beyond its end.

    \b
    glass resume runs/generate-1
    glass resume runs/generate-1 --minutes 10
    """
    if steps and minutes:
        raise click.UsageError("give --steps or --minutes, not both")
    from glassformer.training.train import resume as go_on

    print_result(go_on(Path(run), steps=steps, minutes=minutes), as_json)


@click.command()
@click.argument("task")
@options.data_files
@click.option("--models", required=True, help="Names with commas between; NAME:SETTING=VALUE too.")
@options.run_folder(
    help="The folder.  [default: runs/compare-1, ...]", type=click.Path(path_type=Path)
)
@options.budget("Budget of each", "5 unless another is given")
@click.option("--params", "parameters", type=int, help="Make each about as large, by its width.")
@options.columns
@options.valid(help="Data to validate on.")
@options.tokenizer
@options.machine
@options.settings(help="As for `glass train`.")
@options.json()
def compare(
    task: str, data: tuple[str, ...], models: str, run: Path | None, as_json: bool, **values: Any
) -> None:
    """Train several models for TASK on DATA under an equal budget; show which is best at what cost.

    Writes a table and a picture into the folder. The same command goes on where it was stopped.

    \b
    glass compare generate book.txt --models markov,recurrent,gpt2 --minutes 3
    glass compare generate book.txt --models decoder:position=rotary,decoder:position=alibi
    glass compare classify reviews.csv --models nb_svm,classifier --params 1000000
    """
    from glassformer.core.reporter import Reporter
    from glassformer.tasks import TASKS
    from glassformer.training.compare import compare as run_all
    from glassformer.training.compare import table
    from glassformer.training.settings import MINUTES

    names = [name.strip() for name in models.split(",") if name.strip()]
    if not any(values[budget] for budget in ("minutes", "steps", "epochs")):
        values["minutes"] = MINUTES
    run, rows = run_all(
        task, *data, models=names, run=run, reporter=Reporter(), **drop_unset(values)
    )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        print_table(table(TASKS[task], rows))
        click.echo(f"report: {run / 'README.md'}")


def drop_unset(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != ()
    }


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of training; the exit code is 130 if training was stopped.

    The result is in the run folder too, so a closed standard output is not an error.
    """
    with contextlib.suppress(OSError):
        click.echo(json.dumps(result) if as_json else result["run"])
    if "seconds" not in result:
        sys.exit(130)


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print columns: names aligned on the left, cells on the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        click.echo("  ".join((f"{name:<{widths[0]}}", *aligned)))
