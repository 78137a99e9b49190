"""`glass patch`: which values carry the difference between two texts."""

from __future__ import annotations

import json
from pathlib import Path

import click

from glassformer.cli.grid import grid
from glassformer.cli.inputs import free


@click.command()
@click.argument("run", type=click.Path(exists=True))
@click.argument("clean")
@click.argument("corrupt")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it (.png, .svg, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="One object.")
def patch(run: str, clean: str, corrupt: str, plot: Path | None, as_json: bool) -> None:
    """Put values of the CLEAN text, one at a time, into RUN's reading of the CORRUPT one.

    Shows how much of the difference between the two answers each value brings back: what each block
    says at each token, what its attention and its feed-forward layer add, and each head alone.

    \b
    glass patch runs/generate-1 "the cat sat on the" "the dog lay on the"
    """
    from rich.console import Console

    from glassformer.api import load

    free(plot)
    found = load(run).patch(clean, corrupt)
    places = {name: shares.tolist() for name, shares in found.places.items()}
    heads = {name: shares.tolist() for name, shares in found.heads.items()}
    if plot is not None:
        from glassformer.inspection.draw import patch_map, save

        save(patch_map(found), plot)
    if as_json:
        said = {"clean": found.clean, "corrupt": found.corrupt, "answers": found.answers}
        click.echo(json.dumps({**said, "gap": found.gap, "places": places, "heads": heads}))
        return
    console = Console(highlight=False)
    console.print(
        f"clean {found.answers[0]!r}, corrupt {found.answers[1]!r}: {found.gap:.2f} nats apart; "
        "of that each value brings back, in percent (0 to 100):",
        markup=False,
    )
    bounded = [[min(max(share, 0.0), 1.0) for share in row] for row in places.values()]
    console.print(grid(bounded, list(places), found.clean, most=1.0), soft_wrap=True)
    for name, shares in heads.items():
        each = "  ".join(f"{head}: {share:.0%}" for head, share in enumerate(shares))
        console.print(f"{name}  {each}", markup=False)
