"""`glass classify`: say which label texts have."""

import csv
import json
import sys

import click


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("texts", nargs=-1)
@click.option("--csv", "as_csv", is_flag=True, help="A table with a column for each label.")
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def classify(run: str, texts: tuple[str, ...], as_csv: bool, as_json: bool) -> None:
    """Label TEXTS, or the lines of standard input, with the model in RUN.

    \b
    glass classify runs/classify-1 "What a wonderful film" "I fell asleep"
    glass classify runs/classify-1 --csv < reviews.txt > labels.csv
    """
    from glassformer.api import load

    model = load(run)
    given = list(texts) or [line.rstrip("\n") for line in sys.stdin]
    table = csv.writer(sys.stdout)
    if as_csv:
        table.writerow(["text", "label", *model.task.get("labels", ())])
    for text, labels in zip(given, model.classify(given), strict=True):
        best = next(iter(labels))
        if as_csv:
            table.writerow([text, best, *(f"{labels[name]:.4f}" for name in model.task["labels"])])
        elif as_json:
            said = {"text": text, "label": best, "probabilities": labels}
            click.echo(json.dumps(said, ensure_ascii=False))
        else:
            click.echo(f"{best}\t{labels[best]:.3f}\t{text}")
