"""Commands that report on data and on models: check-data, evaluate."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo, pad
from glassformer.core.i18n import tr

MAX_CONFUSION_LABELS = 20
CHECKED_TASKS = ("generate", "classify", "translate", "fill-mask", "summarize", "recommend")


@click.command()
@click.argument("task", type=click.Choice(CHECKED_TASKS))
@options.data_files
@options.columns
@options.source_and_target
@options.valid(help="Validation data; can be repeated.  [default: about a tenth of DATA]")
@options.group
@click.option(
    "--multi-label", is_flag=True, help="A text can have several labels, with | between them."
)
@options.skip_bad(help="Report bad rows but do not count them as an error.")
@options.json(help="Print one JSON object.")
def check_data(
    task: str, data: tuple[str, ...], as_json: bool, skip_bad: bool, **values: Any
) -> None:
    """Report the size, labels, duplicates and bad rows of DATA before training for TASK.

    Also shows how `glass train` would read and split the data, and the tokens that the model would
    see. Without DATA, reports on the
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
    has_bad_rows = report["bad_rows"] and not skip_bad
    sys.exit(1 if has_bad_rows or report["error"] else 0)


def print_data_report(report: dict[str, Any]) -> None:
    from glassformer.core.reporter import format_count
    from glassformer.tasks import TASKS

    unit = "example" if TASKS[report["task"]].is_table else "line"
    for line in report["read_as"]:
        echo(line)
    noun = unit if report["examples"] == 1 else f"{unit}s"
    echo(f"{report['examples']:,} {noun}, {report['bytes']:,} bytes")
    if lengths := report["lengths"]:
        echo(
            f"length in characters: min {lengths['min']:,}, median {lengths['median']:,.0f}, "
            f"99th percentile {lengths['p99']:,}, max {lengths['max']:,}  |{lengths['histogram']}|"
        )
    for label, count in list(report.get("labels", {}).items())[:20]:
        click.echo(f"  {label:<24} {count:8,}  {count / report['examples']:6.1%}")
    for sample in report["samples"]:
        label = "" if sample["label"] is None else f"  ->  {sample['label']}"
        text = "  ->  ".join(" ".join(text.split()) for text in sample["texts"])
        example = f"{text[:120]}{'...' if len(text) > 120 else ''}{label}"
        click.echo(tr("  example: {example}", example=example))
        if "tokens" in sample:
            tokens = "  ->  ".join("|".join(row) for row in sample["tokens"])
            tokens = f"{tokens[:160]}{'...' if len(tokens) > 160 else ''}"
            click.echo(tr("    tokens: {tokens}", tokens=tokens))
    noun = unit if report["empty"] == 1 else f"{unit}s"
    echo(f"{format_count(report['duplicates'], 'duplicate')}, {report['empty']:,} empty {noun}")
    if report.get("same_text_other_label"):
        conflicts = format_count(report["same_text_other_label"], "duplicate")
        echo(f"  {conflicts} with a different label")
    train, valid = (report["split"].get(name, 0) for name in ("train", "valid"))
    leaks = report["leaks"]
    verb = "appears" if report["leaks"] == 1 else "appear"
    leak = f"{format_count(leaks, 'validation example')} also {verb} in train"
    if leaks:
        leak = f"{leak} (data leak)"
    echo(f"split: {train:,} train, {valid:,} validation; {leak}")
    for first, second in report["near_duplicates"]:
        echo(f"  almost equal: {first[:70]!r} (validation) and {second[:70]!r} (train)")
    for warning in report["warnings"]:
        echo(f"warning: {warning}")
    if report["error"]:
        echo(f"`glass train {report['task']}` would fail: {report['error']}")
    else:
        echo(f"`glass train {report['task']}` would train the model `{report['model']}`")
    if report["bad_rows"]:
        echo(f"{format_count(report['bad_rows'], 'bad row')}; to skip bad rows: --skip-bad")
        for line in report["first_bad"]:
            echo(f"  {line}")


@click.command()
@options.trained_run
@options.data_files
@options.columns
@options.source_and_target
@click.option(
    "--context",
    type=int,
    help="Window length for generate and fill-mask models, in tokens; for transformer_xl, that of "
    "a segment and its memory.  [default: as in training]",
)
@options.skip_bad(help="Leave out rows of DATA that cannot be read instead of stopping.")
@click.option(
    "--predictions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a row per example with its texts, true label or reference, and "
    "prediction: .csv, .tsv, .jsonl or .parquet.",
)
@options.plot(
    help="Draw the confusion matrix and the calibration of a classifier (.png, .svg or .pdf)."
)
@options.overwrite(help="Overwrite the --plot and --predictions files if they exist.")
@options.json(help="Print one JSON object.")
def evaluate(
    run: str, data: tuple[str, ...], overwrite: bool, as_json: bool, **values: Any
) -> None:
    """Evaluate the model in RUN on DATA or on its own validation data.

    Prints the metrics of the model and, if its run has one, of the baseline, with 95% confidence
    intervals by the bootstrap; for a classifier also the scores of each label, the confusion matrix
    and the worst errors; for a translator or summarizer the worst outputs.

    \b
    glass evaluate runs/generate-1
    glass evaluate runs/classify-1 test.csv --plot confusion.png
    glass evaluate runs/classify-1 test.csv --predictions predictions.csv
    glass evaluate runs/classify-1 test.csv --json
    glass evaluate runs/generate-1 --context 256
    """
    from glassformer.core.reporter import Reporter
    from glassformer.data.output import OUTPUTS
    from glassformer.training.evaluate import evaluate as evaluate_run

    source = values.pop("source")
    target = values.pop("target")
    data = data or tuple(name for name in (source, target) if name)
    predictions = values["predictions"]
    if predictions and predictions.suffix.lower() not in OUTPUTS:
        endings = ", ".join(OUTPUTS)
        raise click.UsageError(
            f"--predictions: expected a file name ending in {endings}, got {predictions}"
        )
    if values["plot"] and values["plot"].suffix not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--plot: expected a .png, .svg or .pdf file, got {values['plot']}")
    options.check_output_paths(values["plot"], predictions, overwrite=overwrite)

    reporter = Reporter() if data else None
    metrics = evaluate_run(Path(run), tuple(map(Path, data)), reporter=reporter, **values)
    if as_json:
        click.echo(json.dumps(metrics, ensure_ascii=False))
    else:
        print_evaluation(metrics)


def print_evaluation(metrics: dict[str, Any]) -> None:
    """Print the metrics of the model and of its baseline, then the details of the task."""
    from glassformer.core.reporter import format_value
    from glassformer.training.evaluator import metric_label

    baseline = metrics.get("baseline", {})
    labels = {"model": tr("architecture"), "loss": tr("loss")}
    if "exact" in metrics:  # the reference as input, or the model's own output
        labels |= {"loss": tr("teacher-forced loss"), "exact": tr("free-running exact match")}
    shared = ("task", "tokens", "bytes", "examples", "bleu_signature")  # the same for the baseline
    rows = [("", tr("model"), tr("baseline") if baseline else "")]
    for name, value in metrics.items():
        if isinstance(value, dict | list | tuple) or value is None or name == "note":
            continue
        other = "" if name in shared else format_value(baseline.get(name, ""))
        rows.append((labels.get(name) or metric_label(name), format_value(value), other))
        if interval := metrics.get(f"{name}_interval"):
            low, high = map(format_value, interval)
            rows.append((tr("  95% CI"), tr("{low} to {high}", low=low, high=high), ""))
    width = max([14, *(len(value) for _, value, other in rows if other)])
    for label, value, other in rows:
        click.echo(f"{pad(label, 24)} {pad(value, width)} {other}".rstrip())
    if difference := baseline.get("difference_interval"):
        low, high = difference
        name = next(n.removesuffix("_interval") for n in metrics if n.endswith("_interval"))
        remark = "" if low > 0 or high < 0 else "; not significant"
        values = f"{low:+.2g} to {high:+.2g} (95% confidence interval){remark}"
        echo(f"{metric_label(name)} difference from the baseline: {values}")
    if "note" in metrics:
        echo(metrics["note"])
    print_classes(metrics.get("classes", []), metrics.get("confusion"))
    print_worst(metrics.get("worst", []))


def print_classes(classes: list[dict[str, Any]], confusion: list[list[int]] | None) -> None:
    """Print precision, recall and F1 of each class, and the confusion matrix."""
    from rich.cells import cell_len

    if not classes:
        return
    names = [str(row["label"]) for row in classes]
    width = min(max([6, *map(cell_len, names)]), 30)
    names = [pad(name[:30], width) for name in names]
    echo(f"\n{'label':<{width}}  precision  recall      F1  examples")
    for name, row in zip(names, classes, strict=True):
        precision, recall, f1 = (
            "-" if row[score] is None else f"{row[score]:.3f}"
            for score in ("precision", "recall", "f1")
        )
        click.echo(f"{name}  {precision:>9}  {recall:>6}  {f1:>6}  {row['examples']:8,}")
    if confusion is None or len(names) > MAX_CONFUSION_LABELS:
        return
    echo("\nconfusion matrix: a row per true label, a column per predicted label")
    cells = max(len(str(count)) for row in confusion for count in row)
    for name, counts in zip(names, confusion, strict=True):
        click.echo(f"{name}  {'  '.join(f'{count:>{cells}}' for count in counts)}")


def print_worst(worst: list[dict[str, Any]]) -> None:
    """Print the examples with the worst predictions."""
    if not worst:
        return
    echo("\nworst predictions")
    for row in worst:
        text = " ".join(str(row.get("text", "")).split())
        if "true" in row:
            prob = row["probabilities"].get(row["label"])
            certainty = "" if prob is None else f" ({prob:.0%})"
            answer = f"{row['label']}{certainty}, {tr('true')}: {row['true']}"
        elif "rouge_l" in row:
            answer = f"ROUGE-L {row['rouge_l']}: {row['summary']}"
        elif "rating" in row:
            answer = f"{row['prediction']:g}, {tr('rated')} {row['rating']:g}"
        else:
            answer = f"chrF {row['chrf']}: {row['translation']}"
        location = f"{row['location']}: " if row.get("location") else ""
        click.echo(f"  {location}{answer}\n    {text[:160]}{'...' if len(text) > 160 else ''}")
