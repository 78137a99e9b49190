"""The command that lists tutorials, section by section, with the commands for each: lessons."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from glassformer.cli import options
from glassformer.core.i18n import tr

if TYPE_CHECKING:
    from glassformer.lessons.tutorials import Document


@click.command()
@click.option(
    "--document", "ids", multiple=True, metavar="ID",
    help="List only this document, 000 to 004; can be repeated.",
)  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print the page docs/tutorials.md.")
@options.json(help="Print one JSON object per section.")
def lessons(ids: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """List five tutorials, section by section, with the commands that show each section.

    For each section: commands that compute it, commands that draw it, and what the tutorial gets
    wrong there (see glass walk errata). The documents are 000 (B. Rohrer), 001 (P. Bloem), 002
    (Khan), 003 (Hung-yi Lee) and 004 (Transformer: every detail explained). Commands with a run
    folder need a model: the first lines say how to train it.

    \b
    glass lessons
    glass lessons --document 002 --lang zh
    glass lessons --json
    """
    from glassformer.lessons.tutorials import list_documents, render_page

    if markdown and (ids or as_json):
        raise click.UsageError("--markdown prints the whole page: remove --document and --json")
    if markdown:
        click.echo(render_page(), nl=False)
        return
    documents = list_documents(ids)
    if as_json:
        for document in documents:
            for section in document.sections:
                click.echo(json.dumps({"document": document.id, **asdict(section)}))
        return
    print_documents(documents)


def print_documents(documents: "list[Document]") -> None:
    from rich.console import Console

    from glassformer.lessons.tutorials import list_runs

    console = Console(highlight=False)
    console.print(tr("Models that some commands use:"), style="bold")
    for command in list_runs().values():
        console.print(f"  {command}", markup=False, soft_wrap=True)
    for document in documents:
        console.print(f"\n{document.id} {document.title}", style="bold cyan", markup=False)
        for section in document.sections:
            console.print(f"\n{section.number} {section.title}", style="bold", markup=False)
            for command in (*section.commands, *section.pictures):
                console.print(f"  {command}", markup=False, soft_wrap=True)
            for page in section.pages:
                console.print(f"  docs/{page}", markup=False, soft_wrap=True)
            for correction in section.corrections:
                line = tr("correction: {title}", title=correction)
                console.print(f"  {line}", style="yellow", markup=False, soft_wrap=True)
