"""`glass embed`: texts as vectors."""

import json
from typing import Any

import click

from glassformer.cli.inputs import given_texts, inputs


@click.command()
@click.argument("run", type=click.Path(exists=True))
@inputs
@click.option("--out", type=click.Path(), help="A .npy file; else an object a line is printed.")
def embed(run: str, out: str | None, **given: Any) -> None:
    """Give a vector for each of TEXTS, or lines of a file or standard input, with the model in RUN.

    \b
    glass embed runs/fill-mask-1 "one text" "another"
    glass embed runs/fill-mask-1 --file lines.txt --out vectors.npy
    """
    import numpy as np

    from glassformer.api import load

    texts = given_texts(**given)
    vectors = load(run).embed(texts)
    if out:
        np.save(out, vectors)
        click.echo(
            f"{len(vectors)} vectors of {vectors.shape[1]} numbers written to {out}", err=True
        )
        return
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        click.echo(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))
