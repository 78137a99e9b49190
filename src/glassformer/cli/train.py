"""Commands that train: train, resume, compare."""

import contextlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import GroupedOptions, echo, pad

HEADINGS = {  # of the help of `train`
    "Data": "--text --label --encoding --separator --header --source --target --valid --group "
    "--multi-label --class-weights --image-size --scale --skip-bad",
    "Tokenizer": "--tokenizer --vocab --source-tokenizer --source-vocab --extend",
    "Model": "--model --from --lora --freeze --no-prior --no-baseline",
    "Budget": "--minutes --steps --epochs",
    "Run": "",
}


@click.command(cls=GroupedOptions, headings=HEADINGS)
@click.argument("task", required=False)
@click.argument("data", nargs=-1, type=click.Path())
@click.option(
    "--config",
    type=click.Path(exists=True),
    help="TOML recipe with the task and its data, model and train settings.",
)
@options.run_folder(help="Run folder to create.  [default: runs/TASK-1, runs/TASK-2, ...]")
@click.option(
    "--model", help="Architecture to train (see `glass models`).  [default: depends on TASK]"
)
@click.option(
    "--from",
    "base",
    type=click.Path(exists=True),
    help="Fine-tune this model instead of training from scratch.",
)
@click.option(
    "--lora",
    type=int,
    metavar="RANK",
    help="Train LoRA adapters of this rank instead of all weights of the base model (--from).",
)
@click.option(
    "--freeze",
    multiple=True,
    metavar="PATTERN",
    help="Freeze weights whose names match this pattern; can be repeated.",
)
@click.option(
    "--extend",
    is_flag=True,
    help="Add tokens that occur in DATA but not in the base model's tokenizer (with --from).",
)
@options.budget("training")
@options.columns
@options.valid(
    help="Validation data; can be repeated.  [default: about a tenth of DATA]", type=click.Path()
)
@options.group
@click.option(
    "--multi-label",
    is_flag=True,
    help="A text can have several labels, with | between them.",
)
@click.option(
    "--class-weights",
    is_flag=True,
    help="Give rare labels as much weight in the loss as frequent ones.",
)
@options.image_size
@click.option(
    "--scale",
    nargs=2,
    type=float,
    metavar="LOW HIGH",
    help="Lowest and highest rating (recommend).  [default: lowest and highest in DATA]",
)
@options.source_and_target
@options.tokenizer
@options.source_tokenizer
@options.machine
@click.option(
    "--save-every",
    type=int,
    metavar="STEPS",
    help="Save a checkpoint every STEPS steps.  [default: after each tenth of the budget]",
)
@options.settings(help="Set any model.* or train.* setting; can be repeated.")
@click.option(
    "--shrink-on-oom", is_flag=True, help="Split batches into micro-batches when out of memory."
)
@options.skip_bad(
    help="Skip rows that cannot be read and log them in skipped.jsonl instead of stopping."
)
@options.overwrite(help="Replace the run folder if it exists.")
@click.option(
    "--no-baseline", is_flag=True, help="Do not fit a baseline (such as n-grams) before training."
)
@click.option(
    "--no-prior",
    is_flag=True,
    help="Train the network alone, without a prior (generate, classify, translate).",
)
@options.json(help="Print the result as one JSON object.")
def train(task: str | None, data: tuple[str, ...], as_json: bool, **values: Any) -> None:
    """Train a model for TASK on DATA.

    TASK is generate, classify, translate, fill-mask, summarize, recommend or paint; it can be
    omitted if the recipe (--config) names it. Without DATA, a built-in sample is used. About a
    tenth of DATA is held out for validation, unless --valid is given. If the file has no header,
    columns are named 1, 2, ...

    Translate: of two --text columns, the first is the source, the second the target.

    Recommend: two --text columns are the user and the item, --label is the rating. Item titles
    are read from an additional table with the columns item and title.

    Image data, for classify and paint: a folder with one subfolder per class, or MNIST or CIFAR-10
    files.

    `glass models` lists the model.* settings for --set, `glass models --training` the train.*
    settings.

    \b
    glass train generate book.txt --minutes 10
    glass train classify reviews.csv --text review --label sentiment
    glass train translate --source a.de --target a.en
    glass train translate pairs.tsv --source-tokenizer characters --tokenizer words
    glass train fill-mask corpus.txt --set model.depth=6
    glass train classify photos/ --image-size 64
    glass train paint drawings/ --minutes 30
    glass train summarize emails.jsonl --minutes 30
    glass train --config recipes/shakespeare.toml input.txt
    glass train classify reviews.csv --from runs/fill-mask-1 --lora 8
    glass train recommend ratings.csv movies.csv
    glass train generate
    """
    from glassformer.training.train import train as train_model

    source = values.pop("source")
    target = values.pop("target")
    if source or target:
        if not (source and target) or data:
            raise click.UsageError("give both --source and --target, and no DATA")
        data = (source, target)
    if task is None and not values["config"]:
        raise click.UsageError(
            "missing TASK: generate, classify, translate, fill-mask, summarize, recommend or paint"
        )
    arguments = options.drop_unset(values)
    if arguments.pop("no_baseline", False):
        arguments["baseline"] = False
    if arguments.pop("no_prior", False):
        arguments["prior"] = False
    start_time = click.get_current_context().obj  # None if not started by `main`
    print_result(train_model(task, *data, start_time=start_time, **arguments), as_json)


@click.command()
@click.argument("run", type=options.RunPath(file_okay=False))
@click.option(
    "--steps",
    type=click.IntRange(1),
    help="Train up to this step in total.  [default: the run's budget]",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, 10**6, min_open=True),
    help="Train for this many more minutes.  [default: the run's budget]",
)
@options.json(help="Print the result as one JSON object.")
def resume(run: str, steps: int | None, minutes: float | None, as_json: bool) -> None:
    """Resume the training run in the folder RUN.

    A run that was stopped or killed continues from its last checkpoint. With a new budget, a
    finished run is trained further.

    \b
    glass resume runs/generate-1
    glass resume runs/generate-1 --minutes 10
    """
    if steps and minutes:
        raise click.UsageError("give --steps or --minutes, not both")
    from glassformer.training.resume import resume as resume_run

    print_result(resume_run(Path(run), steps=steps, minutes=minutes), as_json)


@click.command()
@click.argument("task")
@options.data_files
@click.option(
    "--models",
    required=True,
    help="Models to train, separated by commas, each as NAME or NAME:SETTING=VALUE.",
)
@options.run_folder(
    help="Folder to create.  [default: runs/compare-1, runs/compare-2, ...]",
    type=click.Path(path_type=Path),
)
@options.budget("the training of each model")
@click.option(
    "--seeds",
    type=click.IntRange(2),
    metavar="N",
    help="Train each model with the seeds 0 to N-1, and show mean ± standard deviation.",
)
@click.option(
    "--params",
    "parameters",
    type=int,
    help="Choose the dim of each model so that it has about this many parameters.",
)
@options.columns
@options.valid(help="Validation data; can be repeated.  [default: about a tenth of DATA]")
@options.skip_bad(help="Skip rows that cannot be read instead of stopping.")
@options.tokenizer
@options.source_tokenizer
@options.machine
@options.settings(help="Set any model.* or train.* setting for all models; can be repeated.")
@options.json()
def compare(
    task: str, data: tuple[str, ...], models: str, run: Path | None, as_json: bool, **values: Any
) -> None:
    """Train several models for TASK on DATA with the same budget and compare them.

    Prints a table of their metrics, sizes and speeds, and writes it, with a plot, to the run
    folder. Run the same command again to continue a comparison that was stopped. With --seeds, the
    budget is for each seed; on a table without --valid, each seed has its own validation split.

    \b
    glass compare generate book.txt --models markov,recurrent,gpt2 --minutes 3
    glass compare generate book.txt --models decoder:position=rotary,decoder:position=alibi
    glass compare classify reviews.csv --models nb_svm,classifier --params 1000000
    glass compare generate book.txt --models gpt2,llama --minutes 2 --seeds 3
    """
    from glassformer.core.reporter import Reporter
    from glassformer.tasks import find_task
    from glassformer.training.compare import compare as compare_models
    from glassformer.training.compare_report import format_table

    names = [name.strip() for name in models.split(",") if name.strip()]
    run, rows = compare_models(
        task, *data, models=names, run=run, reporter=Reporter(), **options.drop_unset(values)
    )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        spec = find_task(task, [*map(Path, data)], names[0].partition(":")[0])
        print_table(format_table(spec, rows))
        echo(f"report: {run / 'README.md'}")


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of training, and exit with code 130 if training was interrupted.

    A closed standard output is not an error, because the run folder also has the result.
    """
    with contextlib.suppress(OSError):
        click.echo(json.dumps(result) if as_json else result["run"])
    if "seconds" not in result:
        sys.exit(130)


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print a table with its first column left-aligned and the others right-aligned."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        aligned = map(partial(pad, align_right=True), cells, widths[1:])
        click.echo("  ".join((pad(name, widths[0]), *aligned)))
