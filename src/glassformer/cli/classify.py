"""`glass classify`: say which label texts have."""

import csv
import json
import sys
from typing import Any

import click

from glassformer.cli.inputs import given_texts, inputs


@click.command()
@click.argument("run", type=click.Path(exists=True))
@inputs
@click.option("--csv", "as_csv", is_flag=True, help="A table with a column for each label.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def classify(run: str, as_csv: bool, as_json: bool, **given: Any) -> None:
    """Label TEXTS, a file, or the lines of standard input, with the model in RUN.

    A model that learnt from pairs takes texts two by two, and lines with a tab between.

    \b
    glass classify runs/classify-1 "What a wonderful film" "I fell asleep"
    glass classify runs/classify-1 --file reviews.csv --csv > labels.csv
    """
    from glassformer.api import load

    model = load(run)
    given["text"] = given["text"] or tuple(model.task.get("text", ()))
    texts = given_texts(**given)
    if len(given["text"]) > 1 and given["file"] is None:
        texts = pairs(list(given["texts"]), texts)
    answers, table = model.classify(texts), csv.writer(sys.stdout)
    if as_csv:
        table.writerow(["text", "label", *model.task["labels"]])
    for text, labels in zip(texts, answers, strict=True):
        best, text = next(iter(labels)), text if isinstance(text, str) else " | ".join(text)
        if as_csv:
            table.writerow([text, best, *(f"{labels[name]:.4f}" for name in model.task["labels"])])
        elif as_json:
            said = {"text": text, "label": best, "probabilities": labels}
            click.echo(json.dumps(said, ensure_ascii=False))
        else:
            click.echo(f"{best}\t{labels[best]:.3f}\t{text}")


def pairs(arguments: list[str], texts: list[str]) -> list[tuple[str, ...]]:
    """Arguments two by two, and each line cut at its tab."""
    if arguments:
        return [tuple(texts[i : i + 2]) for i in range(0, len(texts), 2)]
    return [tuple(line.split("\t")) for line in texts]
