"""The command `runs`, which lists and deletes runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassformer.cli import options
from glassformer.cli.help import echo, pad
from glassformer.core.i18n import localize

if TYPE_CHECKING:
    from glassformer.training.runs import RunSummary


@click.command()
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
@click.option(
    "--sort",
    type=click.Choice(["age", "metric"]),
    default="age",
    show_default=True,
    help="Order of the runs: newest last, or by task and metric, best first.",
)
@click.option(
    "--delete",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Delete this run; can be repeated.",
)
@click.option(
    "--prune",
    type=click.IntRange(1),
    metavar="N",
    help="Delete the runs in FOLDER except the N best of each task.",
)
@click.option("--yes", is_flag=True, help="Delete without asking.")
@options.json()
def runs(
    folder: Path, sort: str, delete: tuple[Path, ...], prune: int | None, yes: bool, as_json: bool
) -> None:
    """List the runs in FOLDER with task, model, metric and age.

    The metric is from the final evaluation or, during training, the best one so far. --delete and
    --prune show what they would delete and ask first. Metrics of runs on different data cannot be
    compared, so --prune suits a folder of runs on the same data. A run that is being trained is
    never deleted, nor is the base model of a LoRA adapter.

    \b
    glass runs
    glass runs elsewhere --sort metric --json
    glass runs --delete runs/generate-1 --delete runs/generate-2
    glass runs --prune 3
    """
    from glassformer.core.reporter import Reporter
    from glassformer.training.runs import find_runs

    if delete and prune:
        raise click.UsageError("give --delete or --prune, not both")
    found = find_runs(folder, Reporter())
    if sort == "metric":
        found.sort(key=lambda run: run.rank)
    if delete:
        delete_runs(select_runs(delete, found), yes=yes, as_json=as_json)
    elif prune:
        delete_runs(select_prunable(found, prune), yes=yes, as_json=as_json)
    elif as_json:
        for run in found:
            click.echo(json.dumps(run.row()))
    else:
        print_runs(found, folder)


def print_runs(found: list[RunSummary], folder: Path) -> None:
    """Print the runs in aligned columns."""
    from rich.cells import cell_len

    rows = [format_run(run) for run in found]
    if not rows:
        echo(f"there are no runs in {folder}", err=True)
        return
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(pad, row, widths)).rstrip())


def format_run(run: RunSummary) -> list[str]:
    from glassformer.training.evaluator import metric_label

    metric = localize("not evaluated")
    if run.value is not None:
        metric = f"{metric_label(run.metric.name)} {run.value:.4g}"
    minutes = round(run.hours * 60)
    age = f"{minutes} min ago" if minutes < 100 else f"{minutes / 60:,.0f} h ago"
    return [str(run.path), run.task, run.model, metric, localize(age)]


def select_runs(paths: tuple[Path, ...], found: list[RunSummary]) -> list[Path]:
    """Return the runs to delete without duplicates; raise an error if one must not be deleted."""
    from glassformer.training.runs import check_deletable

    selected = {path.absolute(): path for path in paths}
    others = [run.path for run in found if run.path.absolute() not in selected]
    for path in selected.values():
        check_deletable(path, others)
    return [*selected.values()]


def select_prunable(found: list[RunSummary], keep: int) -> list[Path]:
    """Return all runs but the `keep` best of each task, and those that must not be deleted."""
    from glassformer.core.errors import GlassError
    from glassformer.training.runs import check_deletable, select_worst

    selected = []
    for run in select_worst(found, keep):
        try:
            check_deletable(run.path, [other.path for other in found if other is not run])
        except GlassError as error:
            echo(f"not deleted: {error}", err=True)
        else:
            selected.append(run.path)
    return selected


def delete_runs(paths: list[Path], *, yes: bool, as_json: bool) -> None:
    """Delete runs, after confirmation unless `yes`."""
    from glassformer.core.errors import GlassError
    from glassformer.training.runs import count_bytes, delete_run

    sizes = {path: count_bytes(path) for path in paths}
    if not sizes:
        echo("there is nothing to delete", err=True)
    elif not yes and not confirm_deletion(sizes):
        raise GlassError("nothing was deleted; to delete without being asked: --yes")
    for path, size in sizes.items():
        delete_run(path)
        if as_json:
            click.echo(json.dumps({"deleted": str(path), "bytes": size}))
        else:
            echo(f"deleted {path}")


def confirm_deletion(sizes: dict[Path, int]) -> bool:
    """Show the runs with their sizes and ask; False if there is nobody to answer."""
    for path, size in sizes.items():
        echo(f"{path}: {size:,} bytes", err=True)
    runs = "1 run" if len(sizes) == 1 else f"{len(sizes)} runs"
    question = f"Delete {runs} and free {sum(sizes.values()):,} bytes?"
    try:
        return click.confirm(localize(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        return False
