"""Train a model, resume a run, and summarize the result."""

import json
import math
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint, registry
from glassformer.checkpoint import LAST
from glassformer.core.config import from_dict, read_toml
from glassformer.core.errors import GlassError
from glassformer.core.folder import (
    MANIFEST,
    find_subfolder,
    read_json,
    wrap_read_errors,
    write_file,
)
from glassformer.core.i18n import localize, tr
from glassformer.core.reporter import NullReporter, Reporter, format_value
from glassformer.data.files import BadRowPolicy, save_streams
from glassformer.data.request import DataRequest
from glassformer.models.network import PriorNetwork, Trait
from glassformer.nn.label_prior import LabelPrior
from glassformer.tasks import TASKS
from glassformer.tasks.bootstrap import interval
from glassformer.tasks.task import Artifacts, Task, TaskSpec
from glassformer.training.autotune import Autotune, UnsupportedPrecisionError
from glassformer.training.baseline import compare_with_baseline, fit, load_baseline_metrics
from glassformer.training.budget import StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.diagnosis import Diagnosis, FitState, diagnose
from glassformer.training.evaluator import Evaluation, format_metrics
from glassformer.training.memory import peak_memory
from glassformer.training.plots import plot_metrics
from glassformer.training.request import (
    BUDGETS,
    Request,
    find_device,
    has_device,
    max_threads,
)  # fmt: skip
from glassformer.training.run import METRICS, REQUEST, Run, next_run
from glassformer.training.settings import TrainingSettings
from glassformer.training.setup import Start, make_budget, set_up
from glassformer.training.step import Step
from glassformer.training.trainer import Trainer

LONG_CONTEXT = 2048  # tokens; see docs/long_context.md
LONG_BATCH = 1  # sequences


def train(
    task: str | None = None,
    *data: str | Path,
    run: str | Path | None = None,
    model: str | None = None,
    base: str | Path | None = None,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    overwrite: bool = False,
    skip_bad: bool = False,
    reporter: Reporter | None = None,
    start_time: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a model for a task on files, in a new run folder; return its metrics and costs.

    With `config`, a recipe, the task may be left out. `base` is a trained model to start from.
    `settings` are as for `--set`; `options` are `valid` (files), `extend`, and any data or
    training setting. A budget in minutes counts from `start_time` on the monotonic clock, by
    default from the call. If training is stopped, the result has no "seconds".
    """
    start_time, reporter = start_time or time.monotonic(), reporter or Reporter()
    settings = list(settings)
    if model is config is base is None:
        model, more_settings = choose_for_context(task, settings, reporter)
        settings += more_settings
    request = Request.of(
        task, data, config, settings, options, model=model, from_scratch=base is None
    )
    start = Start.of(request, base, model)
    path = Path(run) if run else next_run(Path("runs"), request.spec.name)
    data_request = replace(
        request.data,
        on_bad_row=BadRowPolicy(path / "skipped.jsonl" if skip_bad else None),
        model=start.architecture,
        base_tokenizer=start.tokenizer,
    )
    arguments = {
        "task": request.spec.name, "data": [*map(make_absolute, data_request.files)],
        "run": make_absolute(path), "model": model, "base": base and make_absolute(base),
        "config": config and make_absolute(config), "settings": list(settings),
        "skip_bad": skip_bad, **options, "valid": [*map(make_absolute, data_request.valid)],
    }  # fmt: skip
    for source in (*data_request.files, *data_request.valid, *([Path(base)] if base else [])):
        if source.resolve().is_relative_to(path.resolve()):
            raise GlassError(
                f"{source} is inside the run folder {path} and could be overwritten: choose "
                "another --run"
            )
    request.check(from_scratch=base is None)
    folder = Run.create(path, overwrite=overwrite)
    with folder.lock():
        write_file(path / REQUEST, json.dumps(arguments))
        try:
            opened_task = prepare(request.spec, data_request, folder, reporter)
            trainer = set_up(start, opened_task, request.training, folder, reporter, start_time)
        except BaseException:
            folder.discard()
            raise
        shutil.rmtree(folder.backup, ignore_errors=True)
        return train_and_report(trainer, reporter)


def choose_for_context(
    task: str | None, settings: list[str], reporter: Reporter
) -> tuple[str | None, list[str]]:
    """Return a model that suits a long context, and its settings; None for the default model.

    Dense attention takes most of the time of a step from about LONG_CONTEXT tokens on.
    """
    values = dict(setting.partition("=")[::2] for setting in settings)
    context, spec = values.get("model.context", ""), TASKS.get(task or "")
    model = spec.long_context_model if spec else None
    if spec is None or model is None or not context.isdecimal() or int(context) < LONG_CONTEXT:
        return None, []
    reporter(
        f"context of {int(context):,} tokens: using --model {model}, because the time of dense "
        f"attention grows with the square of the context; for dense attention: --model "
        f"{spec.models[0]}, for short segments with a memory: --model transformer_xl"
    )
    has_batch = any(name in values for name in ("train.batch_size", "train.batch_tokens"))
    return model, [] if has_batch else [f"train.batch_size={LONG_BATCH}"]


def make_absolute(name: str | Path) -> str:
    """Return an absolute path; `-` stays standard input."""
    return str(name) if str(name) == "-" else str(Path(name).absolute())


def prepare(spec: TaskSpec, request: DataRequest, run: Run, reporter: Reporter) -> Task:
    """Read the data into the run's cache, and open the task on it."""
    request = replace(
        request,
        files=save_streams(request.files, run.cache),
        valid=save_streams(request.valid, run.cache, name="valid"),
    )
    artifacts = spec.prepare(request, run.cache, reporter)
    if request.on_bad_row.count:
        count = request.on_bad_row.count
        rows = "row was" if count == 1 else "rows were"
        reporter(f"{count:,} bad {rows} skipped: see {request.on_bad_row.log}")
    return spec.open(artifacts, run.cache)


def resume(
    path: Path,
    reporter: Reporter | None = None,
    *,
    steps: int | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Resume a run from its last checkpoint; restart it if it has none.

    A new budget extends the run: to `steps` in total, or by `minutes` from now.
    """
    reporter, run = reporter or Reporter(), Run(path)
    if not (path / checkpoint.CONFIG).exists():
        return restart(path, reporter, steps, minutes)
    if (path / MANIFEST).exists():
        raise GlassError(
            f"{path} is not a run folder but a model: give the folder of its run, or use the model "
            "with --from"
        )
    with run.lock():
        with wrap_read_errors(path):
            trainer = load_trainer(run, reporter)
        if steps or minutes:
            extend_budget(trainer, steps, minutes)
        elif trainer.state.is_finished:
            trainer.budget = StepBudget(trainer.state.step)
        steps, done = trainer.settings.steps, trainer.state.step
        message = f"resuming after step {done:,}"
        reporter(f"{message} of {steps:,}" if steps else message)
        if trainer.budget.is_spent(done):
            reporter(f"all steps are done; to train longer: glass resume {path} --minutes 5")
        return train_and_report(trainer, reporter)


def load_trainer(run: Run, reporter: Reporter) -> Trainer:
    """Return the trainer of a run in the state of its last checkpoint."""
    run.verify(checkpoint.CONFIG, checkpoint.TOKENIZER, METRICS, "cache/")
    tables = read_toml(run.path / checkpoint.CONFIG)
    settings = from_dict(TrainingSettings, tables["train"], "train.")
    changes: list[tuple[str, Any, Any]] = []
    if not has_device(settings.device):
        changes.append(("device", settings.device, find_device("auto")))
        settings = replace(settings, device=find_device("auto"))
    if settings.threads:
        torch.set_num_threads(min(settings.threads, max_threads()))
    for name, old, new in (*changes, *run.compare_environment()):
        reporter(f"{name} was {old} and is now {new}: results may differ by rounding errors")
    last = find_subfolder(run.path, LAST)
    if last is None:
        raise GlassError(f"{run.path / LAST} does not exist: there is no checkpoint to resume from")
    network, tokenizer, metadata = checkpoint.load(last, merge_adapter=False)
    if metadata.get("name") not in TASKS:
        raise GlassError(f"{last} is corrupted: unknown task {metadata.get('name')!r}")
    spec = TASKS[metadata.pop("name")]
    task = spec.open(Artifacts(metadata, tokenizer), run.cache)
    prior = network.prior if isinstance(network, PriorNetwork) else None
    if settings.prior and task.spec.fit_prior and prior and prior.is_cross_fitted:
        # fit again, because the counts of each fold are not saved
        task.spec.fit_prior(task.dataset, network, lambda model: fit(task, model))
    batches = task.train_batches(network, settings.batch, settings.seed)
    if settings.tensorboard:
        run.open_tensorboard()
    if settings.precision != "float32":
        try:
            Autotune(network, task, batches, NullReporter()).time_step(settings, rounds=1)
        except UnsupportedPrecisionError as error:
            reporter(f"{error}; continuing in float32")
            settings = replace(settings, precision="float32")
    step = Step(network, task.objective, settings)
    checkpointer = Checkpointer(run, task, checkpoint.read_adapter(last))
    state = checkpointer.restore(step)
    step.settings = from_dict(TrainingSettings, {**vars(settings), **state.changed}, "train.")
    budget = make_budget(network, step.settings, run, state, batches.per_epoch)
    baseline = load_baseline_metrics(run, task)
    return Trainer(step, task, batches, budget, checkpointer, reporter, baseline, state)


def extend_budget(trainer: Trainer, steps: int | None, minutes: float | None) -> None:
    """Set a new budget: a total number of steps, or a number of minutes from now."""
    state = trainer.state
    if trainer.network.has(Trait.FITTED):
        raise GlassError(f"{trainer.run.path} was fitted in one pass and cannot be trained further")
    if steps is not None:
        if steps <= state.step:
            raise GlassError(f"{state.step:,} steps are already done: --steps must be larger")
        trainer.change_settings(steps=steps, minutes=None)
    elif minutes is not None:
        total = (state.setup + state.seconds) / 60 + minutes
        trainer.change_settings(steps=None, minutes=total, max_epochs=None)
    trainer.budget = make_budget(
        trainer.network, trainer.settings, trainer.run, state, trainer.batches.per_epoch
    )
    state.evals_since_best, state.is_finished = 0, False
    trainer.save()


def restart(
    path: Path, reporter: Reporter, steps: int | None, minutes: float | None
) -> dict[str, Any]:
    """Train again with the saved request of a run that was stopped before its first step.

    A new budget replaces the saved one.
    """
    arguments = read_request(path)
    if "-" in arguments["data"]:
        raise GlassError(
            f"{path} was stopped before its first step and its data came from standard input: run "
            "`glass train` again"
        )
    reporter(f"{path} was stopped before its first step: starting again")
    task, data = arguments.pop("task"), arguments.pop("data")
    if steps or minutes:
        arguments |= dict.fromkeys(BUDGETS) | {"steps": steps, "minutes": minutes}
        names = tuple(f"train.{name}=" for name in BUDGETS)
        arguments["settings"] = [s for s in arguments["settings"] if not s.startswith(names)]
    return train(task, *data, **{**arguments, "run": path, "reporter": reporter, "overwrite": True})


def read_request(path: Path) -> dict[str, Any]:
    """Return the arguments that `train` saved in a run."""
    if not (path / REQUEST).exists():
        raise GlassError(f"{path} is not a run folder: it has no {checkpoint.CONFIG}")
    arguments = read_json(path / REQUEST)
    lists, names = ("data", "valid", "settings"), ("task", "model", "base", "config")
    is_valid = isinstance(arguments, dict) and all(
        isinstance(arguments.get(name), list)
        and all(isinstance(text, str) for text in arguments[name])
        for name in lists
    )
    if not is_valid or not all(isinstance(arguments.get(name), str | None) for name in names):
        raise GlassError(f"{path / REQUEST} is corrupted: expected the arguments of `glass train`")
    request: dict[str, Any] = arguments
    return request


def train_and_report(trainer: Trainer, reporter: Reporter) -> dict[str, Any]:
    """Train until the end of the budget, evaluate, plot and report; return metrics and costs."""
    task, run, baseline = trainer.task, trainer.run, trainer.baseline
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
    diagnosis, conclusions = diagnose_run(trainer), list[str]()
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


def diagnose_run(trainer: Trainer) -> Diagnosis | None:
    """Diagnose a run by its validation losses.

    None for a model that was fitted in one pass, and for two players, such as those of a GAN: what
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
    prior = trainer.network.prior if isinstance(trainer.network, PriorNetwork) else None
    if isinstance(prior, LabelPrior) and not prior.weights[0]:
        more = math.ceil(state.seconds / 60)
        return Diagnosis(
            FitState.UNDERTRAINED,
            "the network adds nothing to the prior yet: its weight is 0, so that the model is "
            f"NB-SVM; to go on: glass resume {trainer.run.path} --minutes {more}",
        )
    steps, losses = zip(*sorted(losses_by_step.items()), strict=True)
    epochs, minutes = state.step / trainer.batches.per_epoch, state.seconds / 60
    return diagnose(steps, losses, epochs=epochs, minutes=minutes, run=str(trainer.run.path))


def draw_plots(trainer: Trainer, evaluation: Evaluation, reporter: Reporter) -> None:
    """Plot the metrics of the run, and draw the task's own plots of the final evaluation."""
    task, run = trainer.task, trainer.run
    try:
        with wrap_read_errors(run.path / METRICS):
            baseline = trainer.baseline.get(task.spec.metric.name)
            folder, best = run.path / "plots", trainer.evaluator.metric.name
            plot_metrics(run.metrics(), task, best, baseline, folder)
            for name, draw in task.spec.plots.items():
                draw(evaluation.scores, task.artifacts, folder / f"{name}.png")
    except GlassError as error:
        reporter(f"the plots could not be drawn: {error}")


def write_readme(trainer: Trainer, result: dict[str, Any], conclusions: list[str]) -> None:
    """Write a README.md with the results of a run."""
    network, path = trainer.network, result["run"]
    rows = "\n".join(
        f"| {tr(name.replace('_', ' '))} | {tr(format_value(value))} |"
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
