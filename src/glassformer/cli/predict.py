"""Commands that predict with a trained model: classify, translate, fill-mask, embed."""

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
    from glassformer.api import Model
    from glassformer.data.inputs import Input

UNSURE = "unsure"


@click.command()
@options.trained_run
@options.texts
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    help="Print `unsure` if the probability is lower; with several labels per text, predict those "
    "that reach this probability.  [default: `unsure` only if most tokens are unknown]",
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
    text, all labels whose probability reaches the threshold fitted in training. Prints `unsure` for
    a text in which most tokens are unknown. Without TEXTS or --file, each line of standard input is
    a text. A model trained on pairs takes TEXTS in pairs, or lines with a tab between the two
    texts; a model for images takes image files, and folders of them.

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
            label, prob = model.predict_label(probs, item.texts, threshold)
            label = UNSURE if label is None else label
            yield {"label": label, "probability": prob, "probabilities": probs}

    def show(item: "Input", result: dict[str, Any]) -> None:
        text = " | ".join(item.texts)
        label = result["label"]
        prob = result["probability"]
        probs = result["probabilities"]
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
    temperature = values.pop("temperature")
    seed = values.pop("seed")
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
            pairs = f"{row['pairs']:,}"
            accuracy = f"{row['next_accuracy']:.1%}"
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
    from glassformer.core.reporter import format_count

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
    vectors_text = format_count(len(array), "vector")
    echo(f"wrote {vectors_text} of {dim} dimensions to {out}", err=True)


def print_cosines(rows: list[dict[str, Any]]) -> None:
    """Print a table of the cosines of the vectors of each two texts."""
    import numpy as np

    from glassformer.predict import cosines

    vectors = np.array([row["vector"] for row in rows], dtype=np.float32)
    for values, row in zip(cosines(vectors, vectors) if rows else [], rows, strict=True):
        click.echo("\t".join((*(f"{value:.3f}" for value in values), row["text"])))
