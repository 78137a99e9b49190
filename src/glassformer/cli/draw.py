"""`glass draw`: the pictures of the tutorials, from real values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from glassformer.cli.inputs import free

TAKES = {
    "layer": ("attention", "lines", "norm"), "head": ("attention", "lines"),
    "part": ("architecture",),
}  # fmt: skip


@click.command()
@click.argument("name")
@click.argument("run", required=False, type=click.Path(exists=True))
@click.argument("text", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="The file.  [default: NAME.png]")
@click.option(
    "--layer", help="A block by its number, or a layer as decoder.0.cross.  [default: the first]"
)
@click.option("--head", type=int, help="Which head of the layer.  [default: 0]")
@click.option("--part", help="What architecture lights.  [default: attention]")
@click.option("--overwrite", is_flag=True, help="Write over a file that is there.")
def draw(name: str, run: str | None, text: str | None, **options: Any) -> None:
    """Draw NAME into a file: .png, .svg or .pdf, and .gif for what moves (unfolding).

    Some need no model: one-hot, markov, waves, softmax, masks, skips, architecture. The others show
    TEXT on its way through RUN: words, attention, lines, heads, residual, norm, lens, and of a
    translation alignment and unfolding.

    \b
    glass draw waves
    glass draw architecture --part cross --out cross.svg
    glass draw attention runs/generate-1 "the cat sat on the mat" --layer 1 --head 2
    glass draw unfolding runs/translate-1 三百二十一
    """
    from glassformer.api import load
    from glassformer.core.config import nearest
    from glassformer.core.errors import GlassError
    from glassformer.inspection.draw import MOVING, OF_A_TEXT, STILL, save
    from glassformer.inspection.sketches import ALONE, sketch

    if name not in (*ALONE, *OF_A_TEXT):
        choice = ", ".join((*ALONE, *OF_A_TEXT))
        hint = nearest(name, (*ALONE, *OF_A_TEXT))
        raise GlassError(f"there is no picture {name!r}{hint or f'; there are {choice}'}")
    kinds = MOVING if name == "unfolding" else STILL
    file = options["out"] or Path(name + kinds[0])
    if file.suffix not in kinds:
        raise click.UsageError(f"{file}: this picture is written as {' or '.join(kinds)}")
    free(file, overwrite=options["overwrite"])
    if (name in ALONE) != (run is None) or (name in OF_A_TEXT) != (text is not None):
        raise click.UsageError(
            f"{name} needs no model" if name in ALONE else f"{name} needs a run and a text"
        )
    for option, takers in TAKES.items():
        if options[option] is not None and name not in takers:
            raise click.UsageError(f"{name} takes no --{option}; {' and '.join(takers)} do")
    if run is None or text is None:
        chart = sketch(name, options["part"] or "attention")
    else:
        layer: int | str | None = options["layer"]
        if layer and str(layer).lstrip("-").isdigit():
            layer = int(layer)
        chart = load(run).draw(name, text, layer=layer, head=options["head"] or 0)
    save(chart, file)
    click.echo(file)
