"""`glass average`: one model from the last weights of several runs."""

from pathlib import Path

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace it if it exists.")
def average(runs: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Write a model whose weights are the mean of the last weights of RUNS.

    The runs must have started from the same weights or the mean means nothing: runs of one --seed,
    or --from one model.

    \b
    glass average runs/translate-1 runs/translate-2 --out averaged
    """
    from glassformer.checkpoint import average as mean

    mean(runs, out, overwrite=overwrite)
    click.echo(out)
