"""From what a person asks for to a trained model: prepare, build, decide, learn, sum up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint, config, models
from glassformer.checkpoint import LAST
from glassformer.data.files import kept_input
from glassformer.errors import GlassError
from glassformer.tasks import TASKS
from glassformer.tasks.task import Given, Task
from glassformer.train.loop import Trainer, decide
from glassformer.train.run import Run
from glassformer.train.settings import Training
from glassformer.train.show import plot

Tell = Callable[[str], None]


def train(
    name: str,
    given: Given,
    path: Path,
    *,
    model: str | None = None,
    training: dict[str, Any] | None = None,
    settings: Iterable[str] = (),
    overwrite: bool = False,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Train a model for a task in a new run folder; give back what came of it."""
    if name not in TASKS:
        raise GlassError(f"there is no task {name!r}{config.nearest(name, TASKS)}")
    kind = TASKS[name]
    architecture = model or kind.models[0]
    shape = make_config(architecture, kind, settings)
    learning = config.make(Training, {**kind.training, "seed": given.seed, **(training or {})})
    learning = config.override(learning, *chosen(settings, "train."))

    run = Run.create(path, overwrite=overwrite)
    try:
        task = prepare(kind, given, run, tell)
        shape = replace(shape, **task.sizes())
        trainer = begin(architecture, shape, task, learning, run, tell)
    except BaseException:
        shutil.rmtree(path)  # nothing was learnt yet
        raise
    return finish(trainer, tell)


def begin(
    architecture: str, shape: Any, task: Task, learning: Training, run: Run, tell: Tell
) -> Trainer:
    """Build the network, decide what is open, and write all of it down."""
    torch.manual_seed(learning.seed)
    if learning.threads:
        torch.set_num_threads(learning.threads)
    network = models.MODELS[architecture](shape)
    task.start(learning.batch, getattr(shape, "context", 0), learning.seed)
    if cut := getattr(task, "cut", 0):
        tell(f"{cut:,} texts are longer than the context of {shape.context} and are cut")
    learning = decide(network, task, learning, run, tell)
    tables = {
        "task": {"name": task.name, **task.facts},
        "model": {"name": architecture, **config.to_dict(shape)},
        "train": config.to_dict(learning),
    }
    run.describe(tables, task.tokenizer)
    size = sum(p.numel() for p in network.parameters())
    tell(f"{architecture}: {size:,} parameters; {learning.steps:,} steps; run folder {run.path}")
    return Trainer(network, task, learning, run)


def prepare(kind: type[Task], given: Given, run: Run, tell: Tell) -> Task:
    if given.bad.log is not None:
        given.bad.log = run.path / "skipped.jsonl"
    given = replace(given, files=kept_input(given.files, run.cache, table=kind.table))
    task = kind.prepare(given, run.cache, tell)
    if given.bad.count:
        tell(f"{given.bad.count:,} bad rows were skipped: see {given.bad.log}")
    return task


def resume(path: Path, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Go on with a run that was stopped."""
    run = Run(path)
    if not (path / checkpoint.CONFIG).exists():
        raise GlassError(f"{path} is no run: it has no {checkpoint.CONFIG}")
    tables = config.read(path / checkpoint.CONFIG)
    learning = config.make(Training, tables["train"], "train.")
    if learning.threads:
        torch.set_num_threads(learning.threads)
    if not (path / LAST).exists():
        raise GlassError(f"{path} has no checkpoint yet: start it again")
    network, tokenizer, facts = checkpoint.load(path / LAST)
    assert tokenizer is not None
    task = TASKS[facts.pop("name")](tokenizer, facts, run.cache)  # type: ignore[call-arg]
    task.start(learning.batch, getattr(network.config, "context", 0), learning.seed)
    trainer = Trainer(network, task, learning, run)
    trainer.restore()
    tell(f"going on after step {trainer.state.step:,} of {learning.steps:,}")
    return finish(trainer, tell)


def finish(trainer: Trainer, tell: Tell) -> dict[str, Any]:
    task, run = trainer.task, trainer.run
    baseline = task.baseline()
    figures = trainer.train()
    plot(run.metrics(), task.figure, baseline.get(task.figure), run.path / "plots")
    result = {
        "run": str(run.path),
        "task": task.name,
        "model": models.name_of(trainer.network),
        "steps": trainer.state.step,
        "seconds": round(trainer.state.seconds, 1),
        **figures,
        "baseline": baseline,
    }
    card(trainer, result)
    if task.figure in figures:
        ours, simple = figures[task.figure], baseline[task.figure]
        wins = ours > simple if task.higher else ours < simple
        verdict = "better than" if wins else "NOT better than"
        what = task.figure.replace("_", " ")
        tell(f"{what} {ours:.4g}, {verdict} a simple count's {simple:.4g}")
    tell(f"use it: glass {task.name} {run.path}   measure it: glass evaluate {run.path}")
    return result


def card(trainer: Trainer, result: dict[str, Any]) -> None:
    """A README.md that says what the folder holds and how it came to be."""
    rows = "\n".join(
        f"| {name} | {value:.4g} |" if isinstance(value, float) else f"| {name} | {value} |"
        for name, value in result.items()
        if name != "baseline"
    )
    simple = ", ".join(f"{name} {value:.4g}" for name, value in result["baseline"].items())
    text = (
        f"# {result['task']} with {result['model']}\n\n| what | value |\n| --- | --- |\n{rows}\n\n"
        f"A simple count on the same data: {simple}. Settings: `config.toml`; figures by step: "
        f"`metrics.jsonl`, `plots/`. Use: `glass {result['task']} {result['run']}`.\n"
    )
    (trainer.run.path / "README.md").write_text(text, encoding="utf-8")


def make_config(architecture: str, kind: type[Task], settings: Iterable[str]) -> Any:
    """The architecture's settings: what suits the task, and what is set."""
    if architecture not in kind.models:
        choice = ", ".join(kind.models)
        raise GlassError(f"{kind.name} is done by {choice}, not by {architecture!r}")
    shape = models.MODELS[architecture].Config
    known = {k: v for k, v in kind.settings.items() if k in shape.__dataclass_fields__}
    return config.override(config.make(shape, known), *chosen(settings, "model."))


def chosen(settings: Iterable[str], prefix: str) -> list[str]:
    """The settings of one table, without its name."""
    for setting in settings:
        if not setting.startswith(("model.", "train.")):
            raise GlassError(f"{setting!r} must start with model. or train.")
    return [s.removeprefix(prefix) for s in settings if s.startswith(prefix)]
