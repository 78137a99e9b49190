"""Train, resume, and sum up what came of it."""

import json
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
from glassformer.core.folder import find_subfolder, read_json, wrap_read_errors, write_file
from glassformer.core.reporter import NullReporter, Reporter, format_value
from glassformer.data.files import BadRowPolicy, save_streams
from glassformer.data.request import DataRequest
from glassformer.models.network import Trait
from glassformer.tasks import TASKS
from glassformer.tasks.task import Artifacts, Task, TaskSpec
from glassformer.training.autotune import Autotune, UnsupportedPrecisionError
from glassformer.training.baseline import beats_baseline, load_baseline_metrics, sentence
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluation
from glassformer.training.memory import peak_memory
from glassformer.training.plots import plot
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
    """Train a model for a task on files, in a new run folder; give back what came of it.

    With `config`, a recipe, the task may be left out. `base` is a model to start from. `settings`
    are those of `--set`; `options` are `valid` (files), `extend`, and any setting of the data or of
    training. A budget in minutes counts from `began`, by the monotonic clock, or else from now.
    """
    start_time, reporter = start_time or time.monotonic(), reporter or Reporter()
    request = Request.of(task, data, config, settings, options, from_scratch=base is None)
    start = Start.of(request, base, model)
    path = Path(run) if run else next_run(Path("runs"), request.spec.name)
    given = replace(
        request.data,
        on_bad_row=BadRowPolicy(path / "skipped.jsonl" if skip_bad else None),
        model=start.architecture,
        base_tokenizer=start.tokenizer,
    )
    arguments = {
        "task": request.spec.name, "data": [*map(absolute, given.files)],
        "run": absolute(path), "model": model, "base": base and absolute(base),
        "config": config and absolute(config), "settings": list(settings), "skip_bad": skip_bad,
        **options, "valid": [*map(absolute, given.valid)],
    }  # fmt: skip
    for needed in (*given.files, *given.valid, *([Path(base)] if base else [])):
        if needed.resolve().is_relative_to(path.resolve()):
            raise GlassError(f"{needed} is needed, and {path} would take its place")
    request.check(from_scratch=base is None)
    folder = Run.create(path, overwrite=overwrite)
    with folder.held():
        write_file(path / REQUEST, json.dumps(arguments))
        try:
            ready = prepare(request.spec, given, folder, reporter)
            trainer = set_up(start, ready, request.learning, folder, reporter, start_time)
        except BaseException:
            folder.discard()
            raise
        shutil.rmtree(folder.aside, ignore_errors=True)
        return finish(trainer, reporter)


def absolute(name: str | Path) -> str:
    """A name that means the same from every folder."""
    return str(name) if str(name) == "-" else str(Path(name).absolute())


def prepare(spec: TaskSpec, request: DataRequest, run: Run, reporter: Reporter) -> Task:
    """Read the data into the run's cache, and open the task on them."""
    request = replace(
        request,
        files=save_streams(request.files, run.cache, table=spec.is_table),
        valid=save_streams(request.valid, run.cache, table=spec.is_table, name="valid"),
    )
    artifacts = spec.prepare(request, run.cache, reporter)
    if request.on_bad_row.count:
        reporter(
            f"{request.on_bad_row.count:,} bad rows were skipped: see {request.on_bad_row.log}"
        )
    return spec.open(artifacts, run.cache)


def resume(
    path: Path,
    reporter: Reporter | None = None,
    *,
    steps: int | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Go on with a run that was stopped, or begin again with one that had not begun to learn.

    `steps` in all, or so many `minutes` more, let a run go on beyond its end.
    """
    reporter, run = reporter or Reporter(), Run(path)
    if not (path / checkpoint.CONFIG).exists():
        return again(path, reporter, steps, minutes)
    with run.held():
        with wrap_read_errors(path):
            trainer = load_trainer(run, reporter)
        if steps or minutes:
            extend(trainer, steps, minutes)
        steps, done = trainer.settings.steps, trainer.state.step
        reporter(f"going on after step {done:,}" + (f" of {steps:,}" if steps else ""))
        if trainer.budget.is_spent(done):
            reporter(f"all steps are done; to learn more: glass resume {path} --minutes 5")
        return finish(trainer, reporter)


def load_trainer(run: Run, reporter: Reporter) -> Trainer:
    """The trainer of a run as it was at its last checkpoint."""
    run.require(checkpoint.CONFIG, checkpoint.TOKENIZER, METRICS, "cache/")
    tables = read_toml(run.path / checkpoint.CONFIG)
    settings = from_dict(TrainingSettings, tables["train"], "train.")
    if not has_device(settings.device):
        reporter(f"device was {settings.device}: the last bits of the numbers may differ")
        settings = replace(settings, device=find_device("auto"))
    if settings.threads:
        torch.set_num_threads(min(settings.threads, max_threads()))
    for name, value in run.changed():
        reporter(f"{name} was {value}: the last bits of the numbers may differ")
    last = find_subfolder(run.path, LAST)
    if last is None:
        raise GlassError(f"{run.path} has no folder {LAST}: there is nothing to go on from")
    network, tokenizer, metadata = checkpoint.load(last, merged=False)
    if metadata.get("name") not in TASKS:
        raise GlassError(f"{last} is damaged: it does not say its task")
    spec = TASKS[metadata.pop("name")]
    task = spec.open(Artifacts(metadata, tokenizer), run.cache)
    batches = task.dataset.train_batches(settings.batch, network.context, settings.seed)
    if settings.tensorboard:
        run.open_tensorboard()
    if settings.precision != "float32":
        try:
            Autotune(network, task, batches, NullReporter()).pace(settings, rounds=1)
        except UnsupportedPrecisionError as error:
            reporter(f"{error}; it goes on in float32")
            settings = replace(settings, precision="float32")
    step = Step(network, task.objective, settings)
    checkpointer = Checkpointer(run, task, checkpoint.read_adapter(last))
    state = checkpointer.restore(step)
    step.settings = from_dict(TrainingSettings, {**vars(settings), **state.changed}, "train.")
    budget = make_budget(network, step.settings, run, state)
    baseline = load_baseline_metrics(run, task)
    return Trainer(step, task, batches, budget, checkpointer, reporter, baseline, state)


def extend(trainer: Trainer, steps: int | None, minutes: float | None) -> None:
    """Set another end: a number of steps in all, or so many minutes from now."""
    state = trainer.state
    if trainer.network.has(Trait.FITTED):
        raise GlassError("it learnt in one go: there is nothing to go on with")
    if steps is not None:
        if steps <= state.step:
            raise GlassError(f"{state.step:,} steps are done already: ask for more than that")
        trainer.change(steps=steps, minutes=None)
    elif minutes is not None:
        trainer.change(steps=None, minutes=(state.setup + state.seconds) / 60 + minutes)
    trainer.budget = make_budget(trainer.network, trainer.settings, trainer.run, state)
    state.evals_since_best = 0
    trainer.save()


def again(
    path: Path, reporter: Reporter, steps: int | None, minutes: float | None
) -> dict[str, Any]:
    """Begin anew with a run that was stopped before its first step, as it was asked for.

    Another budget takes the place of that which it had.
    """
    arguments = read_request(path)
    if "-" in arguments["data"]:
        raise GlassError(f"{path} was to read standard input, which is gone: start it again")
    reporter("it had not begun to learn: it begins again")
    task, data = arguments.pop("task"), arguments.pop("data")
    if steps or minutes:
        arguments |= dict.fromkeys(BUDGETS) | {"steps": steps, "minutes": minutes}
    return train(task, *data, **{**arguments, "run": path, "reporter": reporter, "overwrite": True})


def read_request(path: Path) -> dict[str, Any]:
    """What was asked of a run, as `train` wrote it down."""
    if not (path / REQUEST).exists():
        raise GlassError(f"{path} is no run: it has no {checkpoint.CONFIG}")
    arguments = read_json(path / REQUEST)
    texts, names = ("data", "valid", "settings"), ("task", "model", "base", "config")
    sound = isinstance(arguments, dict) and all(
        isinstance(arguments.get(name), list)
        and all(isinstance(text, str) for text in arguments[name])
        for name in texts
    )
    if not sound or not all(isinstance(arguments.get(name), str | None) for name in names):
        raise GlassError(f"{path / REQUEST} is damaged: it does not say what to train")
    found: dict[str, Any] = arguments
    return found


def finish(trainer: Trainer, reporter: Reporter) -> dict[str, Any]:
    task, run, baseline = trainer.task, trainer.run, trainer.baseline
    found = trainer.train()
    if found is None:  # it was stopped
        return {"run": str(run.path), "task": task.name, "steps": trainer.state.step}
    draw_plots(trainer, found, reporter)
    result = {
        "run": str(run.path),
        "task": task.name,
        "model": registry.model_name(trainer.network),
        "parameters": sum(p.numel() for p in trainer.network.parameters()),
        "steps": trainer.state.step,
        "seconds": round(trainer.state.seconds, 1),
        "speed": round(trainer.speed(), 1),
        "memory": round(peak_memory(), 2),
        **found.metrics,
        **({"baseline": baseline} if baseline else {}),
    }
    write_readme(trainer, result)
    run.seal()
    reporter("  ".join(f"{n} {v:.4g}" for n, v in found.metrics.items() if isinstance(v, float)))
    if baseline:
        reporter(sentence(task, found.metrics, baseline))
        if not beats_baseline(task, found.metrics, baseline) and trainer.state.step:
            passes = trainer.state.step / trainer.batches.per_epoch
            more = f"glass resume {run.path} --minutes 10 goes on"
            reporter(f"it saw its data {passes:.1f} times: {more}")
    reporter(f"use it: glass {task.name} {run.path}   measure it: glass evaluate {run.path}")
    return result


def draw_plots(trainer: Trainer, found: Evaluation, reporter: Reporter) -> None:
    """Curves of the run, and the task's own pictures of its final evaluation."""
    task, run = trainer.task, trainer.run
    try:
        with wrap_read_errors(run.path / METRICS):
            baseline = trainer.baseline.get(task.spec.metric.name)
            folder, best = run.path / "plots", trainer.evaluator.metric.name
            plot(run.metrics(), task, best, baseline, folder)
            for name, draw in task.spec.plots.items():
                draw(found.scores, task.artifacts, folder / f"{name}.png")
    except GlassError as error:
        reporter(f"the plots could not be drawn: {error}")


def write_readme(trainer: Trainer, result: dict[str, Any]) -> None:
    """A README.md that says what the folder holds and how it came to be."""
    rows = "\n".join(
        f"| {name} | {format_value(value)} |"
        for name, value in result.items()
        if name not in ("baseline", "bleu_signature")
    )
    beside = ""
    if "baseline" in result:
        beside = f"{sentence(trainer.task, result, result['baseline'])}. "
    text = (
        f"# {result['task']} with {result['model']}\n\n| what | value |\n| --- | --- |\n{rows}\n\n"
        f"{beside}Settings: `config.toml`; figures by step: "
        f"`metrics.jsonl`, `plots/`. Use: `glass {result['task']} {result['run']}`.\n"
    )
    write_file(trainer.run.path / "README.md", text)
