"""Train until the end of the budget, then evaluate, plot, diagnose and report the run."""

import math
from typing import Any

from glassformer import registry
from glassformer.core.errors import GlassError
from glassformer.core.folder import (
    wrap_read_errors,
    write_file,
)
from glassformer.core.i18n import localize, tr
from glassformer.core.reporter import Reporter, format_value
from glassformer.models.network import Network, PriorNetwork
from glassformer.nn.label_prior import LabelPrior
from glassformer.tasks.bootstrap import interval
from glassformer.training.baseline import compare_with_baseline
from glassformer.training.diagnosis import Diagnosis, FitState, diagnose
from glassformer.training.evaluator import Evaluation, format_metrics, metric_label
from glassformer.training.memory import peak_memory
from glassformer.training.plots import plot_metrics
from glassformer.training.run import METRICS
from glassformer.training.trainer import Trainer

RESULT_LABELS = {"memory": "peak memory", "seconds": "training time"}


def train_and_report(trainer: Trainer, reporter: Reporter) -> dict[str, Any]:
    """Train until the end of the budget, evaluate, plot and report; return metrics and costs."""
    task = trainer.task
    run = trainer.run
    baseline = trainer.baseline
    evaluation = trainer.train()
    if evaluation is None:  # training was stopped
        return {"run": str(run.path), "task": task.name, "steps": trainer.state.step}
    draw_plots(trainer, evaluation, reporter)
    result = {
        "run": str(run.path),
        "task": task.name,
        "model": registry.model_name(trainer.network),
        "parameters": trainer.network.size,
        "steps": trainer.state.step,
        "seconds": round(trainer.state.seconds, 1),
        "speed": round(trainer.speed(), 1),
        "memory": round(peak_memory(), 2),
        **evaluation.metrics,
    }
    sampled, sample = task.spec.sampled_metric, None
    if sampled is not None:
        sample = sampled.sample(evaluation.scores, task.artifacts)
        result[f"{task.spec.metric.name}_interval"] = interval(sampled, sample)
    diagnosis = diagnose_run(trainer, evaluation.network)
    conclusions = list[str]()
    if baseline:
        comparison = compare_with_baseline(task, evaluation.metrics, sample, baseline, run)
        result["baseline"] = {**baseline, "difference_interval": comparison.difference}
        conclusions.append(comparison.summarize(diagnosis))
    if diagnosis:
        result["diagnosis"] = diagnosis.state.value
        conclusions.append(diagnosis.text)
    write_readme(trainer, result, conclusions)
    run.write_checksums()
    reporter(f"final: {format_metrics(evaluation.metrics)}")
    for conclusion in conclusions:
        reporter(conclusion)
    reporter(
        f"use it: glass {task.spec.verb} {run.path} {task.spec.example_input}   "
        f"evaluate it: glass evaluate {run.path}"
    )
    return result


def diagnose_run(trainer: Trainer, network: Network) -> Diagnosis | None:
    """Diagnose a run by its validation losses; `network` has the best weights.

    None for a model that was fitted directly, and for two players, such as those of a GAN: what
    is measured does not fall steadily, whether or not they still improve.
    """
    state = trainer.state
    if len(trainer.task.objective.groups) > 1:
        return None
    try:
        losses_by_step = {
            row["step"]: float(row["loss"])
            for row in trainer.run.metrics()
            if row["kind"] == "validation" and isinstance(row.get("loss"), float)
        }
    except GlassError:  # the file is damaged, which is reported when it is plotted
        return None
    if not state.step or not losses_by_step or not all(map(math.isfinite, losses_by_step.values())):
        return None
    prior = network.prior if isinstance(network, PriorNetwork) else None
    if isinstance(prior, LabelPrior) and not prior.weights[0]:
        more = math.ceil(state.seconds / 60)
        return Diagnosis(
            FitState.UNDERTRAINED,
            "the network adds nothing to the prior yet: the network's weight is 0, so the model is "
            f"just NB-SVM; to continue training: glass resume {trainer.run.path} --minutes {more}",
        )
    steps, losses = zip(*sorted(losses_by_step.items()), strict=True)
    epochs = state.step / trainer.batches.per_epoch
    minutes = state.seconds / 60
    return diagnose(steps, losses, epochs=epochs, minutes=minutes, run=str(trainer.run.path))


def draw_plots(trainer: Trainer, evaluation: Evaluation, reporter: Reporter) -> None:
    """Plot the metrics of the run, and draw the task's own plots of the final evaluation."""
    task, run = trainer.task, trainer.run
    try:
        with wrap_read_errors(run.path / METRICS):
            baseline = trainer.baseline.get(task.spec.metric.name)
            folder = run.path / "plots"
            best = trainer.evaluator.metric.name
            plot_metrics(run.metrics(), task, best, baseline, folder)
            for name, draw in task.spec.plots.items():
                draw(evaluation.scores, task.artifacts, folder / f"{name}.png")
    except GlassError as error:
        reporter(f"the plots could not be drawn: {error}")


def describe_result(name: str, unit: str | None) -> str:
    """The name of a result, with its unit if it has one, in the user's language."""
    label = tr(RESULT_LABELS[name]) if name in RESULT_LABELS else metric_label(name)
    return tr("{name} ({unit})", name=label, unit=unit) if unit else label


def write_readme(trainer: Trainer, result: dict[str, Any], conclusions: list[str]) -> None:
    """Write a README.md with the results of a run."""
    network, path = trainer.network, result["run"]
    units = {"speed": f"{tr(trainer.task.spec.unit)}/s", "memory": "GB", "seconds": "s"}
    rows = "\n".join(
        f"| {describe_result(name, units.get(name))} | {tr(format_value(value))} |"
        for name, value in result.items()
        if name not in ("baseline", "bleu_signature") and not name.endswith("_interval")
    )
    table = f"| {tr('name')} | {tr('value')} |\n| --- | --- |\n{rows}"
    sentences = [localize(text) for text in conclusions]
    if isinstance(network, PriorNetwork) and network.prior:
        sentences += [
            tr(
                "The model's prior stores {entries} from the training data, verbatim",
                entries=network.prior.describe(),
            ),
            tr("To remove it: `glass convert {run} OUT --strip-prior`", run=path),
        ]
    sentences += [
        tr("Settings: `config.toml`; metrics by step: `metrics.jsonl`, `plots/`"),
        tr("Usage: `glass {command} {run}`", command=trainer.task.spec.verb, run=path),
    ]
    title = tr("{task} with {model}", task=result["task"], model=result["model"])
    text = "".join(
        tr("{sentence}. ", sentence=sentence[0].upper() + sentence[1:]) for sentence in sentences
    )
    write_file(trainer.run.path / "README.md", f"# {title}\n\n{table}\n\n{text.rstrip()}\n")
