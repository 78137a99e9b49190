"""`glass walk`: a worked example, step by step: of a tutorial, or of any model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli.inputs import free
from glassformer.cli.language import spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glassformer.inspection.sheet import Step


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

    from glassformer.folder import write_file
    from glassformer.inspection import write
    from glassformer.inspection.screen import show_step
    from glassformer.inspection.sheet import blanked
    from glassformer.words import say

    free(options["html"], options["latex"], options["folder"])
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
            show_step(console, step)
            if options["wait"]:
                click.pause(say("(any key)"))


def steps_of(what: str, text: str | None, options: dict[str, Any]) -> Sequence[Step]:
    from glassformer.api import load
    from glassformer.config import nearest
    from glassformer.errors import GlassError
    from glassformer.inspection.walks import WALKS

    if what in WALKS:
        if text is not None:
            raise click.UsageError(f"{what} is a worked example: it takes no text")
        if options["why"]:
            raise click.UsageError("--why asks a trained model: name a run and a text")
        return WALKS[what]()
    if not Path(what).exists():
        hint = nearest(what, WALKS)
        raise GlassError(f"there is no run and no worked example {what!r}{hint}")
    if text is None:
        raise click.UsageError("name a text that the model is to read")
    model, target = load(what), options["target"]
    if options["why"]:
        return model.why(text, options["why"], target=target).steps()
    return model.walk(text, layer=options["layer"], head=options["head"], target=target)
