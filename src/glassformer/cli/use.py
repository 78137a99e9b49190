"""Commands that use a trained model: generate, classify, translate, fill-mask, embed."""

import csv
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo


@click.command()
@options.trained_run
@click.argument("prompt", default="")
@click.option(
    "-n",
    "--max-new-tokens",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Maximum number of tokens to generate.",
)
@click.option(
    "-t",
    "--temperature",
    default=0.8,
    show_default=True,
    help="Sampling temperature; 0 means greedy decoding.",
)
@click.option(
    "--top-k",
    default=0,
    show_default=True,
    help="Sample only from the k most likely tokens; 0 means no limit.",
)
@click.option(
    "--top-p",
    default=1.0,
    show_default=True,
    help="Sample only from the smallest set of most likely tokens whose total probability is at "
    "least p.",
)
@click.option(
    "--min-p",
    default=0.0,
    show_default=True,
    help="Sample only tokens with at least p times the probability of the most likely one.",
)
@click.option(
    "--repetition-penalty",
    default=1.0,
    show_default=True,
    help="Make tokens that already occurred less likely; 1 means no penalty.",
)
@click.option(
    "--stop", multiple=True, metavar="STRING", help="Stop before this string; can be repeated."
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of continuations to generate.",
)
@click.option("--seed", type=int, help="Random seed for sampling.  [default: random]")
@options.json()
def generate(
    run: str, prompt: str, samples: int, seed: int | None, as_json: bool, **sampling: Any
) -> None:
    """Generate a continuation of PROMPT with the model in RUN.

    Prints the prompt and the continuation. With - as PROMPT, the prompt is read from standard
    input.

    \b
    glass generate runs/generate-1 "To be, or"
    head -3 sonnet.txt | glass generate runs/generate-1 - -n 400 --temperature 0.7
    """
    from glassformer.api import load

    model = load(run)
    text = sys.stdin.read() if prompt == "-" else prompt
    tokenizer = model.require_tokenizer()
    ids, unknown = tokenizer.encode(text), tokenizer.special_tokens.get("<unk>", -1)
    if unknown in ids:
        count = ids.count(unknown)
        tokens = "1 token of the prompt is" if count == 1 else f"{count} tokens of the prompt are"
        echo(f"warning: {tokens} not in the vocabulary", err=True)
    for i in range(samples):
        sample_seed = None if seed is None else seed + i
        chunks = model.stream(text, seed=sample_seed, **sampling)
        if as_json:
            click.echo(json.dumps({"prompt": text, "text": "".join(chunks)}, ensure_ascii=False))
            continue
        click.echo(text, nl=False)
        for chunk in chunks:
            click.echo(chunk, nl=False)
        click.echo("\n---" * (i + 1 < samples))


@click.command()
@options.trained_run
@options.texts
@click.option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print a CSV table with a probability column for each label.",
)
@options.json()
def classify(run: str, as_csv: bool, as_json: bool, **inputs: Any) -> None:
    """Classify TEXTS with the model in RUN.

    Prints the most likely label, its probability and the text. Without TEXTS or --file, each line
    of standard input is a text. A model trained on pairs takes TEXTS in pairs, or lines with a tab
    between the two texts.

    \b
    glass classify runs/classify-1 "What a wonderful film" "I fell asleep"
    glass classify runs/classify-1 --file reviews.csv --csv > labels.csv
    """
    from glassformer.api import load

    if as_csv and as_json:
        raise click.UsageError("give --csv or --json, not both")
    model = load(run)
    inputs["text"] = inputs["text"] or tuple(model.task.get("text", ()))
    texts = read_texts(**inputs)
    if len(inputs["text"]) > 1 and inputs["file"] is None:
        texts = make_pairs(list(inputs["texts"]), texts)
    predictions, table = model.classify(texts), csv.writer(sys.stdout)
    if as_csv:
        table.writerow(["text", "label", *model.task["labels"]])
    for text, probs in zip(texts, predictions, strict=True):
        best, text = next(iter(probs)), text if isinstance(text, str) else " | ".join(text)
        if as_csv:
            table.writerow([text, best, *(f"{probs[name]:.4f}" for name in model.task["labels"])])
        elif as_json:
            row = {"text": text, "label": best, "probabilities": probs}
            click.echo(json.dumps(row, ensure_ascii=False))
        else:
            click.echo(f"{best}\t{probs[best]:.3f}\t{text}")


def make_pairs(arguments: list[str], texts: list[str]) -> list[tuple[str, ...]]:
    """Group the texts into pairs if they are arguments; else split each line at its tab."""
    if arguments:
        return [tuple(texts[i : i + 2]) for i in range(0, len(texts), 2)]
    return [tuple(line.split("\t")) for line in texts]


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
    "--alignment",
    is_flag=True,
    help="Also print the cross-attention from each target token to the source tokens.",
)
@options.json()
def translate(
    run: str, beam: int, length_penalty: float, alignment: bool, as_json: bool, **inputs: Any
) -> None:
    """Translate TEXTS with the model in RUN.

    Without TEXTS or --file, each line of standard input is translated.

    \b
    glass translate runs/translate-1 "三百二十一"
    glass translate runs/translate-1 "三百二十一" --alignment
    glass translate runs/translate-1 --beam 1 --file lines.txt
    """
    from rich.console import Console

    from glassformer.api import load
    from glassformer.inspection.terminal import show

    model = load(run)
    texts = read_texts(**inputs)
    translations = model.translate(texts, beam=beam, length_penalty=length_penalty)
    for text, translation in zip(texts, translations, strict=True):
        result: dict[str, Any] = {"text": text, "translation": translation}
        aligned = model.align(text, translation) if alignment else None
        if aligned and as_json:
            rows = [[round(weight, 4) for weight in row] for row in aligned.pattern.tolist()]
            result |= {
                "source": aligned.source,
                "target": aligned.target,
                "alignment": rows,
            }
        click.echo(json.dumps(result, ensure_ascii=False) if as_json else translation)
        if aligned and not as_json:
            show(Console(highlight=False), aligned.steps())


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
@options.json()
def fill_mask(run: str, top: int, as_json: bool, **inputs: Any) -> None:
    """Predict the token at each [MASK] in TEXTS with the model in RUN.

    Prints a line for each mask with the most likely tokens and their probabilities. Without TEXTS
    or --file, each line of standard input is a text.

    \b
    glass fill-mask runs/fill-mask-1 "The [MASK] of the function is a list."
    """
    from glassformer.api import load

    model = load(run)
    for text in read_texts(**inputs):
        masks = model.fill_mask(text, top=top)
        if as_json:
            rows = [[{"token": t, "probability": p} for t, p in row] for row in masks]
            click.echo(json.dumps({"text": text, "masks": rows}, ensure_ascii=False))
        else:
            for row in masks:
                click.echo("  ".join(f"{token} {prob:.1%}" for token, prob in row))


@click.command()
@options.trained_run
@options.texts
@options.out(
    help="Write the vectors to this .npy file instead of printing one JSON object per line."
)
@options.overwrite(help="Overwrite the --out file if it exists.")
def embed(run: str, out: Path | None, overwrite: bool, **inputs: Any) -> None:
    """Compute an embedding vector for each of TEXTS with the model in RUN.

    Without TEXTS or --file, each line of standard input is a text.

    \b
    glass embed runs/fill-mask-1 "one text" "another"
    glass embed runs/fill-mask-1 --file lines.txt --out vectors.npy
    """
    import numpy as np

    from glassformer.api import load

    if out and out.suffix != ".npy":  # numpy would add the suffix
        raise click.UsageError(f"--out: expected a .npy file, got {out}")
    options.check_output_paths(out, overwrite=overwrite)
    texts = read_texts(**inputs)
    vectors = load(run).embed(texts)
    if out:
        np.save(out, vectors)
        dim = vectors.shape[1]
        echo(f"wrote {len(vectors)} vectors of {dim} dimensions to {out}", err=True)
        return
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        click.echo(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))


def read_texts(texts: tuple[str, ...], file: Path | None, text: tuple[str, ...] = ()) -> list[Any]:
    """Return texts from the arguments, the file (tuples if `text` has two columns) or stdin."""
    from glassformer.data.files import save_streams

    if file is None:
        for name in texts:
            if len(name) < 200 and Path(name).is_file():
                echo(f"{name} is treated as text; to read the file: --file {name}", err=True)
        return list(texts) or [line.rstrip("\n") for line in sys.stdin]
    if texts:
        raise click.UsageError("give TEXTS or --file, not both")
    with TemporaryDirectory() as scratch:
        (file,) = save_streams((file,), Path(scratch), table=False)
        return read_file(file, text)


def read_file(file: Path, text: tuple[str, ...]) -> list[Any]:
    """Return the lines of a text file, or the values in the `text` columns of a table."""
    from glassformer.core.errors import GlassError
    from glassformer.data.corpus import guess_column
    from glassformer.data.files import TABLES, BadRowPolicy, file_type, read_lines, read_rows

    if file_type(file) not in TABLES:
        return [line.rstrip("\n") for _, line in read_lines(file, BadRowPolicy())]
    columns = text or (guess_column([file]) or "",)
    texts: list[Any] = []
    for row in read_rows(file, BadRowPolicy()):
        missing = [name for name in columns if name not in row.values]
        if missing:
            names = ", ".join(row.values)
            raise GlassError(f"{row.location}: no column {missing[0]!r}; the columns are {names}")
        values = tuple(row.values[name] for name in columns)
        texts.append(values if len(values) > 1 else values[0])
    return texts
