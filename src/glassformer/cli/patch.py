"""`glass patch`: which values carry the difference between two texts."""

from __future__ import annotations

import json
from pathlib import Path

import click

from glassformer.cli.inputs import free
from glassformer.cli.language import spoken


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("clean")
@click.argument("corrupt")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it (.png, .svg, .pdf).")
@click.option("--overwrite", is_flag=True, help="Write over a picture that is there.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@spoken
def patch(
    run: str, clean: str, corrupt: str, plot: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Put values of the CLEAN text, one at a time, into RUN's reading of the CORRUPT one.

    Shows how much of the difference between the two answers each value brings back: what each block
    says at each token, what its attention and its feed-forward layer add, and each head alone.

    \b
    glass patch runs/generate-1 "the cat sat on the" "the dog lay on the"
    """
    from rich.console import Console
    from torch import Tensor

    from glassformer.api import load
    from glassformer.inspection.screen import show
    from glassformer.core.reporter import Reporter

    free(plot, overwrite=overwrite)
    found = load(run).patch(clean, corrupt, tell=Reporter())
    if plot is not None:
        from glassformer.inspection.draw import patch_map, save

        save(patch_map(found), plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        click.echo(json.dumps(vars(found), default=Tensor.tolist))
        return
    show(Console(highlight=False), found.steps())
