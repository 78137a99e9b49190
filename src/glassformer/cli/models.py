"""Commands that manage models: check, average, convert, models."""

import json
import sys
from dataclasses import fields
from itertools import starmap
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import LocalizedFormatter, echo
from glassformer.export import EXPORTERS


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def check(folder: Path) -> None:
    """Verify that the files of the run or model in FOLDER are intact.

    Compares sizes and checksums, and prints a line for each corrupted file. The exit code is 1 if
    there are any.

    \b
    glass check runs/generate-1
    """
    from glassformer.training.run import find_damage

    errors = find_damage(folder)
    for error in errors:
        echo(error)
    if errors:
        sys.exit(1)
    echo(f"{folder} is intact")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=options.RunPath(path_type=Path))
@options.out(help="Folder to write.", required=True)
@options.overwrite(help="Replace the folder if it exists.")
def average(runs: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Average the weights of RUNS into a new model.

    Uses the final weights of each run. The runs must have started from the same weights (the same
    --seed or the same --from), or the average is useless.

    \b
    glass average runs/translate-1 runs/translate-2 --out averaged
    """
    from glassformer.checkpoint import average as average_runs

    average_runs(runs, out, overwrite=overwrite)
    click.echo(out)


@click.command()
@click.argument("source", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@click.option(
    "--to",
    "format",
    type=click.Choice([*EXPORTERS]),
    default="glassformer",
    show_default=True,
    help="Format to write.",
)
@click.option(
    "--tokenizer", type=click.Path(exists=True), help="Tokenizer file for a llama2.c model."
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="NAME",
    help="Setting or tensor in a Hugging Face folder to skip; can be repeated.",
)
@click.option(
    "--strip-prior",
    is_flag=True,
    help="Leave out the prior, which contains n-grams of the training text, or a "
    "word-translation table.",
)
@options.overwrite(help="Replace TARGET if it exists.")
def convert(
    source: str, target: str, format: str, strip_prior: bool, overwrite: bool, **values: Any
) -> None:
    """Convert the model in SOURCE to another format and write it to the folder TARGET.

    SOURCE is a run or model folder, a Hugging Face folder (GPT-2, BERT, Llama) or a llama2.c file.

    \b
    glass convert downloads/gpt2 models/gpt2
    glass convert models/gpt2 for-transformers --to huggingface
    glass convert runs/classify-1 for-onnxruntime --to onnx --strip-prior
    glass convert stories260K.bin models/stories --tokenizer tok512.bin
    glass convert runs/generate-1 to-publish --strip-prior
    """
    from glassformer.api import load

    model = load(source, **values)
    if strip_prior:
        model.strip_prior()
        echo(
            "removed the prior: expect a much higher loss; for a network that works without it, "
            "train with --no-prior",
            err=True,
        )
    model.save(target, format=format, overwrite=overwrite)
    click.echo(repr(model))
    echo(f"wrote {target}")


@click.command()
@click.argument("task", required=False)
@options.data_files
@click.option(
    "--minutes", type=float, help="Time budget to choose the sizes for, in minutes.  [default: 5]"
)
@options.columns
@click.option("--training", is_flag=True, help="List the training settings instead.")
@options.json()
def models(
    task: str | None, data: tuple[str, ...], training: bool, as_json: bool, **values: Any
) -> None:
    """List the models with their sizes and the settings that training would use.

    The settings of a model are those that `glass train TASK DATA` would use with this time budget.
    The train.* settings are those with a default of their own for the task or the model. Without
    DATA, the data is the built-in sample; without TASK, all models are listed. To change a setting:
    `glass train --set model.dim=64`. The number of parameters is without a prior, the memory
    without activations.

    \b
    glass models
    glass models classify reviews.csv --label sentiment --minutes 20
    glass models generate --json
    glass models --training
    """
    from glassformer.core.config import to_dict
    from glassformer.core.reporter import NullReporter, Reporter
    from glassformer.registry import MODELS, describe_model
    from glassformer.tasks import TASKS
    from glassformer.training.defaults import find_defaults
    from glassformer.training.setup import format_budget

    if training:
        if task:
            raise click.UsageError("--training lists the settings of all tasks: leave out TASK")
        print_training_settings(as_json)
        return
    arguments = options.drop_unset(values)
    reporter = Reporter() if data else NullReporter()
    source = " ".join(data) or "built-in sample"
    for name in [task] if task else TASKS:
        defaults = find_defaults(name, *data, reporter=reporter, **arguments)
        budget = format_budget(defaults[0].training)
        title = f"Models for {name} ({budget}, {source})"
        print_models(title, [d.row() for d in defaults], as_json)
    if task is None:
        others = MODELS.keys() - {name for spec in TASKS.values() for name in spec.models}
        rows = [
            {"model": name, "tasks": [], "description": describe_model(name),
             "settings": to_dict(MODELS[name].Config())}
            for name in sorted(others)
        ]  # fmt: skip
        print_models("Models without a task", rows, as_json)


def print_models(title: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print rows with the settings of a model: as JSON, or as a section of text."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    formatter = LocalizedFormatter()
    with formatter.section(title):
        for row in rows:
            name = row["model"]
            formatter.write_text(f"{name} (default)" if row.get("default") else name)
            with formatter.indentation():
                formatter.write_text(row["description"])
                if "parameters" in row:
                    formatter.write_text(format_size(row["parameters"], row["memory"]))
                tables = {"model.": row["settings"], "train.": row.get("train")}
                formatter.write_dl(
                    [
                        (prefix, " ".join(starmap(format_setting, table.items())))
                        for prefix, table in tables.items()
                        if table
                    ]
                )
            formatter.write_paragraph()
    click.echo(formatter.getvalue().removesuffix("\n"))


def print_training_settings(as_json: bool) -> None:
    """Print each training setting with its default and its description."""
    from glassformer.core.config import to_dict
    from glassformer.training.settings import TrainingSettings

    defaults = to_dict(TrainingSettings())
    formatter = LocalizedFormatter()
    if as_json:
        click.echo(json.dumps(defaults))
        return
    formatter.write_dl(
        [
            ("train." + format_setting(f.name, defaults.get(f.name, "")), f.metadata["description"])
            for f in fields(TrainingSettings)
        ]
    )
    click.echo(formatter.getvalue(), nl=False)


def format_setting(name: str, value: Any) -> str:
    """Return a setting as it is written after --set."""
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def format_size(parameters: int, gigabytes: float) -> str:
    if not parameters:
        return "fitted directly, without training steps"
    memory = f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{1000 * gigabytes:.0f} MB"
    return f"{parameters:,} parameters, {memory} for weights, gradients and optimizer"
