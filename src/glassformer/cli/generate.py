"""`glass generate`: continue a text with a trained model."""

import json
import sys
from typing import Any

import click


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("prompt", default="")
@click.option(
    "-n", "--tokens", type=click.IntRange(1), default=200, show_default=True, help="Tokens to add."
)
@click.option("-t", "--temperature", default=0.8, show_default=True, help="0 takes the best.")
@click.option("--top-k", default=0, help="Only the k likeliest tokens.")
@click.option("--top-p", default=1.0, help="Only the likeliest that together reach this.")
@click.option("--min-p", default=0.0, help="Only what has this share of the likeliest.")
@click.option("--repetition", default=1.0, help="Above 1, what was said is less likely.")
@click.option("--stop", multiple=True, help="End before this text.")
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many continuations.",
)
@click.option("--seed", type=int, help="Makes it repeatable.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def generate(run: str, prompt: str, tokens: int, samples: int, as_json: bool, **rest: Any) -> None:
    """Continue PROMPT, or standard input if it is -, with the model in RUN.

    \b
    glass generate runs/generate-1 "To be, or"
    head -3 sonnet.txt | glass generate runs/generate-1 - -n 400 --temperature 0.7
    """
    from glassformer.api import load

    model = load(run)
    text = sys.stdin.read() if prompt == "-" else prompt
    seed, stop = rest.pop("seed"), rest.pop("stop")
    ids, unknown = model.words().encode(text), model.words().specials.get("<unk>", -1)
    if unknown in ids:
        click.echo(f"{ids.count(unknown)} tokens that the model never saw", err=True)
    for i in range(samples):
        again = None if seed is None else seed + i
        pieces = model.stream(text, new=tokens, seed=again, stop=stop, **rest)
        if as_json:
            click.echo(json.dumps({"prompt": text, "text": "".join(pieces)}, ensure_ascii=False))
            continue
        click.echo(text, nl=False)
        for piece in pieces:
            click.echo(piece, nl=False)
        click.echo("\n---" * (i + 1 < samples))
