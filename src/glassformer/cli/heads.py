"""`glass heads`: what each head of a model does, and what it is worth."""

from __future__ import annotations

import json
from pathlib import Path

import click

from glassformer.cli.inputs import free
from glassformer.cli.language import spoken


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("text", required=False)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the table (.png, .svg, .pdf).")
@click.option("--overwrite", is_flag=True, help="Write over a picture that is there.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
@spoken
def heads(run: str, text: str | None, plot: Path | None, overwrite: bool, as_json: bool) -> None:
    """Measure where every head of RUN looks while it reads TEXT, and what its silence costs.

    Shares of attention: to the token before, the first, itself, the same token earlier, and what
    followed that (induction); then how far it looks, in tokens, and what switching it off costs, in
    nats: of a model that writes, what is added to the loss of the text; of others, how far the
    answer moves. Without TEXT it reads tokens by chance, said twice; a translator needs one.

    \b
    glass heads runs/generate-1
    glass heads runs/generate-1 "the cat sat on the mat and the cat" --plot heads.png
    """
    from rich.console import Console

    from glassformer.api import load
    from glassformer.inspection.screen import show
    from glassformer.core.reporter import Reporter

    free(plot, overwrite=overwrite)
    found = load(run).heads(text, tell=Reporter())
    if plot is not None:
        from glassformer.inspection.draw import role_map, save

        save(role_map(found), plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        for role in found:
            click.echo(json.dumps(role.row()))
        return
    show(Console(highlight=False), found.steps())
