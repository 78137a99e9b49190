"""Translate messages and help into the user's language before click prints them."""

import re
from collections.abc import Iterable

import click

from glassformer.core.i18n import language, localize

CHINESE_WIDTH = 60  # click counts characters; a Chinese character takes two columns


def echo(message: str, *, err: bool = False) -> None:
    """Print a message (not data) in the user's language."""
    click.echo(localize(message), err=err)


def pad(text: str, width: int) -> str:
    """Pad a text with spaces; a Chinese character takes two columns."""
    from rich.cells import cell_len

    return text + " " * (width - cell_len(text))


class LocalizedFormatter(click.HelpFormatter):
    """Localizes usage, headings, paragraphs and option descriptions before writing them."""

    def __init__(
        self,
        indent_increment: int = 2,
        width: int | None = None,
        max_width: int | None = None,
    ) -> None:
        width = CHINESE_WIDTH if language.get() == "zh" else width
        super().__init__(indent_increment, width, max_width)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, localize(prefix or "Usage: "))

    def write_heading(self, heading: str) -> None:
        super().write_heading(localize(heading))

    def write_text(self, text: str) -> None:
        super().write_text("\n\n".join(map(localize_paragraph, text.split("\n\n"))))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        rows = [(name, localize_option(text)) for name, text in rows]
        super().write_dl(rows, col_max, col_spacing)


class LocalizedContext(click.Context):
    formatter_class = LocalizedFormatter


def localize_paragraph(text: str) -> str:
    """Translate a paragraph; leave examples, which click must not wrap, unchanged."""
    return text if text.startswith("\b") else localize(" ".join(text.split()))


def localize_option(text: str) -> str:
    """Translate an option's description and its `[default: x]`."""
    description, _, extra = re.fullmatch(r"(.*?)(\s*(\[.*\])?)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{localize(description)}  {localize(extra)}" if extra else localize(description)
