"""Commands that use a trained model: generate, classify, translate, fill-mask, embed."""

import csv
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from glassformer.cli import options


@click.command()
@options.trained_run
@click.argument("prompt", default="")
@click.option(
    "-n", "--tokens", type=click.IntRange(1), default=200, show_default=True, help="Tokens to add."
)
@click.option("-t", "--temperature", default=0.8, show_default=True, help="0 takes the best.")
@click.option("--top-k", default=0, help="Only the k likeliest tokens.")
@click.option("--top-p", default=1.0, help="Only the likeliest that together reach this.")
@click.option("--min-p", default=0.0, help="Only what has this share of the likeliest.")
@click.option("--repetition", default=1.0, help="Above 1, what was said is less likely.")
@click.option("--stop", multiple=True, help="End before this text.")
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many continuations.",
)
@click.option("--seed", type=int, help="Makes it repeatable.")
@options.json()
def generate(
    run: str, prompt: str, tokens: int, samples: int, seed: int | None, as_json: bool, **rest: Any
) -> None:
    """Continue PROMPT, or standard input if it is -, with the model in RUN.

    \b
    glass generate runs/generate-1 "To be, or"
    head -3 sonnet.txt | glass generate runs/generate-1 - -n 400 --temperature 0.7
    """
    from glassformer.api import load

    model = load(run)
    text = sys.stdin.read() if prompt == "-" else prompt
    ids, unknown = model.require_tokenizer().encode(text), model.words().special_tokens.get("<unk>", -1)
    if unknown in ids:
        click.echo(f"{ids.count(unknown)} tokens that the model never saw", err=True)
    for i in range(samples):
        sample_seed = None if seed is None else seed + i
        pieces = model.stream(text, max_new_tokens=tokens, seed=sample_seed, **rest)
        if as_json:
            click.echo(json.dumps({"prompt": text, "text": "".join(pieces)}, ensure_ascii=False))
            continue
        click.echo(text, nl=False)
        for piece in pieces:
            click.echo(piece, nl=False)
        click.echo("\n---" * (i + 1 < samples))


@click.command()
@options.trained_run
@options.texts
@click.option("--csv", "as_csv", is_flag=True, help="A table with a column for each label.")
@options.json()
def classify(run: str, as_csv: bool, as_json: bool, **inputs: Any) -> None:
    """Label TEXTS, a file, or the lines of standard input, with the model in RUN.

    A model that learnt from pairs takes texts two by two, and lines with a tab between.

    \b
    glass classify runs/classify-1 "What a wonderful film" "I fell asleep"
    glass classify runs/classify-1 --file reviews.csv --csv > labels.csv
    """
    from glassformer.api import load

    model = load(run)
    inputs["text"] = inputs["text"] or tuple(model.task.get("text", ()))
    texts = read_texts(**inputs)
    if len(inputs["text"]) > 1 and inputs["file"] is None:
        texts = make_pairs(list(inputs["texts"]), texts)
    answers, table = model.classify(texts), csv.writer(sys.stdout)
    if as_csv:
        table.writerow(["text", "label", *model.task["labels"]])
    for text, probs in zip(texts, answers, strict=True):
        best, text = next(iter(probs)), text if isinstance(text, str) else " | ".join(text)
        if as_csv:
            table.writerow([text, best, *(f"{probs[name]:.4f}" for name in model.task["labels"])])
        elif as_json:
            answer = {"text": text, "label": best, "probabilities": probs}
            click.echo(json.dumps(answer, ensure_ascii=False))
        else:
            click.echo(f"{best}\t{probs[best]:.3f}\t{text}")


def make_pairs(arguments: list[str], texts: list[str]) -> list[tuple[str, ...]]:
    """Pair arguments two by two, or split each line at its tab."""
    if arguments:
        return [tuple(texts[i : i + 2]) for i in range(0, len(texts), 2)]
    return [tuple(line.split("\t")) for line in texts]


@click.command()
@options.trained_run
@options.texts
@click.option("--beam", type=click.IntRange(1, 64), default=4, show_default=True, help="Width.")
@click.option("--penalty", default=0.6, show_default=True, help="Above 0 favours longer answers.")
@click.option("--alignment", is_flag=True, help="What each token read of the source.")
@options.json()
def translate(
    run: str, beam: int, length_penalty: float, alignment: bool, as_json: bool, **inputs: Any
) -> None:
    """Translate TEXTS, a file, or the lines of standard input, with the model in RUN.

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
        answer: dict[str, Any] = {"text": text, "translation": translation}
        aligned = model.align(text, translation) if alignment else None
        if aligned and as_json:
            rows = [[round(weight, 4) for weight in row] for row in aligned.pattern.tolist()]
            answer |= {
                "source": aligned.source,
                "target": aligned.target,
                "alignment": rows,
            }
        click.echo(json.dumps(answer, ensure_ascii=False) if as_json else translation)
        if aligned and not as_json:
            show(Console(highlight=False), aligned.steps())


@click.command()
@options.trained_run
@options.texts
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Guesses.")
@options.json()
def fill_mask(run: str, top: int, as_json: bool, **inputs: Any) -> None:
    """Guess each [MASK] in TEXTS, a file, or lines of standard input, with the model in RUN.

    \b
    glass fill-mask runs/fill-mask-1 "The [MASK] of the function is a list."
    """
    from glassformer.api import load

    model = load(run)
    for text in read_texts(**inputs):
        masks = model.fill_mask(text, top=top)
        if as_json:
            guesses = [[{"token": t, "probability": p} for t, p in row] for row in masks]
            click.echo(json.dumps({"text": text, "masks": guesses}, ensure_ascii=False))
        else:
            for row in masks:
                click.echo("  ".join(f"{token} {prob:.1%}" for token, prob in row))


@click.command()
@options.trained_run
@options.texts
@options.out(help="A .npy file; else an object a line is printed.", type=click.Path())
def embed(run: str, out: str | None, **inputs: Any) -> None:
    """Give a vector for each of TEXTS, or lines of a file or standard input, with the model in RUN.

    \b
    glass embed runs/fill-mask-1 "one text" "another"
    glass embed runs/fill-mask-1 --file lines.txt --out vectors.npy
    """
    import numpy as np

    from glassformer.api import load

    texts = read_texts(**inputs)
    vectors = load(run).embed(texts)
    if out:
        np.save(out, vectors)
        size = vectors.shape[1]
        click.echo(f"{len(vectors)} vectors of {size} numbers written to {out}", err=True)
        return
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        click.echo(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))


def read_texts(texts: tuple[str, ...], file: Path | None, text: tuple[str, ...] = ()) -> list[Any]:
    """Return the arguments, a file's texts (pairs if two columns are named), or stdin's lines."""
    from glassformer.data.files import save_streams

    if file is None:
        for name in texts:
            if len(name) < 200 and Path(name).is_file():
                click.echo(f"{name} is taken as a text; --file {name} reads the file", err=True)
        return list(texts) or [line.rstrip("\n") for line in sys.stdin]
    if texts:
        raise click.UsageError("give texts or --file, not both")
    with TemporaryDirectory() as scratch:
        (file,) = save_streams((file,), Path(scratch), table=False)
        return read_file(file, text)


def read_file(file: Path, text: tuple[str, ...]) -> list[Any]:
    """Return the lines of a file, or the values in columns of a table."""
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
            raise GlassError(f"{row.location}: there is no {missing[0]!r}; have {list(row.values)}")
        values = tuple(row.values[name] for name in columns)
        texts.append(values if len(values) > 1 else values[0])
    return texts
