"""The command that finds the texts nearest to a query."""

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.inputs import CHUNK, open_inputs, report_no_input, report_skipped
from glassformer.core.i18n import tr

if TYPE_CHECKING:
    from glassformer.api import Model
    from glassformer.data.inputs import Input

SHOWN_CHARACTERS = 100  # of a text; --json prints all of it


@click.command()
@options.trained_run
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.argument("queries", nargs=-1)
@click.option(
    "-n", "count", type=click.IntRange(1), default=5, show_default=True, help="Number of texts."
)
@click.option(
    "--text", metavar="COLUMN", help="Column of FILE with the texts.  [default: detected]"
)
@options.file_format
@options.skip_bad(help="Leave out rows of FILE that cannot be read instead of stopping.")
@options.json()
def search(
    run: str,
    file: Path,
    queries: tuple[str, ...],
    count: int,
    text: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Find the texts of FILE that are nearest to each of QUERIES, according to the model in RUN.

    FILE has one text per line, or per row of a table. Prints the cosine of the angle between the
    vectors of the query and of the text (see glass embed), the location and the text; then, as a
    baseline without a model, the same for tf-idf vectors, which count shared words. Texts
    with a cosine of 0 or less are left out. Without QUERIES, each line of standard input is a
    query.

    \b
    glass search runs/fill-mask-1 lines.txt "a list of numbers" -n 3
    glass search runs/fill-mask-1 reviews.csv --text text "a boring film" --json
    """
    from glassformer.api import load
    from glassformer.core.errors import GlassError
    from glassformer.text.tf_idf import compare_words

    model = load(run)
    query_texts = list(queries) or [line.rstrip("\n") for line in sys.stdin]
    if not query_texts:
        report_no_input()
        return
    if not all(map(str.strip, query_texts)):
        raise GlassError("a query is empty: expected at least one word")
    inputs = read_texts(file, text, **values)
    if not inputs:
        raise GlassError(f"{file} has no texts")
    texts = [item.texts[0] for item in inputs]
    by_vectors = compare_vectors(model, texts, query_texts)
    by_words = compare_words(texts, query_texts)
    for i, query in enumerate(query_texts):
        found = {
            "vectors": find_nearest(inputs, [row[i] for row in by_vectors], count),
            "words": find_nearest(inputs, [row[i] for row in by_words], count),
        }
        if as_json:
            click.echo(json.dumps({"query": query, **found}, ensure_ascii=False))
        else:
            print_nearest(query, found)


def read_texts(file: Path, text: str | None, *, skip_bad: bool, **format: Any) -> list["Input"]:
    """The texts of a file that are not blank."""
    from glassformer.data.files import BadRowPolicy, CountBadRows

    on_bad_row = CountBadRows() if skip_bad else BadRowPolicy()
    columns = () if text is None else (text,)
    with contextlib.ExitStack() as stack:
        inputs, _ = open_inputs(
            stack, on_bad_row, file=file, texts=(), text=columns, trained=(), count=False, **format
        )
        found = [item for item in inputs if item.texts[0].strip()]
    report_skipped(on_bad_row)
    return found


def compare_vectors(model: "Model", texts: list[str], queries: list[str]) -> list[list[float]]:
    """The cosine of the vectors of each text and each query: texts x queries."""
    from glassformer.core.reporter import ProgressBar, Reporter
    from glassformer.predict import cosines

    vectors = model.embed(queries)
    rows = list[list[float]]()
    reporter = Reporter()
    bar = ProgressBar(reporter, "reading", len(texts))
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        rows += cosines(model.embed(chunk), vectors).tolist()
        bar.add(len(chunk))
    reporter.clear()
    return rows


def find_nearest(inputs: list["Input"], scores: list[float], count: int) -> list[dict[str, Any]]:
    """The texts with the highest scores above 0, the best first."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:count]
    return [
        {
            "cosine": round(scores[i], 4),
            "location": inputs[i].location,
            "text": inputs[i].texts[0],
        }
        for i in order
        if scores[i] > 0
    ]


def print_nearest(query: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the texts nearest to a query, by the vectors of the model and by words."""
    titles = {"vectors": tr("vectors of the model"), "words": tr("shared words (tf-idf)")}
    click.echo(query)
    for name, rows in found.items():
        click.echo(f"  {titles[name]}")
        for row in rows:
            text = row["text"].strip()
            text = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
            click.echo(f"    {row['cosine']:.3f}\t{row['location']}\t{text}")
        if not rows:
            click.echo(f"    {tr('none')}")
