"""`glass fill-mask`: guess what a [MASK] hides."""

import json
from typing import Any

import click

from glassformer.cli.inputs import given_texts, inputs


@click.command("fill-mask")
@click.argument("run", type=click.Path(exists=True))
@inputs
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Guesses.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def fill_mask(run: str, top: int, as_json: bool, **given: Any) -> None:
    """Guess each [MASK] in TEXTS, a file, or lines of standard input, with the model in RUN.

    \b
    glass fill-mask runs/fill-mask-1 "The [MASK] of the function is a list."
    """
    from glassformer.api import load

    model = load(run)
    for text in given_texts(**given):
        masks = model.fill_mask(text, top=top)
        if as_json:
            guesses = [[{"token": t, "probability": p} for t, p in row] for row in masks]
            click.echo(json.dumps({"text": text, "masks": guesses}, ensure_ascii=False))
        else:
            for row in masks:
                click.echo("  ".join(f"{token} {chance:.1%}" for token, chance in row))
