"""Commands that predict with a trained model: classify, translate, fill-mask, embed."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo

if TYPE_CHECKING:
    from glassformer.api import Model
    from glassformer.data.files import BadRowPolicy
    from glassformer.data.inputs import Input

CHUNK = 64  # inputs that are predicted at once
UNSURE = "unsure"

results = options.combine(
    options.out(
        help="Write a table with all columns of the input and the results: .csv, .tsv, .jsonl or "
        ".parquet."
    ),
    options.overwrite(help="Overwrite the --out file if it exists."),
)


@click.command()
@options.trained_run
@options.texts
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    help="Answer `unsure` if the probability is lower; with several labels per text, predict those "
    "from this probability.  [default: `unsure` only if most tokens are unknown]",
)
@click.option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print the table that --out writes as CSV.",
)
@results
@options.json()
def classify(
    run: str, threshold: float | None, as_csv: bool, as_json: bool, out: Path | None, **values: Any
) -> None:
    """Classify TEXTS with the model in RUN.

    Prints the most likely label, its probability and the text; for a model with several labels per
    text, all labels from the cutoff that was fitted in training. The answer to a text in which most
    tokens are unknown is `unsure`. Without TEXTS or --file, each line of standard input is a text.
    A model trained on pairs takes TEXTS in pairs, or lines with a tab between the two texts; a
    model for images takes image files, and folders of them.

    \b
    glass classify runs/classify-1 "What a wonderful film" "I fell asleep"
    glass classify runs/classify-1 --file reviews.csv --out labels.csv
    glass classify runs/classify-1 --file reviews.xlsx --text comment --threshold 0.8
    glass classify runs/classify-images-1 photo.png holiday/
    """
    from glassformer.api import load
    from glassformer.data.output import DelimitedWriter, merge_columns
    from glassformer.models.network import Trait
    from glassformer.tasks.label_metrics import label_columns

    if as_csv and as_json:
        raise click.UsageError("give --csv or --json, not both")
    if out and (as_csv or as_json):
        raise click.UsageError("give --out, or --csv or --json, not both")
    model = load(run)
    model.require_labels()
    trained = tuple(model.task.get("text", ()))
    table = DelimitedWriter(sys.stdout)

    def predict(inputs: list["Input"]) -> Iterator[dict[str, Any]]:
        probabilities = model.classify([item.value for item in inputs])
        for item, probs in zip(inputs, probabilities, strict=True):
            label, prob = model.answer(probs, item.texts, threshold)
            label = UNSURE if label is None else label
            yield {"label": label, "probability": prob, "probabilities": probs}

    def show(item: "Input", result: dict[str, Any]) -> None:
        text = " | ".join(item.texts)
        label, prob, probs = result["label"], result["probability"], result["probabilities"]
        if as_csv:
            table.write(merge_columns(item.columns, to_columns(result)))
        elif as_json:
            row = {"text": text, "label": label, "probabilities": probs}
            click.echo(json.dumps(row, ensure_ascii=False))
        else:
            click.echo(f"{label}\t{prob:.3f}\t{text}")

    def to_columns(result: dict[str, Any]) -> dict[str, Any]:
        probs = result["probabilities"]
        return label_columns(result["label"], {label: probs[label] for label in model.labels})

    if model.network.has(Trait.IMAGES):
        if values["file"] is not None:
            raise click.UsageError("this model classifies images: give image files, not --file")
        values["texts"] = list_image_files(values["texts"])
    run_predictions(predict, show, to_columns, out, trained=trained, **values)


def list_image_files(names: tuple[str, ...]) -> tuple[str, ...]:
    """The image files with these names, and those in the folders with these names."""
    from glassformer.data.images import is_image_file

    files = list[str]()
    for name in names:
        in_folder = sorted(p for p in Path(name).rglob("*") if is_image_file(p))
        files += map(str, in_folder) if Path(name).is_dir() else [name]
    return tuple(files)


@click.command()
@options.trained_run
@options.texts
@click.option(
    "--beam",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Beam size, the number of hypotheses; 1 means greedy decoding.",
)
@click.option(
    "--length-penalty",
    default=0.6,
    show_default=True,
    help="Exponent of the length penalty; higher values favor longer translations.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    metavar="T",
    help="Sample translations at this temperature instead of searching for the best one.",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of translations of each text to sample with --temperature.",
)
@click.option("--seed", type=int, help="Random seed for sampling.  [default: random]")
@click.option(
    "--alignment",
    is_flag=True,
    help="Also print the cross-attention from each target token to the source tokens.",
)
@results
@options.json()
def translate(
    run: str,
    alignment: bool,
    samples: int,
    as_json: bool,
    out: Path | None,
    **values: Any,
) -> None:
    """Translate TEXTS with the model in RUN.

    Without TEXTS or --file, each line of standard input is translated. With --temperature, sample
    number i uses the seed + i - 1, and does not depend on the other texts.

    \b
    glass translate runs/translate-1 "三百二十一"
    glass translate runs/translate-1 "三百二十一" --alignment
    glass translate runs/translate-1 "三百二十一" --temperature 1 --samples 5 --seed 0
    glass translate runs/translate-1 --beam 1 --file lines.txt
    glass translate runs/translate-1 --file products.csv --text name --out translated.csv
    """
    from rich.console import Console

    from glassformer.api import load
    from glassformer.inspection.terminal import show as show_steps
    from glassformer.models.network import Trait

    search = {name: values.pop(name) for name in ("beam", "length_penalty")}
    temperature, seed = values.pop("temperature"), values.pop("seed")
    if temperature is None and (samples > 1 or seed is not None):
        raise click.UsageError("--samples and --seed need --temperature")
    if temperature is not None and options.drop_unset(search):
        raise click.UsageError("give --temperature, or --beam and --length-penalty, not both")
    model = load(run)
    model.require_trait(Trait.SEQ2SEQ, "translate")

    def predict(inputs: list["Input"]) -> Iterator[dict[str, Any]]:
        texts = [str(item.value) for item in inputs]
        seeds = [None if seed is None else seed + i for i in range(samples)]
        runs = [model.translate(texts, **search, temperature=temperature, seed=s) for s in seeds]
        for text, *translations in zip(texts, *runs, strict=True):
            yield {"text": text, "translations": translations}

    def show(_item: "Input", result: dict[str, Any]) -> None:
        for translation in result["translations"]:
            show_translation({"text": result["text"], "translation": translation})

    def show_translation(row: dict[str, Any]) -> None:
        aligned = model.align(row["text"], row["translation"]) if alignment else None
        if aligned and as_json:
            weights = [[round(weight, 4) for weight in row] for row in aligned.pattern.tolist()]
            row |= {"source": aligned.source, "target": aligned.target, "alignment": weights}
        click.echo(json.dumps(row, ensure_ascii=False) if as_json else row["translation"])
        if aligned and not as_json:
            show_steps(Console(highlight=False), aligned.steps())

    def to_columns(result: dict[str, Any]) -> dict[str, Any]:
        first, *others = result["translations"]
        return {"translation": first} | {f"translation_{i}": t for i, t in enumerate(others, 2)}

    trained = tuple(model.task.get("text", ("source",)))
    run_predictions(predict, show, to_columns, out, trained=trained, **values)


@click.command()
@options.trained_run
@options.texts
@click.option(
    "--top",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of tokens to print for each mask.",
)
@click.option(
    "--follows",
    is_flag=True,
    help="Take TEXTS in pairs, and print the probability that the second follows the first.",
)
@results
@options.json()
def fill_mask(
    run: str, top: int, follows: bool, as_json: bool, out: Path | None, **values: Any
) -> None:
    """Predict the token at each [MASK] in TEXTS with the model in RUN.

    Prints a line for each mask with the most likely tokens and their probabilities. Without TEXTS
    or --file, each line of standard input is a text. With --follows, TEXTS are pairs, or lines with
    a tab between the two texts; how often the model is right on held-out text, where chance is 50%,
    is printed to standard error.

    \b
    glass fill-mask runs/fill-mask-1 "The [MASK] of the function is a list."
    glass fill-mask runs/fill-mask-1 --follows "An object has a type." "It never changes."
    glass fill-mask runs/fill-mask-1 --file gaps.csv --text sentence --out filled.csv
    """
    from glassformer.api import load

    model = load(run)
    model.require_masks()
    if follows:
        report_next_accuracy(Path(run))
        predict_follows(model, out, as_json=as_json, **values)
        return

    def predict(inputs: list["Input"]) -> Iterator[dict[str, Any]]:
        for item in inputs:
            text = str(item.value)
            masks = model.fill_mask(text, top=top)
            rows = [[{"token": t, "probability": p} for t, p in row] for row in masks]
            yield {"text": text, "masks": rows}

    def show(_item: "Input", result: dict[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(result, ensure_ascii=False))
            return
        for row in result["masks"]:
            click.echo("  ".join(f"{entry['token']} {entry['probability']:.1%}" for entry in row))

    def to_columns(result: dict[str, Any]) -> dict[str, Any]:
        best = " ".join(str(row[0]["token"]) for row in result["masks"])
        return {"tokens": best, "masks": result["masks"]}

    run_predictions(predict, show, to_columns, out, **values)


def report_next_accuracy(path: Path) -> None:
    """Print the next-sentence accuracy that a run ended with, if it has ended."""
    from glassformer.training.run import Run

    for row in Run(path).metrics():
        if row["kind"] == "final" and "pairs" in row:
            pairs, accuracy = f"{row['pairs']:,}", f"{row['next_accuracy']:.1%}"
            echo(f"next-sentence accuracy on {pairs} held-out pairs: {accuracy}", err=True)


def predict_follows(model: "Model", out: Path | None, *, as_json: bool, **values: Any) -> None:
    """Print for each pair of texts the probability that the second follows the first."""

    def predict(inputs: list["Input"]) -> Iterator[dict[str, Any]]:
        probs = model.follows([item.texts for item in inputs])
        for item, prob in zip(inputs, probs, strict=True):
            yield {"texts": item.texts, "probability": prob}

    def show(_item: "Input", result: dict[str, Any]) -> None:
        line = f"{result['probability']:.3f}\t{' | '.join(result['texts'])}"
        click.echo(json.dumps(result, ensure_ascii=False) if as_json else line)

    def to_columns(result: dict[str, Any]) -> dict[str, Any]:
        return {"probability": result["probability"]}

    run_predictions(predict, show, to_columns, out, trained=("first", "second"), **values)


@click.command()
@options.trained_run
@options.texts
@options.out(
    help="Write the vectors to this .npy file, or all columns of the input and the vectors to a "
    ".csv, .tsv, .jsonl or .parquet file, instead of printing one JSON object per line."
)
@options.overwrite(help="Overwrite the --out file if it exists.")
@click.option(
    "--similarity",
    is_flag=True,
    help="Instead of vectors, print the cosine of the angle between each two of TEXTS as a table.",
)
def embed(run: str, out: Path | None, similarity: bool, **values: Any) -> None:
    """Compute an embedding vector for each of TEXTS with the model in RUN.

    Without TEXTS or --file, each line of standard input is a text.

    \b
    glass embed runs/fill-mask-1 "one text" "another"
    glass embed runs/fill-mask-1 "one text" "another" --similarity
    glass embed runs/fill-mask-1 --file lines.txt --out vectors.npy
    glass embed runs/fill-mask-1 --file reviews.csv --out vectors.parquet
    """
    import numpy as np

    from glassformer.api import load

    if similarity and out is not None:
        raise click.UsageError("give --out or --similarity, not both")
    model = load(run)
    vectors = list[Any]()
    is_array = out is not None and out.suffix == ".npy"

    def predict(inputs: list["Input"]) -> Iterator[dict[str, Any]]:
        texts = [str(item.value) for item in inputs]
        for text, vector in zip(texts, model.embed(texts), strict=True):
            yield {"text": text, "vector": vector}

    def show(_item: "Input", result: dict[str, Any]) -> None:
        if is_array:
            vectors.append(result["vector"])
        else:
            result["vector"] = result["vector"].tolist()
            click.echo(json.dumps(result, ensure_ascii=False))

    def to_columns(result: dict[str, Any]) -> dict[str, Any]:
        return {"vector": result["vector"].tolist()}

    if similarity:
        rows = list[dict[str, Any]]()
        run_predictions(predict, lambda _, row: rows.append(row), to_columns, None, **values)
        print_cosines(rows)
        return
    if out is None or not is_array:
        run_predictions(predict, show, to_columns, out, outputs=(".npy",), **values)
        return
    options.check_output_paths(out, overwrite=values["overwrite"])
    run_predictions(predict, show, to_columns, None, **values)
    array = np.stack(vectors) if vectors else np.empty((0, model.config.dim), np.float32)
    np.save(out, array)
    dim = array.shape[1]
    echo(f"wrote {len(array)} vectors of {dim} dimensions to {out}", err=True)


def print_cosines(rows: list[dict[str, Any]]) -> None:
    """Print a table of the cosines of the vectors of each two texts."""
    import numpy as np

    from glassformer.predict import cosines

    vectors = np.array([row["vector"] for row in rows], dtype=np.float32)
    for values, row in zip(cosines(vectors, vectors) if rows else [], rows, strict=True):
        click.echo("\t".join((*(f"{value:.3f}" for value in values), row["text"])))


def run_predictions(
    predict: Callable[[list["Input"]], Iterator[dict[str, Any]]],
    show: Callable[["Input", dict[str, Any]], None],
    to_columns: Callable[[dict[str, Any]], dict[str, Any]],
    out: Path | None,
    *,
    overwrite: bool,
    skip_bad: bool,
    trained: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    **values: Any,
) -> None:
    """Predict on the inputs in chunks; show each result or, with `out`, write it to a table.

    `trained` are the text columns of the training data, `outputs` other endings that the command
    accepts for `out`, and `values` the other options of `options.texts`.
    """
    from glassformer.core.reporter import ProgressBar, Reporter
    from glassformer.data.files import BadRowPolicy, CountBadRows
    from glassformer.data.output import OUTPUTS, TableWriter, merge_columns

    options.check_output_paths(out, overwrite=overwrite)
    if out is not None and out.suffix.lower() not in OUTPUTS:
        endings = ", ".join((*outputs, *OUTPUTS))
        raise click.UsageError(f"--out: expected a file name ending in {endings}, got {out}")
    with contextlib.ExitStack() as stack:
        on_bad_row = CountBadRows() if skip_bad else BadRowPolicy()
        stack.callback(report_skipped, on_bad_row)
        inputs, count = open_inputs(
            stack, on_bad_row, trained=trained, count=out is not None, **values
        )
        reporter = Reporter()
        writer = stack.enter_context(TableWriter(out)) if out else None
        bar = ProgressBar(reporter, "predicting", count) if count else None
        while chunk := list(islice(inputs, CHUNK)):
            for item, result in predict_chunk(predict, chunk, on_bad_row):
                if writer:
                    writer.write(merge_columns(item.columns, to_columns(result)))
                else:
                    show(item, result)
            if bar:
                bar.add(len(chunk))
        reporter.clear()
        if writer:
            echo(f"wrote {writer.count:,} rows to {out}", err=True)


def predict_chunk(
    predict: Callable[[list["Input"]], Iterator[dict[str, Any]]],
    chunk: list["Input"],
    on_bad_row: "BadRowPolicy",
) -> list[tuple["Input", dict[str, Any]]]:
    """Return the inputs with their results; report rows of a file without a result as bad rows."""
    from glassformer.core.errors import GlassError

    try:
        return list(zip(chunk, predict(chunk), strict=True))
    except GlassError as error:
        if not chunk[0].location:
            raise
        if len(chunk) == 1:
            on_bad_row(chunk[0].location, str(error), " ".join(chunk[0].texts))
            return []
    return [pair for item in chunk for pair in predict_chunk(predict, [item], on_bad_row)]


def open_inputs(
    stack: contextlib.ExitStack,
    on_bad_row: "BadRowPolicy",
    *,
    texts: tuple[str, ...],
    file: Path | None,
    text: tuple[str, ...],
    trained: tuple[str, ...],
    count: bool,
    **format: Any,
) -> tuple[Iterator["Input"], int]:
    """Return the inputs, from arguments, a file or standard input; with `count`, also their number.

    Temporary files are deleted when `stack` is closed.
    """
    from glassformer.data.files import IgnoreBadRows, save_streams
    from glassformer.data.format import FileFormat
    from glassformer.data.images import is_image_file
    from glassformer.data.inputs import read_inputs, to_inputs
    from glassformer.data.tables import describe_formats

    names = text or trained
    if file is None:
        for name in texts:
            # Path.is_file fails for texts that are too long to be a name
            if os.path.isfile(name) and not is_image_file(Path(name)):  # noqa: PTH113
                echo(f"{name} is treated as text; to read the file: --file {name}", err=True)
        lines = list(texts) or [line.rstrip("\n") for line in sys.stdin]
        values = make_pairs(list(texts), lines) if len(names) > 1 else lines
        return iter(to_inputs(values, names)), len(values) if count else 0
    if texts:
        raise click.UsageError("give TEXTS or --file, not both")
    file_format = FileFormat(columns=names, **format)
    scratch = Path(stack.enter_context(TemporaryDirectory()))
    (path,) = save_streams((file,), scratch)
    for line in describe_formats((path,), file_format):
        echo(line, err=True)
    report = partial(echo, err=True)
    inputs = read_inputs(path, on_bad_row, file_format, text, trained, report)
    if not count:
        return inputs, 0
    return inputs, sum(1 for _ in read_inputs(path, IgnoreBadRows(), file_format, text, trained))


def report_skipped(on_bad_row: "BadRowPolicy") -> None:
    from glassformer.data.files import CountBadRows

    if isinstance(on_bad_row, CountBadRows) and on_bad_row.count:
        rows = "1 bad row" if on_bad_row.count == 1 else f"{on_bad_row.count:,} bad rows"
        echo(f"left out {rows}; the first: {on_bad_row.first[0]}", err=True)


def make_pairs(arguments: list[str], texts: list[str]) -> list[tuple[str, ...]]:
    """Group the texts into pairs if they are arguments; else split each line at its tab."""
    if arguments:
        return [tuple(texts[i : i + 2]) for i in range(0, len(texts), 2)]
    return [tuple(line.split("\t")) for line in texts]
