"""Resume a run from its last checkpoint, or restart it if it has none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint
from glassformer.checkpoint import LAST
from glassformer.core.config import from_dict, read_toml
from glassformer.core.errors import GlassError
from glassformer.core.folder import (
    MANIFEST,
    find_subfolder,
    read_json,
    wrap_read_errors,
)
from glassformer.core.reporter import NullReporter, Reporter
from glassformer.models.network import PriorNetwork, Trait
from glassformer.tasks import TASKS
from glassformer.tasks.task import Artifacts
from glassformer.training.autotune import Autotune, UnsupportedPrecisionError
from glassformer.training.baseline import load_baseline_metrics
from glassformer.training.budget import StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.fitting import fit
from glassformer.training.memory import release_memory
from glassformer.training.report import train_and_report
from glassformer.training.request import (
    BUDGETS,
    find_device,
    has_device,
    max_threads,
)  # fmt: skip
from glassformer.training.run import METRICS, REQUEST, Run
from glassformer.training.settings import TrainingSettings
from glassformer.training.setup import make_budget
from glassformer.training.step import Step
from glassformer.training.train import train
from glassformer.training.trainer import Trainer


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
    reporter = reporter or Reporter()
    run = Run(path)
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
        report_start(trainer, reporter)
        return train_and_report(trainer, reporter)


def report_start(trainer: Trainer, reporter: Reporter) -> None:
    """Report the step after which training continues, or that it has already ended."""
    steps, done = trainer.settings.steps, trainer.state.step
    longer = f"to train longer: glass resume {trainer.run.path} --minutes 5"
    if trainer.state.is_finished and trainer.evaluator.should_stop_early(trainer.state):
        reporter(f"training already ended at step {done:,} (early stopping); {longer}")
        return
    message = f"resuming after step {done:,}"
    reporter(f"{message} of {steps:,}" if steps else message)
    if trainer.budget.is_spent(done):
        reporter(f"all steps are done; {longer}")


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
        release_memory()
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
        raise GlassError(f"{trainer.run.path} was fitted directly and cannot be trained further")
    if steps is not None:
        if steps <= state.step:
            raise GlassError(f"step {state.step:,} is already done: --steps must be larger")
        trainer.change_settings(steps=steps, minutes=None)
    elif minutes is not None:
        total = (state.setup_seconds + state.seconds) / 60 + minutes
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
    task = arguments.pop("task")
    data = arguments.pop("data")
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
    lists = ("data", "valid", "settings")
    names = ("task", "model", "base", "config")
    is_valid = isinstance(arguments, dict) and all(
        isinstance(arguments.get(name), list)
        and all(isinstance(text, str) for text in arguments[name])
        for name in lists
    )
    if not is_valid or not all(isinstance(arguments.get(name), str | None) for name in names):
        raise GlassError(f"{path / REQUEST} is corrupted: expected the arguments of `glass train`")
    request: dict[str, Any] = arguments
    return request
