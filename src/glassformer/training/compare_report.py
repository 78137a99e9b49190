"""The results of a comparison: a table, a plot and a report."""

import platform
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from glassformer.core.figures import subplots
from glassformer.core.i18n import localize, tr
from glassformer.core.reporter import format_value
from glassformer.tasks.task import TaskSpec
from glassformer.training.plots import select_evaluations
from glassformer.training.run import Run
from glassformer.training.settings import TrainingSettings
from glassformer.training.setup import format_budget

PLOT = "compare.png"
COSTS = ("parameters", "steps", "speed", "memory", "seconds")


def choose_columns(spec: TaskSpec, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Choose the columns of the table, as keys of the rows: up to three metrics, then the costs."""
    metrics = [spec.metric.name, "perplexity", "f1", "bleu", "exact", "accuracy", "loss"]
    common = [m for m in dict.fromkeys(metrics) if all(m in row for row in rows)][:3]
    return [*common, *COSTS]


def format_table(spec: TaskSpec, rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a table as text; the first row is the header."""
    columns = choose_columns(spec, rows)
    units = {"speed": f"{tr(spec.unit)}/s", "memory": "GB"}
    header = [tr("model"), *(units.get(name) or tr(name.replace("_", " ")) for name in columns)]
    return [header, *([row["name"], *(format_cell(row, c) for c in columns)] for row in rows)]


def format_cell(row: dict[str, Any], column: str) -> str:
    """Return a value, with the standard deviation over the seeds if it is a metric."""
    if "std" not in row or column in COSTS:
        return format_value(row[column])
    return f"{format_value(row[column])} ± {row['std'][column]:.2g}"


def format_report(
    rows: Sequence[dict[str, Any]],
    spec: TaskSpec,
    data: Sequence[str | Path],
    settings: TrainingSettings,
) -> str:
    """Return the README.md of a comparison with these settings."""
    header, *body = format_table(spec, rows)
    lines = ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *body)]
    budget = format_budget(settings)
    seeds = f"seed {settings.seed}"
    if settings.parameters:
        budget = f"{budget} and about {settings.parameters:,} parameters"
    if "runs" in rows[0]:
        count = len(rows[0]["runs"])
        budget = f"{count} seeds, {budget}"
        seeds = f"mean ± standard deviation over the seeds 0 to {count - 1}"
    files = " ".join(shlex.quote(Path(file).name) for file in data) or "the built-in sample"
    processor = platform.processor() or platform.machine()
    title = localize(f"{spec.name}: {len(rows)} models, {budget} each")
    caption = tr("{metric} against time", metric=tr(spec.metric.label))
    note = localize(
        f"Data: {files}; metrics on held-out validation data; {seeds}; torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, {processor}; {date.today()}. Speed is training speed; "
        "memory is the peak memory of the process."
    )
    return f"# {title}\n\n" + "\n".join(lines) + f"\n\n![{caption}]({PLOT})\n\n{note}\n"


def plot_comparison(
    rows: Sequence[dict[str, Any]], paths: dict[str, list[Path]], spec: TaskSpec, file: Path
) -> None:
    """Plot the task's metric against time: a color for each model, a curve for each of its runs.

    Models that are fitted directly get a horizontal line; if all are, the plot is a bar chart.
    """
    figure, axes = subplots(figsize=(8, 4.8))
    name, label = spec.metric.name, spec.metric.label
    finals = [row[name] for row in rows]
    curves = {
        row["name"]: [select_evaluations(Run(p).metrics(), name) for p in paths[row["name"]]]
        for row in rows
    }
    if all(len(curve) < 2 for runs in curves.values() for curve in runs):
        errors = [row["std"][name] for row in rows] if "std" in rows[0] else None
        bars = axes.barh([row["name"] for row in rows], finals, xerr=errors, color="C0")
        axes.bar_label(bars, [format_cell(row, name) for row in rows], padding=3)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_xlabel(label)
    else:
        for i, row in enumerate(rows):
            legend: str | None = f"{row['name']}  {format_cell(row, name)}"
            for result, curve in zip(row.get("runs", [row]), curves[row["name"]], strict=True):
                times = [m["seconds"] for m in curve]
                values = [m[name] for m in curve]
                if len(curve) > 1:
                    axes.plot(times, values, color=f"C{i}", marker="o", markersize=3, label=legend)
                else:
                    axes.axhline(result[name], linestyle="--", color=f"C{i}", label=legend)
                legend = None  # one entry for all runs of a model
        axes.set(xlabel=tr("seconds of training"), ylabel=label)
        if name == "bits_per_byte":
            axes.set_ylim(0.95 * min(finals), 1.2 * max(finals))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(file, dpi=110)
