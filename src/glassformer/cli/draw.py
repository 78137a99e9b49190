"""`glass draw`: the pictures of the tutorials, from real values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from glassformer.api import Model

ALONE = ("one-hot", "markov", "waves", "softmax", "masks", "skips", "architecture")
OF_A_TEXT = ("words", "attention", "lines", "heads", "residual", "norm", "lens", "alignment")


@click.command()
@click.argument("name", type=click.Choice([*ALONE, *OF_A_TEXT, "unfolding"]))
@click.argument("run", required=False, type=click.Path(exists=True))
@click.argument("text", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="The file.  [default: NAME.png]")
@click.option("--layer", default=0, show_default=True, help="Which layer of the model.")
@click.option("--head", default=0, show_default=True, help="Which head of the layer.")
@click.option("--part", default="attention", show_default=True, help="What architecture lights.")
@click.option("--overwrite", is_flag=True, help="Write over a file that is there.")
def draw(name: str, run: str | None, text: str | None, **options: Any) -> None:
    """Draw NAME into a file: .png, .svg or .pdf, and .gif for what moves (unfolding).

    Some pictures need no model (one-hot, markov, waves, softmax, masks, skips, architecture); the
    others show TEXT on its way through RUN.

    \b
    glass draw waves
    glass draw architecture --part cross --out cross.svg
    glass draw attention runs/generate-1 "the cat sat on the mat" --layer 1 --head 2
    glass draw unfolding runs/translate-1 三百二十一
    """
    from glassformer.inspection import draw as pictures

    file = options["out"] or Path(f"{name}.{'gif' if name == 'unfolding' else 'png'}")
    if file.exists() and not options["overwrite"]:
        raise click.UsageError(f"{file} exists already: name another with --out, or --overwrite")
    if name in ALONE:
        if run is not None:
            raise click.UsageError(f"{name} needs no model")
        chart = alone(name, options["part"])
    else:
        if run is None or text is None:
            raise click.UsageError(f"{name} needs a run and a text")
        from glassformer.api import load

        chart = of_a_text(name, load(run), text, options["layer"], options["head"])
    pictures.save(chart, file)
    click.echo(file)


def alone(name: str, part: str) -> Any:
    from glassformer.inspection import sketches

    if name == "architecture":
        return sketches.architecture(part)
    return getattr(sketches, name.replace("-", "_"))()


def of_a_text(name: str, model: Model, text: str, layer: int, head: int) -> Any:
    from glassformer.inspection import draw as pictures
    from glassformer.inspection.reading import read

    if name in ("alignment", "unfolding"):
        return getattr(pictures, name)(model.align(text, model.translate(text)))
    reading = read(model.network, model.words(), text)
    if name in ("attention", "lines"):
        return getattr(pictures, name)(reading, layer, head)
    if name == "norm":
        return pictures.norm(reading, layer)
    if name == "lens":
        return pictures.lens(model.network, model.words(), reading)
    if name == "words":
        return pictures.words(model.network, reading)
    return getattr(pictures, name)(reading)
