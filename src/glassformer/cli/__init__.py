"""The `glass` command, one file per group. Commands parse options, call the package and print."""

import contextlib
import io
import os
import re
import sys
import time
from typing import NoReturn

import click

from glassformer import __version__
from glassformer.cli import options
from glassformer.cli.help import LocalizedContext
from glassformer.cli.registry import COMMANDS, LazyCommands
from glassformer.core.errors import GlassError, is_memory_error
from glassformer.core.i18n import language, localize
from glassformer.core.reporter import discard_output


class GroupedHelp(click.Group):
    """A group whose help lists the commands under the group titles of the registry."""

    context_class = LocalizedContext

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl(
                    [(name, entry.help) for name, entry in COMMANDS.items() if entry.group == group]
                )


@click.group(
    cls=GroupedHelp,
    commands=LazyCommands(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@options.lang
@click.version_option(__version__, prog_name="glass")
def glass() -> None:
    """Train Transformers, use them, and look at every number inside them.

    \b
    glass demo                              follow a sentence through a small model step by step
    glass train generate book.txt           train a language model on a text
    glass generate runs/generate-1 "Once"   generate text with it
    """


def main() -> None:
    """Run a command; print errors that the user can fix as one line, without a traceback."""
    open_missing_streams()
    choose_language(sys.argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # print ? for unsupported characters
    try:
        run_command()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # the reader has closed the pipe
                discard_output(stream)


def choose_language(arguments: list[str]) -> None:
    """Set the language before anything is parsed, so that help and usage errors use it too."""
    option = re.search(r"\0--lang[=\0](\w+)", "\0".join(arguments))
    name = option[1] if option else os.environ.get("GLASSFORMER_LANG")
    language.set("zh" if name == "zh" else "en")


def run_command() -> None:
    try:
        glass.main(standalone_mode=False, obj=time.monotonic())  # --minutes counts from here
    except click.ClickException as error:
        show_usage_error(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except UnicodeDecodeError as error:
        fail(f"standard input is not valid UTF-8: {error}")
    except GlassError as error:
        fail(str(error))
    except OSError as error:
        fail(format_os_error(error))
    except (RuntimeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
        fail("out of memory: try a smaller model, batch or input")


def show_usage_error(error: click.ClickException) -> None:
    """Print what click's own `show` prints, in the user's language."""
    with contextlib.suppress(OSError):
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"Try '{error.ctx.command_path} --help' for help."
            click.echo(f"{error.ctx.get_usage()}\n{localize(hint)}\n", err=True)
        click.echo(f"{localize('Error: ')}{localize(error.format_message())}", err=True)


def format_os_error(error: OSError) -> str:
    """Return the file and the reason, without Python's number of the error."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def fail(message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        click.echo(f"glass: {localize(message)}", err=True)
    sys.exit(1)


def open_missing_streams() -> None:
    """Open the null device for standard streams that are closed (as with `2>&-`).

    Otherwise the next file to be opened would get the descriptor of the missing stream, and
    anything that a library writes to that stream would end up in the file.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
