"""Options and arguments that several commands share, each declared once.

A command adds one as a decorator, with its own `help` where the wording differs:
`@options.json(help="One object.")`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def combine(*parameters: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator that adds several parameters; help lists them in this order."""

    def add(command: F) -> F:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return add


def set_language(_context: click.Context, _option: click.Parameter, name: str) -> None:
    from glassformer.core.i18n import language

    language.set(name)


def parse_separator(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> str | None:
    return "\t" if value == "tab" else value


# What a command reads
trained_run = click.argument("run", type=click.Path(exists=True))
data_files = click.argument("data", nargs=-1, type=click.Path(exists=True))
texts = combine(
    click.argument("texts", nargs=-1),
    click.option("--file", type=click.Path(exists=True, path_type=Path), help="Read this."),
    click.option("--text", multiple=True, help="A column of the file; twice for pairs."),
)
columns = combine(
    click.option("--text", multiple=True, help="A column with text; twice for pairs."),
    click.option("--label", help="The column with the label."),
    click.option("--separator", callback=parse_separator, help="Between columns: , or ; or tab."),
)
source_and_target = combine(
    click.option("--source", type=click.Path(exists=True), help="Lines to translate from."),
    click.option("--target", type=click.Path(exists=True), help="Lines to translate into."),
)
valid = partial(click.option, "--valid", multiple=True, type=click.Path(exists=True))
group = click.option("--group", help="A column whose equal values stay on one side of the split.")

# How it trains
tokenizer = combine(
    click.option("--tokenizer", help="characters, bytes, words, bpe or wordpiece."),
    click.option("--vocab", type=int, help="How many kinds of token."),
)
machine = combine(
    click.option("--seed", type=int, help="Of split, weights, batches.  [default: 0]"),
    click.option("--threads", type=int, help="CPU threads."),
    click.option("--device", help="cpu, cuda, mps.  [default: the best there is]"),
)
settings = partial(click.option, "--set", "settings", multiple=True, metavar="KEY=VALUE")


def budget(name: str, default: str) -> Callable[[F], F]:
    """Add --minutes, --steps and --epochs; `default` says when there are 5 minutes."""
    return combine(
        click.option("--minutes", type=float, help=f"{name} in time ({default})."),
        click.option("--steps", type=int, help=f"{name} in steps."),
        click.option("--epochs", type=float, help=f"{name} in passes over the data."),
    )


# What it writes
run_folder = partial(click.option, "--run", type=click.Path())
out = partial(click.option, "--out", type=click.Path(path_type=Path))
plot = partial(click.option, "--plot", type=click.Path(path_type=Path))
overwrite = partial(click.option, "--overwrite", is_flag=True)
json = partial(click.option, "--json", "as_json", is_flag=True, help="An object a line.")
lang = click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    envvar="GLASSFORMER_LANG",
    default="en",
    callback=set_language,
    expose_value=False,
    help="English or 中文.",
)


def check_output_paths(*files: Path | None, overwrite: bool = False) -> None:
    """Refuse to overwrite files or to write into a missing folder, before any work is done."""
    for file in files:
        if file is not None and file.exists() and not overwrite:
            raise click.UsageError(f"{file} exists already: name another, or --overwrite")
        if file is not None and not file.absolute().parent.is_dir():
            raise click.UsageError(f"there is no folder {file.parent}: make it first")
