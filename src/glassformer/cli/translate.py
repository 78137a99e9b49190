"""`glass translate`: say texts in another language."""

import json
from typing import Any

import click

from glassformer.cli.inputs import given_texts, inputs


@click.command()
@click.argument("run", type=click.Path(exists=True))
@inputs
@click.option("--beam", type=click.IntRange(1, 64), default=4, show_default=True, help="Width.")
@click.option("--penalty", default=0.6, show_default=True, help="Above 0 favours longer answers.")
@click.option("--alignment", is_flag=True, help="What each token read of the source.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def translate(
    run: str, beam: int, penalty: float, alignment: bool, as_json: bool, **given: Any
) -> None:
    """Translate TEXTS, a file, or the lines of standard input, with the model in RUN.

    \b
    glass translate runs/translate-1 "三百二十一"
    glass translate runs/translate-1 "三百二十一" --alignment
    glass translate runs/translate-1 --beam 1 --file lines.txt
    """
    from rich.console import Console

    from glassformer.api import load
    from glassformer.inspection.screen import show

    model = load(run)
    texts = given_texts(**given)
    for text, said in zip(texts, model.translate(texts, beam=beam, penalty=penalty), strict=True):
        pair: dict[str, Any] = {"text": text, "translation": said}
        read = model.align(text, said) if alignment else None
        if read and as_json:
            rows = [[round(weight, 4) for weight in row] for row in read.pattern.tolist()]
            pair |= {"source": read.source, "target": read.target, "alignment": rows}
        click.echo(json.dumps(pair, ensure_ascii=False) if as_json else said)
        if read and not as_json:
            show(Console(highlight=False), read.steps())
