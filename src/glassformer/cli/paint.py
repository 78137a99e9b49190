"""The command that paints images: paint."""

from pathlib import Path

import click

from glassformer.cli import options


@click.command()
@options.trained_run
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    help="Number of images to paint.",
)
@click.option(
    "--class",
    "label",
    metavar="LABEL",
    help="Paint only images of this class.  [default: all classes in turn]",
)
@click.option(
    "--columns",
    type=click.IntRange(1, 1000),
    help="Images in a row of the grid.  [default: as many as classes, or about as many as rows]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@options.out(help="Image file to write.  [default: painted.png]")
@options.overwrite(help="Overwrite the file if it exists.")
def paint(
    run: str,
    count: int,
    label: str | None,
    columns: int | None,
    seed: int,
    out: Path | None,
    overwrite: bool,
) -> None:
    """Paint N new images with the model in RUN and write them in one image grid.

    \b
    glass paint runs/paint-1 -n 64
    glass paint runs/paint-1 -n 16 --class 3 --seed 7 --out threes.png
    """
    from glassformer.api import load
    from glassformer.data.images import make_sheet
    from glassformer.tasks.paint import count_columns

    out = out or Path("painted.png")
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg", ".bmp", ".webp"):
        raise click.UsageError(f"--out: expected an image file such as painted.png, got {out}")
    options.check_output_paths(out, overwrite=overwrite)
    model = load(run)
    images = model.paint(count, label=label, seed=seed).transpose(0, 3, 1, 2)
    classes = 1 if label else len(model.task["labels"])
    make_sheet(images, columns or count_columns(count, classes)).save(out)
    click.echo(out)
