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
    from glassformer.core.config import read
    from glassformer.tasks import TASKS
    from glassformer.tasks.task import is_gain
    from glassformer.training.run import Run

    for config in sorted(Path(folder).glob("*/config.toml"), key=lambda p: p.stat().st_mtime):
        tables, metrics = read(config), Run(config.parent).metrics()
        task = tables.get("task", {}).get("name", "-")
        figure = TASKS[task].verdict if task in TASKS else "loss"
        judged = [m[figure] for m in metrics if "seconds" in m and figure in m]
        final = [m[figure] for m in metrics if "best" in m and figure in m]
        best = (final[-1:] or [max(judged) if is_gain(figure) else min(judged)]) if judged else []
        row: dict[str, Any] = {
            "run": str(config.parent),
            "task": task,
            "model": tables.get("model", {}).get("name", "-"),
            "figure": figure if best else None,
            "value": best[0] if best else None,
            "hours": round(max(time.time() - config.stat().st_mtime, 0) / 3600, 2),
        }
        if as_json:
            click.echo(json.dumps(row))
        else:
            shown = f"{figure} {row['value']:.4g}" if best else "no figure yet"
            minutes = round(row["hours"] * 60)
            age = f"{minutes} min ago" if minutes < 100 else f"{minutes / 60:,.0f} h ago"
            click.echo(f"{row['run']:<28} {row['task']:<10} {row['model']:<11} {shown:<24} {age}")
