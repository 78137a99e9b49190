"""`glass fill-mask`: guess what a [MASK] hides."""

import json
import sys

import click


@click.command("fill-mask")
@click.argument("run", type=click.Path(exists=True))
@click.argument("texts", nargs=-1)
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Guesses.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def fill_mask(run: str, texts: tuple[str, ...], top: int, as_json: bool) -> None:
    """Guess each [MASK] in TEXTS, or in the lines of standard input, with the model in RUN.

    \b
    glass fill-mask runs/fill-mask-1 "The [MASK] of the function is a list."
    """
    from glassformer.api import load

    model = load(run)
    for text in list(texts) or [line.rstrip("\n") for line in sys.stdin]:
        masks = model.fill_mask(text, top=top)
        if as_json:
            guesses = [[{"token": t, "probability": p} for t, p in row] for row in masks]
            click.echo(json.dumps({"text": text, "masks": guesses}, ensure_ascii=False))
        else:
            for row in masks:
                click.echo("  ".join(f"{token} {chance:.1%}" for token, chance in row))
