"""A chapter of a lesson: a module that computes named values, and text files that present them.

`text/NAME.en.toml` lists the steps in order, each with its tables and the value that each shows.
`text/NAME.zh.toml` translates the texts of the steps and, under `names`, the labels of the tables.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Protocol

from torch import Tensor

from glassformer.core.i18n import language
from glassformer.inspection.sheet import Step, Table

TEXTS = Path(__file__).parent / "text"
Values = dict[str, Tensor | list[str] | str | float]


def as_tensor(value: Tensor | list[str] | str | float) -> Tensor:
    """A value that is a matrix, for the type checker."""
    if not isinstance(value, Tensor):
        raise TypeError(f"expected a tensor, got {value!r}")
    return value


class Chapter(Protocol):
    """A module of this package with the values of a chapter."""

    __name__: str

    def __hash__(self) -> int: ...

    def compute_values(self) -> Values:
        """All values that the chapter's tables and placeholders refer to, by name."""
        ...


class TextChapter(Protocol):
    """A chapter that is computed for a user's own text."""

    __name__: str

    def compute_values(self, text: str) -> Values: ...


class Placeholders(Formatter):
    """Fills in `{name}` and `{name:.3f}`; rejects paths such as `{name.attribute}`."""

    def get_field(self, name: str, args: Sequence[Any], values: Mapping[str, Any]) -> Any:
        return values[name], name


def load_steps(chapter: Chapter) -> list[Step]:
    """The steps of a chapter with its values filled in, in the current language."""
    return [*compute_steps(chapter, language.get())]


@cache  # some chapters train a network
def compute_steps(chapter: Chapter, _language: str) -> tuple[Step, ...]:
    return tuple(fill_steps(chapter, chapter.compute_values()))


def load_text_steps(chapter: TextChapter, text: str) -> list[Step]:
    """The steps of a chapter for a user's text, in the current language."""
    return fill_steps(chapter, chapter.compute_values(text))


def fill_steps(chapter: Chapter | TextChapter, values: Values) -> list[Step]:
    translation = read_translation(chapter)
    steps = translation.get("steps", {})
    names = translation.get("names", {})
    return [
        make_step(step | steps.get(key, {}), values, names)
        for key, step in read_text(chapter, "en")["steps"].items()
    ]


def load_title(chapter: Chapter) -> str:
    title: str = (read_text(chapter, "en") | read_translation(chapter))["title"]
    return title


def read_translation(chapter: Chapter | TextChapter) -> dict[str, Any]:
    """The texts that replace the English ones in the current language; empty for English."""
    return read_text(chapter, "zh") if language.get() == "zh" else {}


def read_text(chapter: Chapter | TextChapter | str, code: str) -> dict[str, Any]:
    """The texts of a chapter, given its module or its name, in a language."""
    name = chapter if isinstance(chapter, str) else chapter.__name__.rpartition(".")[2]
    file = TEXTS / f"{name}.{code}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def make_step(step: dict[str, Any], values: Values, names: dict[str, str]) -> Step:
    title, formula, text, note, code = (
        Placeholders().vformat(step.get(key, ""), (), values)
        for key in ("title", "formula", "text", "note", "code")
    )
    tables = [make_table(table, values, names) for table in step.get("tables", ())]
    tables = [table for table in tables if table.values.numel()]  # a short text may have no pairs
    return Step(title, formula, text, tuple(tables), note, code)


def make_table(table: dict[str, Any], values: Values, names: dict[str, str]) -> Table:
    """Make a table from its entry in a text file."""

    def read_labels(entry: str | list[str]) -> Any:
        """The value with this name, or a list of translated labels."""
        return values[entry] if isinstance(entry, str) else [names.get(x, x) for x in entry]

    fields = {key: table[key] for key in table.keys() - {"value", "decimals"}}  # kind and flags
    fields["name"] = names.get(table["name"], table["name"])
    fields["values"] = values[table["value"]]
    for key in ("rows", "columns"):
        fields[key] = read_labels(table.get(key, []))
    return Table(decimals=table.get("decimals", 4), **fields)
