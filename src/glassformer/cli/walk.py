"""`glass walk`: a worked example, step by step: of a tutorial, or of any model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli.inputs import free
from glassformer.cli.language import spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from glassformer.inspection.sheet import Step

SCREEN = Path("-")


@click.command()
@click.argument("what", default="thrones")
@click.argument("text", required=False)
@click.option("--layer", type=int, help="The block to look into.  [default: 0]")
@click.option("--head", type=int, help="The head to look into.  [default: 0]")
@click.option("--target", help="The translation to write; its own unless given.")
@click.option("--weights", is_flag=True, help="Show the weights of each step too.")
@click.option("--why", metavar="NAME[PLACE]", help="How one number was made, as output[0,-1,5].")
@click.option("--step", "wait", is_flag=True, help="A step at a time: q ends it, b goes back.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page (- for the screen).")
@click.option("--latex", type=click.Path(path_type=Path), help="Write a LaTeX file (or -).")
@click.option("--csv", "folder", type=click.Path(path_type=Path), help="Write each matrix here.")
@click.option("--blanks", is_flag=True, help="Leave numbers out; a second sheet has them.")
@click.option("--overwrite", is_flag=True, help="Write over files that are there.")
@spoken
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

    from glassformer.core.folder import write_file
    from glassformer.inspection import write
    from glassformer.inspection.screen import show
    from glassformer.inspection.sheet import blanked
    from glassformer.core.i18n import say

    files = [options[name] for name in ("html", "latex", "folder")]
    free(*(f for f in files if f != SCREEN), overwrite=options["overwrite"])
    steps = steps_of(what, text, options)
    sheets = [blanked(steps), steps] if options["blanks"] else [steps]
    title = title_for(what, text, options)
    for file, make in ((options["html"], write.html), (options["latex"], write.latex)):
        if file == SCREEN:
            click.echo(make(sheets, title))
        elif file is not None:
            write_file(file, make(sheets, title))
            click.echo(f"wrote {file}", err=True)
    if (folder := options["folder"]) is not None:
        for sheet, place in zip(sheets, (folder, folder / "solution"), strict=False):
            place.mkdir(exist_ok=True)
            for old in place.glob("[0-9][0-9]-*.csv"):  # of a sheet that is written over
                old.unlink()
            click.echo(f"{len(write.tables(sheet, place))} tables in {place}", err=True)
    if any(file is not None for file in files):
        return
    console = Console(highlight=False)
    console.print(title, style="bold", markup=False)
    for number, sheet in enumerate(sheets):
        if number:
            console.print(f"\n[bold]{say('Solution')}[/]")
        show(console, sheet) if not options["wait"] else turn(console, sheet)


def title_for(what: str, text: str | None, options: dict[str, Any]) -> str:
    from glassformer.lessons import LESSONS, lesson_title
    from glassformer.core.i18n import say

    if what in LESSONS:
        return lesson_title(what)
    run, text = Path(what).name, repr(text)
    if options["why"] is not None:
        return say("{run} reads {text}: {name}", run=run, text=text, name=options["why"])
    return say("{run} reads {text}", run=run, text=text)


def turn(console: Console, steps: Sequence[Step]) -> None:
    """A step at a time, as keys say; at once where there is no one to press them."""
    from glassformer.inspection.screen import show_step
    from glassformer.core.i18n import say

    asks, at = sys.stdin.isatty() and sys.stdout.isatty(), 0
    while at < len(steps):
        show_step(console, steps[at])
        at += 1
        if not asks or at == len(steps):
            continue
        place = say("{at} of {all}: any key goes on, b goes back, q ends", at=at, all=len(steps))
        console.print(f"[dim]{place}[/]")
        key = click.getchar()
        if key in ("q", "Q", "\x1b"):
            raise click.exceptions.Exit(0)
        at = max(at - 2, 0) if key in ("b", "B") else at


def steps_of(what: str, text: str | None, options: dict[str, Any]) -> Sequence[Step]:
    from glassformer.api import load
    from glassformer.core.config import nearest
    from glassformer.core.errors import GlassError
    from glassformer.lessons import LESSONS, load_lesson

    if what in LESSONS:
        if text is not None:
            raise click.UsageError(f"{what} is a worked example: it takes no text")
        for name in ("layer", "head", "target", "weights", "why"):
            if options[name] not in (None, False):
                raise click.UsageError(f"--{name} asks a trained model: name a run and a text")
        return load_lesson(what)
    if not Path(what).exists():
        hint = nearest(what, LESSONS) or f"; there are the worked examples {', '.join(LESSONS)}"
        raise GlassError(f"there is no run and no worked example {what!r}{hint}")
    if text is None:
        raise click.UsageError("name a text that the model is to read")
    model, target = load(what), options["target"]
    if options["why"] is not None:
        for name in ("layer", "head", "weights", "blanks"):
            if options[name] not in (None, False):
                raise click.UsageError(f"--why names its number whole: it takes no --{name}")
        return model.why(text, options["why"], target=target).steps()
    places = {name: options[name] or 0 for name in ("layer", "head")}
    return model.walk(text, target=target, weights=options["weights"], **places)
