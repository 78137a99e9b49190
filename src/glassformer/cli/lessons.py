"""The command that lists tutorials, section by section, with the commands for each: lessons."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from glassformer.cli import options
from glassformer.core.i18n import tr

if TYPE_CHECKING:
    from glassformer.lessons.tutorials import Tutorial


@click.command()
@click.option(
    "--tutorial", "ids", multiple=True, metavar="NAME",
    help="List only this tutorial; can be repeated.",
)  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print the page docs/tutorials.md.")
@options.json(help="Print one JSON object per section.")
def lessons(ids: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """List five tutorials, section by section, with the commands that show each section.

    For each section: commands that compute it, commands that draw it, and what the tutorial gets
    wrong there (see glass walk errata). The tutorials are rohrer (B. Rohrer), bloem (P. Bloem),
    khan (Khan), lee (Hung-yi Lee) and details (Transformer: every detail explained). Commands with
    a run folder need a model: the first lines say how to train it.

    \b
    glass lessons
    glass lessons --tutorial khan --lang zh
    glass lessons --json
    """
    from glassformer.lessons.tutorials import list_tutorials, render_page

    if markdown and (ids or as_json):
        raise click.UsageError("--markdown prints the whole page: remove --tutorial and --json")
    if markdown:
        click.echo(render_page(), nl=False)
        return
    tutorials = list_tutorials(ids)
    if as_json:
        for tutorial in tutorials:
            for section in tutorial.sections:
                click.echo(json.dumps({"tutorial": tutorial.id, **asdict(section)}))
        return
    print_tutorials(tutorials)


def print_tutorials(tutorials: "list[Tutorial]") -> None:
    from rich.console import Console

    from glassformer.lessons.tutorials import list_runs

    console = Console(highlight=False)
    console.print(tr("Models that some commands use:"), style="bold")
    for command in list_runs().values():
        console.print(f"  {command}", markup=False, soft_wrap=True)
    for tutorial in tutorials:
        console.print(f"\n{tutorial.id}: {tutorial.title}", style="bold cyan", markup=False)
        for section in tutorial.sections:
            console.print(f"\n{section.number} {section.title}", style="bold", markup=False)
            for command in (*section.commands, *section.pictures):
                console.print(f"  {command}", markup=False, soft_wrap=True)
            for page in section.pages:
                console.print(f"  docs/{page}", markup=False, soft_wrap=True)
            for correction in section.corrections:
                line = tr("correction: {title}", title=correction)
                console.print(f"  {line}", style="yellow", markup=False, soft_wrap=True)
