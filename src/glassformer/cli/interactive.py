"""The interactive session of `glass generate`: each line is a prompt or a command such as /help."""

import sys
from collections.abc import Callable
from typing import Any

import click

from glassformer.cli.help import LocalizedFormatter, echo
from glassformer.core.bounds import check_bounds
from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError, is_memory_error
from glassformer.core.i18n import localize

try:
    import readline  # gives `input` line editing and a history
except ImportError:  # Windows
    readline = None  # type: ignore[assignment]


class Session:
    """Calls `respond` with each prompt; commands change `values`, options of the click command."""

    def __init__(self, respond: Callable[[str], None], values: dict[str, Any]) -> None:
        self.respond = respond
        self.values = values
        self.initial_values = dict(values)
        self.context = click.get_current_context()
        self.options = {  # by command
            option.name.replace("_", "-"): option
            for option in self.context.command.params
            if isinstance(option, click.Option) and option.name in values
        }

    def run(self) -> None:
        """Read lines until the end of input; an error in one of them does not end the session."""
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if is_terminal:
            echo("Type a prompt; /help lists the commands, Ctrl-D ends the session.", err=True)
        while (line := read_prompt() if is_terminal else read_line()) is not None:
            try:
                if line.startswith("/"):
                    self.run_command(*line[1:].split(maxsplit=1))
                elif line:
                    self.respond(line)
            except KeyboardInterrupt:  # stops only this response
                if not is_terminal:
                    raise
                click.echo()
            except (GlassError, click.UsageError, RuntimeError, MemoryError) as error:
                click.echo(f"glass: {localize(format_error(error))}", err=True)

    def run_command(self, name: str = "", text: str | None = None) -> None:
        """Print the help, set an option to the value in `text`, or restore its initial value."""
        if name == "help":
            self.print_help()
            return
        if name not in self.options:
            hint = did_you_mean(name, ["help", *self.options], "/") or "; try /help"
            raise GlassError(f"unknown command {'/' + name!r}{hint}")
        option = self.options[name]
        value = self.initial_values[option.name]
        if text is not None:
            value = option.type_cast_value(self.context, (text,) if option.multiple else text)
        check_bounds({option.name: value})
        self.values[option.name] = value

    def print_help(self) -> None:
        """Print the commands with the current values of the options."""
        formatter, rows = LocalizedFormatter(), []
        for name, option in self.options.items():
            value = self.values[option.name]
            shown = " ".join(value) if option.multiple else "" if value is None else value
            rows.append((f"/{name} {shown}", option.help or ""))
        formatter.write_text("A command sets an option; without a value, it restores the option.")
        formatter.write_dl(rows)
        click.echo(formatter.getvalue(), nl=False, err=True)


def read_prompt() -> str | None:
    """Read a line from the terminal; None after Ctrl-D, or Ctrl-C on an empty line."""
    while True:
        try:
            return input("> ")
        except EOFError:
            click.echo()
            return None
        except KeyboardInterrupt:
            click.echo()
            if readline is None or not readline.get_line_buffer():
                return None


def read_line() -> str | None:
    """Read a line from standard input; None at its end."""
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None


def format_error(error: Exception) -> str:
    """Return the message of an error that the user can fix; raise any other error again."""
    if isinstance(error, click.UsageError):
        return error.format_message()
    if isinstance(error, GlassError):
        return str(error)
    if is_memory_error(error):
        return "out of memory: try a shorter prompt"
    raise error
