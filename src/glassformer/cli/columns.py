"""The options that say how to read a table, for every command that reads data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def tab(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    return "\t" if value == "tab" else value


def columns(command: F) -> F:
    """Add --text, --label and --separator."""
    for option in (
        click.option("--separator", callback=tab, help="Between columns: , or ; or tab."),
        click.option("--label", help="The column with the label."),
        click.option("--text", multiple=True, help="A column with text; twice for pairs."),
    ):
        command = option(command)
    return command
