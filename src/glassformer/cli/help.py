"""Translate messages and help into the user's language before click prints them."""

import re
from collections.abc import Iterable
from typing import Any

import click

from glassformer.core.i18n import language, localize

EXAMPLE = re.compile(r"(?<=\S)( {2,})(\S.*)")  # the description after a command
WIDE = "[\u2e80-\ua4cf\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6]"  # takes two columns
CLOSING, OPENING = "，。：；、！？）》", "（《"  # no line begins, or ends, with one of these
FILLER, HYPHEN = "\1", "\2"  # stand for a second column and for a hyphen, without a line break


def echo(message: str, *, err: bool = False) -> None:
    """Print a message (not data) in the user's language."""
    click.echo(localize(message), err=err)


def pad(text: str, width: int, *, align_right: bool = False) -> str:
    """Pad a text with spaces; a Chinese character takes two columns."""
    from rich.cells import cell_len

    spaces = " " * (width - cell_len(text))
    return spaces + text if align_right else text + spaces


class LocalizedFormatter(click.HelpFormatter):
    """Localizes usage, headings, paragraphs and option descriptions before writing them."""

    def write(self, string: str) -> None:
        super().write(unmark_columns(string))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, mark_columns(localize(prefix or "Usage: ")))

    def write_heading(self, heading: str) -> None:
        colon = "：" if language.get() == "zh" else ":"
        heading = mark_columns(localize(heading))
        self.write(f"{'':>{self.current_indent}}{heading}{colon}\n")

    def write_text(self, text: str) -> None:
        super().write_text("\n\n".join(map(localize_paragraph, text.split("\n\n"))))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        rows = [(mark_columns(name), mark_columns(localize_option(text))) for name, text in rows]
        super().write_dl(rows, col_max, col_spacing)


class GroupedOptions(click.Command):
    """A command whose help lists the options under headings.

    `headings` has the names of the options under each heading. The last heading also has the
    options that are not named.
    """

    def __init__(self, *args: Any, headings: dict[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.headings = headings

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in self.headings}
        *_, last = rows
        heading_of = {
            name: heading for heading, names in self.headings.items() for name in names.split()
        }
        for option in self.get_params(ctx):
            row = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if row is not None:
                rows[heading_of.get(option.opts[-1], last)].append(row)
        for heading, options in rows.items():
            with formatter.section(heading):
                formatter.write_dl(options)


class LocalizedContext(click.Context):
    formatter_class = LocalizedFormatter


def localize_paragraph(text: str) -> str:
    """Translate a paragraph; in examples, which click must not wrap, only their descriptions."""
    if text.startswith("\b"):
        return mark_columns(EXAMPLE.sub(lambda match: match[1] + localize(match[2]), text))
    return mark_columns(localize(" ".join(text.split())))


def localize_option(text: str) -> str:
    """Translate an option's description and its `[default: x]`."""
    description, _, extra = re.fullmatch(r"(.*?)(\s*(\[.*\])?)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{localize(description)}  {localize(extra)}" if extra else localize(description)


def mark_columns(text: str) -> str:
    """Chinese text for click, which counts characters and breaks lines at spaces and hyphens.

    After each Chinese character is a space for its second column, or a filler where no line may be
    broken, as in [default: x]. Other languages are unchanged.
    """
    if language.get() != "zh":
        return text
    text = re.sub(r"(?<=\w)-(?=\w)", HYPHEN, text)
    text = re.sub(r"\[[^][]*\]", lambda match: re.sub(f"({WIDE})", rf"\1{FILLER}", match[0]), text)
    text = re.sub(f"([{OPENING}]|{WIDE}(?=[{CLOSING}]))(?!{FILLER})", rf"\1{FILLER}", text)
    return re.sub(f"({WIDE})(?!{FILLER})", r"\1 ", text)


def unmark_columns(text: str) -> str:
    """The text without what `mark_columns` has added."""
    if language.get() != "zh":
        return text
    return re.sub(f"({WIDE}) |{FILLER}", r"\1", text).replace(HYPHEN, "-")
