"""The command `glass`: one file per group of commands, each of which parses, calls and prints."""

import contextlib
import io
import os
import sys
import time
from typing import NoReturn

import click

from glassformer import __version__
from glassformer.cli.registry import COMMANDS, LazyCommands
from glassformer.core.errors import GlassError, is_memory_error
from glassformer.core.reporter import discard_output


class GroupedHelp(click.Group):
    """A group of commands whose help lists them under the headings of the registry."""

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
@click.version_option(__version__, prog_name="glass")
def glass() -> None:
    """A Transformer behind glass: train it, use it, and read every number inside it.

    \b
    glass demo                              one sentence through a small model, every step
    glass train generate book.txt           learn from a text
    glass generate runs/generate-1 "Once"   and go on with it
    """


def main() -> None:
    """Run a command; what the user can fix is said in one line, without a traceback."""
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows question marks
    try:
        run_command()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # whoever read it has gone
                discard_output(stream)


def run_command() -> None:
    try:
        glass.main(standalone_mode=False, obj=time.monotonic())  # a deadline counts from here
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except (GlassError, OSError) as error:
        fail(str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
        fail("there is not enough memory for this: try a smaller model, batch or input")


def fail(message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        click.echo(f"glass: {message}", err=True)
    sys.exit(1)


def open_missing_streams() -> None:
    """Give a process that was started without standard streams (`2>&-`) ones that lead nowhere.

    Otherwise the next file that is opened would take the number of the missing stream, and what a
    library writes there would end up in that file.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
