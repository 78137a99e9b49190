"""`glass check`: whether a run or model is as it was written."""

import sys
from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def check(folder: Path) -> None:
    """Compare every file of a run or model in FOLDER with what was written; name what is damaged.

    The exit code is 1 if anything is.

    \b
    glass check runs/generate-1
    """
    from glassformer.training.run import damage

    wrong = damage(folder)
    for line in wrong:
        click.echo(line)
    if wrong:
        sys.exit(1)
    click.echo(f"{folder} is whole")
