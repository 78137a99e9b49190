"""`glass runs`: what was trained here."""

import json
import time
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("folder", default="runs", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def runs(folder: str, as_json: bool) -> None:
    """List the runs in FOLDER with task, model, best figure and age.

    \b
    glass runs
    glass runs elsewhere --json
    """
    from glassformer.config import read
    from glassformer.training.run import Run

    for config in sorted(Path(folder).glob("*/config.toml"), key=lambda p: p.stat().st_mtime):
        tables, metrics = read(config), Run(config.parent).metrics()
        last: dict[str, Any] = next((m for m in reversed(metrics) if "seconds" in m), {})
        names = ("bits_per_byte", "accuracy", "loss")
        figure = next((name for name in names if name in last), None)
        row = {
            "run": str(config.parent),
            "task": tables.get("task", {}).get("name", "-"),
            "model": tables.get("model", {}).get("name", "-"),
            "figure": figure,
            "value": last.get(figure) if figure else None,
            "hours": round(max(time.time() - config.stat().st_mtime, 0) / 3600, 2),
        }
        if as_json:
            click.echo(json.dumps(row))
        else:
            shown = f"{figure} {row['value']:.4g}" if figure else "no figure yet"
            minutes = round(row["hours"] * 60)
            age = f"{minutes} min ago" if minutes < 100 else f"{minutes / 60:,.0f} h ago"
            click.echo(f"{row['run']:<28} {row['task']:<10} {row['model']:<11} {shown:<24} {age}")
