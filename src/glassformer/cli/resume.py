"""`glass resume`: go on with a run that was stopped."""

from pathlib import Path

import click

from glassformer.cli.train import print_result


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False))
@click.option("--steps", type=click.IntRange(1), help="Go on to this step.")
@click.option(
    "--minutes", type=click.FloatRange(0, 10**6, min_open=True), help="Go on for so long."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result for a program to read.")
def resume(run: str, steps: int | None, minutes: float | None, as_json: bool) -> None:
    """Go on with the training in the folder RUN; with a new budget also beyond its end.

    \b
    glass resume runs/generate-1
    glass resume runs/generate-1 --minutes 10
    """
    if steps and minutes:
        raise click.UsageError("give --steps or --minutes, not both")
    from glassformer.training.start import resume as go_on

    print_result(go_on(Path(run), steps=steps, minutes=minutes), as_json)
