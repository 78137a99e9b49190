"""`glass translate`: say texts in another language."""

import json
import sys

import click


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("texts", nargs=-1)
@click.option("--beam", type=click.IntRange(1, 64), default=4, show_default=True, help="Width.")
@click.option("--penalty", default=0.6, show_default=True, help="Above 0 favours longer answers.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def translate(run: str, texts: tuple[str, ...], beam: int, penalty: float, as_json: bool) -> None:
    """Translate TEXTS, or the lines of standard input, with the model in RUN.

    \b
    glass translate runs/translate-1 "三百二十一"
    glass translate runs/translate-1 --beam 1 < lines.txt
    """
    from glassformer.api import load

    model = load(run)
    given = list(texts) or [line.rstrip("\n") for line in sys.stdin]
    for text, said in zip(given, model.translate(given, beam=beam, penalty=penalty), strict=True):
        pair = {"text": text, "translation": said}
        click.echo(json.dumps(pair, ensure_ascii=False) if as_json else said)
