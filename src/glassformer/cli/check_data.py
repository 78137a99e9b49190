"""`glass check-data`: what is in the data, before it is trained on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from glassformer.cli.columns import columns


@click.command("check-data")
@click.argument("task", type=click.Choice(["generate", "classify", "translate", "fill-mask"]))
@click.argument("data", nargs=-1, type=click.Path(exists=True))
@columns
@click.option("--source", type=click.Path(exists=True), help="Lines to translate from.")
@click.option("--target", type=click.Path(exists=True), help="Lines to translate into.")
@click.option("--valid", multiple=True, type=click.Path(exists=True), help="To validate on.")
@click.option("--group", help="A column whose equal values stay on one side of the split.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
def check_data(task: str, data: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Report sizes, lengths, labels, duplicates and bad rows of DATA, and what TASK makes of it.

    The exit code is 1 if there are bad rows, or if training would refuse the data.

    \b
    glass check-data classify reviews.csv
    glass check-data translate train.de train.en --valid val.de --valid val.en
    """
    from glassformer.tasks.check import check
    from glassformer.tasks.task import Given

    data = data or tuple(name for name in (options["source"], options["target"]) if name)
    given = Given(
        files=tuple(map(Path, data)),
        valid=tuple(map(Path, options["valid"])),
        text=options["text"],
        label=options["label"],
        group=options["group"],
        separator=options["separator"],
    )
    report = check(task, given)
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        show(report)
    sys.exit(1 if report["bad_rows"] or report["refused"] else 0)


def show(report: dict[str, Any]) -> None:
    what = "lines" if report["task"] in ("generate", "fill-mask") else "examples"
    for line in report["read_as"]:
        click.echo(line)
    click.echo(f"{report['examples']:,} {what}, {report['bytes']:,} bytes")
    if lengths := dict(report["lengths"]):
        spread = lengths.pop("spread")
        facts = ", ".join(f"{name} {value:,.0f}" for name, value in lengths.items())
        click.echo(f"length in characters: {facts}  |{spread}|")
    for label, count in list(report.get("labels", {}).items())[:20]:
        click.echo(f"  {label:<24} {count:8,}  {count / report['examples']:6.1%}")
    for sample in report["samples"]:
        label = "" if sample["label"] is None else f"  ->  {sample['label']}"
        text = sample["text"].replace("\t", "  ->  ")
        click.echo(f"  read as: {text[:120]}{'...' if len(text) > 120 else ''}{label}")
    click.echo(f"{report['duplicates']:,} duplicates, {report['empty']:,} empty {what}")
    if report.get("same_text_other_label"):
        click.echo(f"  {report['same_text_other_label']:,} of them with another label")
    parts = ", ".join(f"{count:,} {name}" for name, count in sorted(report["split"].items()))
    click.echo(f"split: {parts}; {report['leaks']:,} of valid are in train too")
    if report["refused"]:
        click.echo(f"`glass train {report['task']}` would refuse this: {report['refused']}")
    else:
        click.echo(f"`glass train {report['task']}` takes the model {report['model']}")
    if report["bad_rows"]:
        click.echo(f"{report['bad_rows']:,} bad rows; --skip-bad passes over them:")
        for line in report["first_bad"]:
            click.echo(f"  {line}")
