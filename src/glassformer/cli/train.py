"""`glass train`: learn a task from data, in a run folder."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import click

from glassformer.cli.columns import columns


@click.command()
@click.argument("task", required=False)
@click.argument("data", nargs=-1, type=click.Path())
@click.option("--config", type=click.Path(exists=True), help="A recipe: task, data, model, train.")
@click.option("--run", type=click.Path(), help="The run folder.  [default: runs/TASK-1, -2, ...]")
@click.option("--model", help="The architecture; every task has a good default.")
@click.option("--from", "base", type=click.Path(exists=True), help="A model to start from.")
@click.option("--lora", type=int, metavar="RANK", help="Train a small adapter beside --from.")
@click.option("--freeze", multiple=True, metavar="PATTERN", help="Weights that stay as they are.")
@click.option("--extend", is_flag=True, help="Add unknown tokens to the tokenizer of --from.")
@click.option("--minutes", type=float, help="Budget in time (5 unless another budget is given).")
@click.option("--steps", type=int, help="Budget in steps.")
@click.option("--epochs", type=float, help="Budget in passes over the data.")
@columns
@click.option(
    "--valid", multiple=True, type=click.Path(), help="Data to validate on; twice for two files."
)
@click.option("--group", help="A column whose equal values stay on one side of the split.")
@click.option("--source", type=click.Path(exists=True), help="Lines to translate from.")
@click.option("--target", type=click.Path(exists=True), help="Lines to translate into.")
@click.option("--tokenizer", help="characters, bytes, words, bpe or wordpiece.")
@click.option("--vocab", type=int, help="How many kinds of token.")
@click.option("--seed", type=int, help="Of split, weights, batches.  [default: 0]")
@click.option("--threads", type=int, help="CPU threads.")
@click.option("--device", help="cpu, cuda, mps.  [default: the best there is]")
@click.option("--save-every", type=int, metavar="STEPS", help="Save so often.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other setting, as said above.",
)
@click.option("--fit", is_flag=True, help="If memory runs out, cut batches into pieces.")
@click.option("--skip-bad", is_flag=True, help="Note bad rows in skipped.jsonl and go on.")
@click.option("--overwrite", is_flag=True, help="Replace the run folder if it exists.")
@click.option("--no-baseline", is_flag=True, help="Do not see first what counting alone reaches.")
@click.option("--json", "as_json", is_flag=True, help="Print the result for a program to read.")
def train(task: str | None, data: tuple[str, ...], **options: Any) -> None:
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
    from glassformer.training.start import train as start

    source, target, as_json = (options.pop(name) for name in ("source", "target", "as_json"))
    if source or target:
        if not (source and target) or data:
            raise click.UsageError("--source and --target go together, without DATA")
        data = (source, target)
    if task is None and not options["config"]:
        raise click.UsageError("TASK is missing: generate, classify, translate or fill-mask")
    counts = not options.pop("no_baseline")
    asked: dict[str, Any] = {
        n: v for n, v in options.items() if v is not None and v is not False and v != ()
    }
    if not counts:
        asked["baseline"] = False
    print_result(start(task, *data, **asked), as_json)


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print what came of training; it is in the run folder, so that nobody needs to read it here.

    The exit code is 130 if training was stopped.
    """
    with contextlib.suppress(OSError):
        click.echo(json.dumps(result) if as_json else result["run"])
    if "seconds" not in result:
        sys.exit(130)
