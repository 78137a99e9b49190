"""`glass walk`: a worked example, step by step: of a tutorial, or of any model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli.grid import visible
from glassformer.cli.inputs import free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from glassformer.api import Model
    from glassformer.inspection.sheet import Step, Table

STYLES = {"printed": "default", "right": "green", "given": "cyan", "made": "default"}
MANY = 32  # columns or rows, beyond which a terminal shows only the first


@click.command()
@click.argument("what", default="thrones")
@click.argument("text", required=False)
@click.option("--layer", default=0, show_default=True, help="The block to look into.")
@click.option("--head", default=0, show_default=True, help="The head to look into.")
@click.option("--target", help="The translation to write; its own unless given.")
@click.option("--why", metavar="NAME[PLACE]", help="How one number was made, as output[0,-1,5].")
@click.option("--step", "wait", is_flag=True, help="Wait for a key after each step.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page.")
@click.option("--latex", type=click.Path(path_type=Path), help="Write a LaTeX file.")
@click.option("--csv", "folder", type=click.Path(path_type=Path), help="Write each matrix here.")
@click.option("--blanks", is_flag=True, help="Leave numbers out; a second sheet has them.")
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    envvar="GLASSFORMER_LANG",
    default="en",
    help="English or 中文.",
)
def walk(what: str, text: str | None, **options: Any) -> None:
    """Tell a worked example: thrones, markov, attention, position or norm; or RUN's own.

    Each step has its formula and its matrices: as printed, as it should be, and why they differ.
    For a trained model, every step of TEXT through one of its blocks.

    \b
    glass walk
    glass walk markov --step
    glass walk runs/generate-1 "The cat sat" --layer 1 --head 2
    glass walk runs/generate-1 "The cat sat" --why "blocks.0.attention.scores[0,0,2,1]"
    glass walk attention --html sheet.html --blanks --lang zh
    """
    from rich.console import Console

    from glassformer.folder import write_file
    from glassformer.inspection import write
    from glassformer.inspection.sheet import blanked
    from glassformer.words import language, say

    language.set(options["lang"])
    free(options["html"], options["latex"], options["folder"])
    if options["why"]:
        for line in reasons(what, text, options):
            click.echo(line)
        return
    steps = steps_of(what, text, options)
    sheets = [blanked(steps), steps] if options["blanks"] else [steps]
    title = say("Worked example: {what}", what=Path(what).name)
    for file, make in ((options["html"], write.html), (options["latex"], write.latex)):
        if file is not None:
            write_file(file, make(sheets, title))
            click.echo(f"wrote {file}", err=True)
    if (folder := options["folder"]) is not None:
        for sheet, place in zip(sheets, (folder, folder / "solution"), strict=False):
            place.mkdir(parents=True)
            click.echo(f"{len(write.tables(sheet, place))} tables in {place}", err=True)
    if any(options[name] is not None for name in ("html", "latex", "folder")):
        return
    console = Console(highlight=False)
    for number, sheet in enumerate(sheets):
        if number:
            console.print(f"\n[bold]{say('Solution')}[/]")
        for step in sheet:
            show(console, step)
            if options["wait"]:
                click.pause(say("(any key)"))


def steps_of(what: str, text: str | None, options: dict[str, Any]) -> list[Step]:
    from glassformer.config import nearest
    from glassformer.errors import GlassError
    from glassformer.inspection.walks import WALKS

    if what in WALKS:
        if text is not None:
            raise click.UsageError(f"{what} is a worked example: it takes no text")
        return WALKS[what]()
    if not Path(what).exists():
        hint = nearest(what, WALKS)
        raise GlassError(f"there is no run and no worked example {what!r}{hint}")
    places = {name: options[name] for name in ("layer", "head", "target")}
    return opened(what, text).walk(text or "", **places)


def opened(what: str, text: str | None) -> Model:
    from glassformer.api import load

    if text is None:
        raise click.UsageError("name a text that the model is to read")
    return load(what)


def reasons(what: str, text: str | None, options: dict[str, Any]) -> Iterator[str]:
    """How one number was made, line by line."""
    from glassformer.inspection.why import told

    found = opened(what, text).why(text or "", options["why"], target=options["target"])
    return told(found)


def show(console: Console, step: Step) -> None:
    console.print(f"\n[bold cyan]{step.title}[/]")
    for line, style in ((step.formula, "bold"), (step.says, "default")):
        if line:
            console.print(line, style=style, markup=False)
    for table in step.tables:
        show_table(console, step, table)
    if step.why:
        console.print(step.why, style="yellow", markup=False)


def show_table(console: Console, step: Step, table: Table) -> None:
    """Numbers under their names. Named columns that do not fit beside stand below; of others only
    the first are shown."""
    from rich.text import Text

    shape = " × ".join(map(str, table.values.shape))
    console.print(f"  {table.name} ({shape})", style=STYLES[table.kind], markup=False)
    wrong = step.wrong(table).tolist()
    cells = [
        [f"{cell}*" if bad else cell for cell, bad in zip(row, marks, strict=True)]
        for row, marks in zip(table.cells(), wrong, strict=True)
    ]
    rows = [visible(name) for name in table.rows[:MANY]] or [""] * len(cells[:MANY])
    names = [visible(name) for name in table.columns] or [""] * len(cells[0])
    some = range(min(len(names), MANY))
    widths = [max(wide(cell[i]) for cell in [names, *cells[:MANY]]) + 2 for i in some]
    left = max(map(wide, rows)) + 4
    fitting = parts(widths, console.width - left)
    fitting = fitting if table.columns else fitting[:1]
    for part in fitting:
        lines = []
        if table.columns:
            lines.append(Text(" " * left + "".join(pad(names[i], widths[i]) for i in part)))
        for name, row, bad in zip(rows, cells, wrong, strict=False):
            line = Text("    " + name + " " * (left - 4 - wide(name)))
            for i in part:
                line.append(pad(row[i], widths[i]), style="red" if bad[i] else STYLES[table.kind])
            lines.append(line)
        for line in lines:
            console.print(line, soft_wrap=True)
    left_out = len(cells) - len(rows), len(names) - sum(map(len, fitting))
    more = [f"{n} more {what}" for n, what in zip(left_out, ("rows", "columns"), strict=True) if n]
    if more:
        console.print(f"    … {', '.join(more)}", style="dim")


def parts(widths: list[int], room: int) -> list[list[int]]:
    """Columns in groups that each fit into so much room."""
    groups: list[list[int]] = [[]]
    for i, _ in enumerate(widths):
        if groups[-1] and sum(widths[j] for j in groups[-1]) + widths[i] > room:
            groups.append([])
        groups[-1].append(i)
    return groups


def pad(cell: str, width: int) -> str:
    return " " * (width - wide(cell)) + cell


def wide(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
