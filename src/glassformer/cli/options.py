"""Options and arguments shared by several commands.

A command adds them as decorators, with its own `help` where it differs:
`@options.json(help="Print one JSON object.")`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from glassformer.core.i18n import language

F = TypeVar("F", bound=Callable[..., Any])


def combine(*parameters: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds several parameters, in the order shown by --help."""

    def add(command: F) -> F:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return add


def set_language(_context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is not None:
        language.set(name)


def parse_separator(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> str | None:
    return "\t" if value == "tab" else value


class RunPath(click.Path):
    """The folder of a run, which must exist."""

    def __init__(self, **options: Any) -> None:
        super().__init__(exists=True, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not Path(value).exists():
            self.fail(f"{str(value)!r} does not exist; `glass runs` lists the runs", param, ctx)
        return super().convert(value, param, ctx)


# Input
trained_run = click.argument("run", type=RunPath())
data_files = click.argument("data", nargs=-1, type=click.Path(exists=True))
file_format = combine(
    click.option(
        "--encoding",
        metavar="NAME",
        help="Encoding of text files, such as cp1252 or utf-16.  [default: detected]",
    ),
    click.option(
        "--separator",
        callback=parse_separator,
        help="Character between columns: , or ; or tab.  [default: detected]",
    ),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first row of a table has the names of its columns.  [default: detected]",
    ),
)
skip_bad = partial(click.option, "--skip-bad", is_flag=True)


def text_file(columns: str) -> Callable[[F], F]:
    """Add --file and how to read it; `columns` describes --text."""
    return combine(
        click.option(
            "--file",
            type=click.Path(exists=True, path_type=Path),
            help="Read the texts from this file: one per line, or one per row of a table.",
        ),
        click.option(
            "--text", multiple=True, metavar="COLUMN", help=f"{columns}  [default: detected]"
        ),
        file_format,
        skip_bad(help="Leave out rows of --file that cannot be read instead of stopping."),
    )


texts = combine(
    click.argument("texts", nargs=-1),
    text_file("Column of --file with the texts; give it twice for pairs."),
)
columns = combine(
    click.option(
        "--text",
        multiple=True,
        metavar="COLUMN",
        help="Column with the texts; give it twice for pairs.  [default: detected]",
    ),
    click.option("--label", metavar="COLUMN", help="Column with the labels.  [default: detected]"),
    file_format,
)
source_and_target = combine(
    click.option(
        "--source",
        type=click.Path(exists=True),
        help="File with the source sentences, one per line.",
    ),
    click.option(
        "--target",
        type=click.Path(exists=True),
        help="File with the target sentences, one per line.",
    ),
)
valid = partial(click.option, "--valid", multiple=True, type=click.Path(exists=True))
group = click.option(
    "--group",
    metavar="COLUMN",
    help="Keep rows with the same value in this column on one side of the train/validation split.",
)

image_size = click.option(
    "--image-size",
    type=int,
    metavar="PIXELS",
    help="Crop images to squares and resize them to this size.  "
    "[default: no resizing; all images must have the same size]",
)

# Training
tokenizer = combine(
    click.option(
        "--tokenizer",
        help="Tokenizer to train: characters, bytes, words, bpe or wordpiece.  "
        "[default: depends on TASK and DATA]",
    ),
    click.option(
        "--vocab",
        type=int,
        help="Vocabulary size of the tokenizer, in tokens.  [default: depends on the size of DATA]",
    ),
)
source_tokenizer = combine(
    click.option(
        "--source-tokenizer",
        help="Tokenizer to train for the source language alone, with a vocabulary of its own; "
        "--tokenizer and --vocab are then for the target language.  [default: one for both]",
    ),
    click.option(
        "--source-vocab",
        type=int,
        help="Vocabulary size of the source language alone, in tokens.  [default: one for both]",
    ),
)
machine = combine(
    click.option(
        "--seed",
        type=int,
        help="Random seed for the split, the initial weights and the batches.  [default: 0]",
    ),
    click.option(
        "--threads", type=int, help="Number of CPU threads.  [default: chosen by PyTorch]"
    ),
    click.option(
        "--device", help="Device to train on: cpu, cuda or mps.  [default: the fastest available]"
    ),
)
settings = partial(click.option, "--set", "settings", multiple=True, metavar="KEY=VALUE")


def budget(what: str) -> Callable[[F], F]:
    """Add --minutes, --steps and --epochs, which limit `what`."""
    default = "[default: 5 if there is no --steps or --epochs]"
    return combine(
        click.option(
            "--minutes", type=float, help=f"Limit {what} to this many minutes.  {default}"
        ),
        click.option("--steps", type=int, help=f"Limit {what} to this many optimizer steps."),
        click.option(
            "--epochs", type=float, help=f"Limit {what} to this many passes over the data."
        ),
    )


# Output
run_folder = partial(click.option, "--run", type=click.Path())
out = partial(click.option, "--out", type=click.Path(path_type=Path))
plot = partial(click.option, "--plot", type=click.Path(path_type=Path))
overwrite = partial(click.option, "--overwrite", is_flag=True)
json = partial(
    click.option, "--json", "as_json", is_flag=True, help="Print one JSON object per line."
)
lang = click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    envvar="GLASSFORMER_LANG",
    callback=set_language,
    expose_value=False,
    help="Language of the output: English or 中文.  [default: en]",
)


def check_output_paths(*files: Path | None, overwrite: bool = False) -> None:
    """Raise a usage error if a file exists (unless `overwrite`) or its folder does not."""
    for file in files:
        if file is not None and file.exists() and not overwrite:
            raise click.UsageError(f"{file} already exists: choose another name or add --overwrite")
        if file is not None and not file.absolute().parent.is_dir():
            raise click.UsageError(f"folder {file.parent} does not exist: create it first")


def drop_unset(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were set on the command line."""
    source = click.get_current_context().get_parameter_source
    return {n: v for n, v in values.items() if source(n) is not ParameterSource.DEFAULT}
