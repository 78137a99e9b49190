"""`glass train`: learn a task from data, in a run folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from glassformer.cli.columns import columns


@click.command()
@click.argument("task", required=False)
@click.argument("data", nargs=-1, type=click.Path())
@click.option("--config", type=click.Path(exists=True), help="A recipe: task, data, model, train.")
@click.option("--run", type=click.Path(), help="The run folder.  [default: runs/TASK-1, -2, ...]")
@click.option("--model", help="The architecture; every task has a good default.")
@click.option("--minutes", type=float, help="Budget in time (5 unless another budget is given).")
@click.option("--steps", type=int, help="Budget in steps.")
@click.option("--epochs", type=float, help="Budget in passes over the data.")
@columns
@click.option("--group", help="A column whose equal values stay on one side of the split.")
@click.option("--source", type=click.Path(exists=True), help="Lines to translate from.")
@click.option("--target", type=click.Path(exists=True), help="Lines to translate into.")
@click.option("--tokenizer", help="characters, bytes, words, bpe or wordpiece.")
@click.option("--vocab", type=int, help="How many kinds of token.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of split, weights, batches.")
@click.option("--threads", type=int, help="CPU threads.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, mps.")
@click.option("--save-every", type=int, metavar="STEPS", help="Save so often.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting.")
@click.option("--skip-bad", is_flag=True, help="Note bad rows in skipped.jsonl and go on.")
@click.option("--overwrite", is_flag=True, help="Replace the run folder if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result for a program to read.")
def train(task: str | None, data: tuple[str, ...], run: str | None, **options: Any) -> None:
    """Train a model for TASK on DATA; without DATA, on a sample that needs no download.

    TASK is generate, classify, translate or fill-mask. A recipe (--config) says it itself.

    \b
    glass train generate book.txt --minutes 10
    glass train classify reviews.csv --text review --label sentiment
    glass train translate --source a.de --target a.en
    glass train fill-mask corpus.txt --set model.depth=6
    glass train --config recipes/shakespeare.toml input.txt
    glass train generate
    """
    from glassformer.data.files import Bad
    from glassformer.errors import GlassError
    from glassformer.tasks.task import Given
    from glassformer.train.recipe import read_recipe
    from glassformer.train.run import next_run
    from glassformer.train.start import train as start

    given, settings = Given(), list(options["settings"])
    if options["config"]:
        data = (task, *data) if task else data
        task, given, model, recipe = read_recipe(Path(options["config"]))
        options["model"] = options["model"] or model
        settings = recipe + settings
    if task is None:
        raise click.UsageError("TASK is missing: generate, classify, translate or fill-mask")
    files = [Path(name) for name in data]
    if options["source"] or options["target"]:
        if not (options["source"] and options["target"]) or files:
            raise click.UsageError("--source and --target go together, without DATA")
        files = [Path(options["source"]), Path(options["target"])]
    for file in files:
        if str(file) != "-" and not file.exists():
            raise GlassError(f"there is no file {file}")
    names = ("text", "label", "group", "separator", "tokenizer", "vocab")
    said = {name: options[name] for name in names if options[name]}
    bad = Bad(Path("skipped.jsonl") if options["skip_bad"] else None)
    given = replace(given, files=tuple(files), seed=options["seed"], bad=bad, **said)
    budget = ("minutes", "steps", "epochs", "threads", "device", "save_every")
    training = {name: options[name] for name in budget if options[name] is not None}
    result = start(
        task,
        given,
        Path(run) if run else next_run(Path("runs"), task),
        model=options["model"],
        training=training,
        settings=settings,
        overwrite=options["overwrite"],
        tell=lambda line: click.echo(line, err=True),
    )
    if options["as_json"]:
        click.echo(json.dumps(result))
    else:
        click.echo(result["run"])
