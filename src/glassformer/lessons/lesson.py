"""A chapter of a lesson: a module computes named values, and its text files say how to show them.

`text/NAME.en.toml` lists the steps in order, each with its tables and the value that each shows.
`text/NAME.zh.toml` has what replaces the texts of a step and, under `names`, those of its tables.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, Protocol

from torch import Tensor

from glassformer.core.i18n import language
from glassformer.inspection.sheet import Step, Table

TEXTS = Path(__file__).parent / "text"
Values = dict[str, Tensor | list[str] | str | float]


class Chapter(Protocol):
    """A module of this package."""

    __name__: str

    def compute_values(self) -> Values:
        """Everything that the chapter's tables and placeholders name."""
        ...


class Placeholders(Formatter):
    """Fills `{name}` and `{name:.3f}` and refuses paths such as `{name.attribute}`."""

    def get_field(self, name: str, args: Sequence[Any], values: Mapping[str, Any]) -> Any:
        return values[name], name


def load_steps(chapter: Chapter) -> list[Step]:
    """The steps of a chapter with its values filled in, in the language of the context."""
    values, translation = chapter.compute_values(), read_translation(chapter)
    steps, names = translation.get("steps", {}), translation.get("names", {})
    return [
        make_step(step | steps.get(key, {}), values, names)
        for key, step in read_text(chapter, "en")["steps"].items()
    ]


def load_title(chapter: Chapter) -> str:
    title: str = (read_text(chapter, "en") | read_translation(chapter))["title"]
    return title


def read_translation(chapter: Chapter) -> dict[str, Any]:
    """The texts that replace the English ones; none in English."""
    return read_text(chapter, "zh") if language.get() == "zh" else {}


def read_text(chapter: Chapter, code: str) -> dict[str, Any]:
    file = TEXTS / f"{chapter.__name__.rpartition('.')[2]}.{code}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def make_step(step: dict[str, Any], values: Values, names: dict[str, str]) -> Step:
    title, formula, text, note = (
        Placeholders().vformat(step.get(key, ""), (), values)
        for key in ("title", "formula", "text", "note")
    )
    tables = tuple(make_table(table, values, names) for table in step.get("tables", ()))
    return Step(title, formula, text, tables, note)


def make_table(table: dict[str, Any], values: Values, names: dict[str, str]) -> Table:
    """The table that an entry of a text file describes."""

    def labels(given: str | list[str]) -> Any:
        """The value of that name, or the texts that stand in the entry itself."""
        return values[given] if isinstance(given, str) else [names.get(x, x) for x in given]

    fields = {key: table[key] for key in table.keys() - {"value", "decimals"}}  # kind and flags
    fields["name"] = names.get(table["name"], table["name"])
    fields["values"] = values[table["value"]]
    fields["rows"], fields["columns"] = (labels(table.get(key, [])) for key in ("rows", "columns"))
    return Table(decimals=table.get("decimals", 4), **fields)
