"""`glass embed`: texts as vectors."""

import json
import sys

import click


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("texts", nargs=-1)
@click.option("--out", type=click.Path(), help="A .npy file; else an object a line is printed.")
def embed(run: str, texts: tuple[str, ...], out: str | None) -> None:
    """Give a vector for each of TEXTS, or of the lines of standard input, with the model in RUN.

    \b
    glass embed runs/fill-mask-1 "one text" "another"
    glass embed runs/fill-mask-1 --out vectors.npy < lines.txt
    """
    import numpy as np

    from glassformer.api import load

    given = list(texts) or [line.rstrip("\n") for line in sys.stdin]
    vectors = load(run).embed(given)
    if out:
        np.save(out, vectors)
        click.echo(
            f"{len(vectors)} vectors of {vectors.shape[1]} numbers written to {out}", err=True
        )
        return
    for text, vector in zip(given, vectors.tolist(), strict=True):
        click.echo(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))
