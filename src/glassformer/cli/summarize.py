"""The command that summarizes documents."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo
from glassformer.cli.inputs import results, run_predictions

if TYPE_CHECKING:
    from glassformer.data.inputs import Input
    from glassformer.tasks.extract import Extract


@click.command()
@options.trained_run
@click.argument("documents", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--title",
    help="Summarize all DOCUMENTS as one. If they exceed the model's context, only the sentences "
    "most similar to this title are read.",
)
@click.option(
    "--beam",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Beam size, the number of hypotheses; 1 means greedy decoding.",
)
@options.text_file("Column of --file with the documents.")
@results
@options.json()
def summarize(
    run: str,
    documents: tuple[Path, ...],
    title: str | None,
    beam: int,
    as_json: bool,
    out: Path | None,
    **values: Any,
) -> None:
    """Summarize DOCUMENTS with the model in RUN.

    DOCUMENTS are text files. Without DOCUMENTS or --file, the document is standard input. If a
    document is longer than the model's context, only its most central sentences are read (with
    --title, those most similar to it); what was left out is reported on standard error.

    \b
    glass summarize runs/summarize-1 email.txt
    glass summarize runs/summarize-1 a.txt b.txt --title "Port of Leeds"
    glass summarize runs/summarize-1 --file emails.csv --text body --out subjects.csv
    """
    from glassformer.api import load
    from glassformer.models.network import Trait

    if values["file"] is not None and (documents or title):
        raise click.UsageError(
            "give either DOCUMENTS (optionally with --title) or --file, not both"
        )
    model = load(run)
    model.require_trait(Trait.SUMMARIZER, "summarize")
    texts = () if values["file"] else read_documents(documents, values["encoding"], title)

    def predict(inputs: list["Input"]) -> Iterator[dict[str, Any]]:
        extracts = [model.extract(str(item.value), title=title) for item in inputs]
        summaries = model.summarize(extracts, beam=beam)
        for item, extract, summary in zip(inputs, extracts, summaries, strict=True):
            if not extract.is_whole:
                report_left_out(item.texts[0], extract)
            yield {
                "summary": summary,
                "tokens": extract.tokens,
                "tokens_read": len(extract.ids),
                "sentences": extract.sentences,
                "sentences_read": extract.sentences_read,
            }

    def show(_item: "Input", result: dict[str, Any]) -> None:
        click.echo(json.dumps(result, ensure_ascii=False) if as_json else result["summary"])

    def to_columns(result: dict[str, Any]) -> dict[str, Any]:
        return {"summary": result["summary"]}

    trained = tuple(model.task.get("text", ("document",)))
    run_predictions(predict, show, to_columns, out, texts=texts, trained=trained, **values)


def report_left_out(text: str, extract: "Extract") -> None:
    start = " ".join(text[:60].split())
    left_out = extract.sentences - extract.sentences_read
    echo(
        f'"{start} ...": read {len(extract.ids):,} of {extract.tokens:,} tokens; left out '
        f"{left_out:,} of {extract.sentences:,} sentences",
        err=True,
    )


def read_documents(
    documents: tuple[Path, ...], encoding: str | None, title: str | None
) -> tuple[str, ...]:
    """Return the documents in text files, or standard input; with a title, as one document."""
    from glassformer.data.files import BadRowPolicy, read_lines

    texts = [
        "".join(line for _, line in read_lines(file, BadRowPolicy(), encoding))
        for file in documents
    ]
    texts = texts or [sys.stdin.read()]
    return ("\n\n".join(texts),) if title else tuple(texts)
