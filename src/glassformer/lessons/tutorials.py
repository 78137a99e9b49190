"""Five tutorials, section by section, with the commands that compute and draw what they describe.

The data is in `tutorials.toml`; `glass lessons` shows it, and docs/tutorials.md is made of it.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.core.i18n import language, tr
from glassformer.lessons.lesson import read_text

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Section:
    """A section of a tutorial; the title is ours, in the current language."""

    number: str
    title: str
    commands: tuple[str, ...]
    pictures: tuple[str, ...]  # commands that draw
    pages: tuple[str, ...]  # names of pages in docs/
    corrections: tuple[str, ...]  # titles of steps of `glass walk errata`


@dataclass(frozen=True)
class Tutorial:
    id: str
    title: str
    sections: tuple[Section, ...]


@cache
def read_table() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def list_runs() -> dict[str, str]:
    """How to train each model that the commands use, by the folder of its run."""
    return {run: f"glass {command}" for run, command in read_table()["runs"].items()}


def list_tutorials(ids: Sequence[str] = ()) -> list[Tutorial]:
    """The tutorials with these names or numbers (000 is the first), or all."""
    table = read_table()["tutorials"]
    numbers = {f"{number:03}": id for number, id in enumerate(table)}
    ids = [numbers.get(id, id) for id in ids]
    for name in ids:
        if name not in table:
            hint = did_you_mean(name, table) or f"; available: {', '.join(table)}"
            raise GlassError(f"unknown tutorial {name!r}{hint}")
    return [
        Tutorial(name, entry[language.get()], tuple(map(make_section, entry["sections"])))
        for name, entry in table.items()
        if name in ids or not ids
    ]


def make_section(entry: dict[str, Any]) -> Section:
    return Section(
        number=entry["number"],
        title=entry[language.get()],
        commands=tuple(f"glass {command}" for command in entry["run"]),
        pictures=tuple(f"glass {command}" for command in entry["draw"]),
        pages=tuple(map(name_page, entry.get("pages", ()))),
        corrections=tuple(map(find_correction, entry.get("errata", ()))),
    )


def name_page(name: str) -> str:
    """The file name of a page of the documentation in the current language."""
    return f"{name}.zh.md" if language.get() == "zh" else f"{name}.md"


@cache
def read_titles(chapter: str, code: str) -> dict[str, str]:
    """The titles of the corrections of a tutorial, by the key of their step."""
    steps = read_text(f"errata_{chapter}", code)["steps"]
    return {key: step["title"] for key, step in steps.items()}


def find_correction(reference: str) -> str:
    """The title of the step `chapter.key`, in the current language."""
    chapter, key = reference.split(".")
    return read_titles(chapter, language.get())[key]


def render_page() -> str:
    """The page docs/tutorials.md, or docs/tutorials.zh.md, in the current language."""
    lines = [
        f"# {tr('Five tutorials, section by section')}",
        "",
        tr(
            "This page is written by `glass lessons --markdown`. `glass lessons` shows it in a "
            "terminal, `glass walk errata` has all corrections, with the right numbers."
        ),
        "",
        tr("Some commands use a model, which is trained like this (better with your own data):"),
        "",
        "```",
        *list_runs().values(),
        "```",
        "",
        tr("The first lines of a recipe say where its data comes from."),
        tr("{page} lists every picture of the tutorials.", page=link_page(name_page("pictures"))),
    ]
    for tutorial in list_tutorials():
        heads = [tr("section"), tr("commands"), tr("pictures"), tr("corrections")]
        lines += [
            "",
            f"## {tutorial.title}",
            "",
            table_row(heads),
            table_row(["---"] * 4),
        ]
        lines += [table_row(render_section(section)) for section in tutorial.sections]
    return "\n".join(lines) + "\n"


def render_section(section: Section) -> list[str]:
    commands, pictures = (
        [f"`{line}`" for line in part] for part in (section.commands, section.pictures)
    )
    parts = ([*commands, *map(link_page, section.pages)], pictures, section.corrections)
    return [f"{section.number} {section.title}", *map("<br>".join, parts)]


def link_page(page: str) -> str:
    return f"[{page}]({page})"


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
