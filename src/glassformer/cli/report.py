"""Commands that report on data and on runs: check-data, evaluate, runs."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo
from glassformer.core.i18n import localize


@click.command()
@click.argument("task", type=click.Choice(["generate", "classify", "translate", "fill-mask"]))
@options.data_files
@options.columns
@options.source_and_target
@options.valid(help="Validation data; can be repeated.  [default: a tenth of DATA]")
@options.group
@options.json(help="Print one JSON object.")
def check_data(task: str, data: tuple[str, ...], as_json: bool, **values: Any) -> None:
    """Report the size, labels, duplicates and bad rows of DATA before training for TASK.

    Also shows how `glass train` would read and split the data. Without DATA, reports on the
    built-in sample. The exit code is 1 if there are bad rows or if training would fail.

    \b
    glass check-data classify reviews.csv
    glass check-data translate train.de train.en --valid val.de --valid val.en
    """
    from glassformer.data.request import DataRequest
    from glassformer.tasks.check import check

    source, target, valid = (values.pop(name) for name in ("source", "target", "valid"))
    data = data or tuple(name for name in (source, target) if name)
    request = DataRequest(files=tuple(map(Path, data)), valid=tuple(map(Path, valid)), **values)
    report = check(task, request)
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        print_data_report(report)
    sys.exit(1 if report["bad_rows"] or report["error"] else 0)


def print_data_report(report: dict[str, Any]) -> None:
    from glassformer.tasks import TASKS

    unit = "examples" if TASKS[report["task"]].is_table else "lines"
    for line in report["read_as"]:
        echo(line)
    echo(f"{report['examples']:,} {unit}, {report['bytes']:,} bytes")
    if lengths := report["lengths"]:
        echo(
            f"length in characters: min {lengths['min']:,}, median {lengths['median']:,.0f}, "
            f"99th percentile {lengths['p99']:,}, max {lengths['max']:,}  |{lengths['histogram']}|"
        )
    for label, count in list(report.get("labels", {}).items())[:20]:
        click.echo(f"  {label:<24} {count:8,}  {count / report['examples']:6.1%}")
    for sample in report["samples"]:
        label = "" if sample["label"] is None else f"  ->  {sample['label']}"
        text = sample["text"].replace("\t", "  ->  ").replace("\n", " ")
        echo(f"  example: {text[:120]}{'...' if len(text) > 120 else ''}{label}")
    echo(f"{format_count(report['duplicates'], 'duplicate')}, {report['empty']:,} empty {unit}")
    if report.get("same_text_other_label"):
        conflicts = format_count(report["same_text_other_label"], "duplicate")
        echo(f"  {conflicts} with a different label")
    train, valid = (report["split"].get(name, 0) for name in ("train", "valid"))
    leaks, verb = report["leaks"], "appears" if report["leaks"] == 1 else "appear"
    leak = f"{format_count(leaks, 'validation example')} also {verb} in train"
    note = " (data leak)" if leaks else ""
    echo(f"split: {train:,} train, {valid:,} validation; {leak}{note}")
    if report["error"]:
        echo(f"`glass train {report['task']}` would fail: {report['error']}")
    else:
        echo(f"`glass train {report['task']}` would train the model `{report['model']}`")
    if report["bad_rows"]:
        echo(f"{format_count(report['bad_rows'], 'bad row')}; to skip bad rows: --skip-bad")
        for line in report["first_bad"]:
            echo(f"  {line}")


def format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@click.command()
@options.trained_run
@options.data_files
@options.columns
@click.option(
    "--context",
    type=int,
    help="Window length for generate and fill-mask models, in tokens.  [default: as in training]",
)
@options.plot(help="Draw the confusion matrix of a classifier (.png, .svg or .pdf).")
@options.overwrite(help="Overwrite the --plot file if it exists.")
@options.json(help="Print one JSON object.")
def evaluate(
    run: str, data: tuple[str, ...], overwrite: bool, as_json: bool, **values: Any
) -> None:
    """Evaluate the model in RUN on DATA or on its own validation data.

    Prints the metrics of the model and, if its run has one, of the baseline.

    \b
    glass evaluate runs/generate-1
    glass evaluate runs/classify-1 test.csv --plot confusion.png
    glass evaluate runs/classify-1 test.csv --json
    glass evaluate runs/generate-1 --context 256
    """
    from glassformer.core.reporter import format_value
    from glassformer.training.evaluate import evaluate as evaluate_run
    from glassformer.training.evaluator import metric_label

    if values["plot"] and values["plot"].suffix not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--plot: expected a .png, .svg or .pdf file, got {values['plot']}")
    options.check_output_paths(values["plot"], overwrite=overwrite)

    metrics = evaluate_run(Path(run), tuple(map(Path, data)), **values)
    if as_json:
        click.echo(json.dumps(metrics))
        return
    baseline = metrics.pop("baseline", {})
    labels = {"model": "architecture", "loss": "loss", "bleu_signature": "BLEU signature"}
    shared = ("task", "tokens", "bytes", "examples", "bleu_signature")  # the same for the baseline
    rows = [("", "model", "baseline" if baseline else "")]
    for name, value in metrics.items():
        other = "" if name in shared else format_value(baseline.get(name, ""))
        rows.append((labels.get(name) or metric_label(name), format_value(value), other))
    width = max([14, *(len(value) for _, value, other in rows if other)])
    for label, value, other in rows:
        click.echo(f"{label:<22} {value:<{width}} {other}".rstrip())


@click.command()
@click.argument("folder", default="runs", type=click.Path())
@options.json()
def runs(folder: str, as_json: bool) -> None:
    """List the runs in FOLDER with task, model, metric and age.

    The metric is from the final evaluation or, during training, the best one so far.

    \b
    glass runs
    glass runs elsewhere --json
    """
    from rich.cells import cell_len

    from glassformer.training.evaluator import metric_label

    for config in sorted(Path(folder).glob("*/config.toml"), key=lambda file: file.stat().st_mtime):
        row = summarize_run(config)
        if as_json:
            click.echo(json.dumps(row))
            continue
        metric = localize("not evaluated")
        if row["metric"] is not None:
            metric = f"{metric_label(row['metric'])} {row['value']:.4g}"
        minutes = round(row["hours"] * 60)
        age = f"{minutes} min ago" if minutes < 100 else f"{minutes / 60:,.0f} h ago"
        metric += " " * (24 - cell_len(metric))  # a Chinese character takes two columns
        line = f"{row['run']:<28} {row['task']:<10} {row['model']:<11} {metric} {localize(age)}"
        click.echo(line)


def summarize_run(config: Path) -> dict[str, Any]:
    """Return the row for a run: its final metric, or the best so far, and its age in hours."""
    from glassformer.core.config import read_toml
    from glassformer.tasks import TASKS
    from glassformer.tasks.task import METRICS
    from glassformer.training.run import Run

    tables, metrics = read_toml(config), Run(config.parent).metrics()
    task = tables.get("task", {}).get("name", "-")
    metric = TASKS[task].metric if task in TASKS else METRICS["loss"]
    name = metric.name
    evaluations = [m[name] for m in metrics if m["kind"] == "validation" and name in m]
    final = [m[name] for m in metrics if m["kind"] == "final" and name in m]
    value = None
    if evaluations:
        value = final[-1] if final else (max if metric.higher_is_better else min)(evaluations)
    return {
        "run": str(config.parent),
        "task": task,
        "model": tables.get("model", {}).get("name", "-"),
        "metric": name if evaluations else None,
        "value": value,
        "hours": round(max(time.time() - config.stat().st_mtime, 0) / 3600, 2),
    }
