"""From what a person asks for to a trained model: prepare, build, decide, learn, sum up."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint, models
from glassformer.checkpoint import LAST
from glassformer.config import make, nearest, override, read, to_dict
from glassformer.data.files import Bad, kept_input
from glassformer.errors import GlassError
from glassformer.live import Live
from glassformer.tasks import TASKS
from glassformer.tasks.classify import Classify
from glassformer.tasks.task import Data, Given, Task
from glassformer.training.loop import Trainer, decide
from glassformer.training.recipe import Recipe, read_recipe
from glassformer.training.run import Run, next_run
from glassformer.training.settings import Training
from glassformer.training.show import plot, plot_confusion

BUDGETS = ("steps", "epochs", "minutes")


def train(
    task: str | None = None,
    *data: str | Path,
    run: str | Path | None = None,
    model: str | None = None,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    tell: Live | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a model for a task on files, in a new run folder; give back what came of it.

    With `config`, a recipe, the task may be left out. `settings` are those of `--set`; `options`
    are `valid` (files), `skip_bad`, `overwrite`, and any setting of the data or of training.
    """
    tell = tell or Live()
    if config and task is not None and task not in TASKS:
        data, task = (task, *data), None
    recipe = read_recipe(Path(config)) if config else Recipe(task or "")
    if task not in (None, recipe.task):
        raise GlassError(f"{config} is a recipe for {recipe.task}, not for {task}")
    if recipe.task not in TASKS:
        raise GlassError(f"there is no task {recipe.task!r}{nearest(recipe.task, TASKS)}")
    kind = TASKS[recipe.task]
    settings, table = list(settings), dict(recipe.model)
    architecture = model or table.pop("name", kind.models[0])
    shape = make_config(architecture, kind, table, settings)
    valid, skip_bad, overwrite = (options.pop(n, None) for n in ("valid", "skip_bad", "overwrite"))
    learning, reading = sort_options(kind, recipe, options)
    learning = override(learning, *chosen(settings, "train."))

    path = Path(run) if run else next_run(Path("runs"), kind.name)
    bad = Bad(path / "skipped.jsonl" if skip_bad else None)
    given = Given(
        **vars(reading), files=existing(data), valid=existing(valid or ()),
        seed=learning.seed, bad=bad, model=architecture,
    )  # fmt: skip
    folder = Run.create(path, overwrite=bool(overwrite))
    try:
        prepared = prepare(kind, given, folder, tell)
        shape = replace(shape, **prepared.sizes())
        trainer = begin(architecture, shape, prepared, learning, folder, tell)
    except BaseException:
        shutil.rmtree(path)  # nothing was learnt yet
        raise
    return finish(trainer, tell)


def sort_options(
    kind: type[Task], recipe: Recipe, options: dict[str, Any]
) -> tuple[Training, Data]:
    """What was asked for, over what the recipe says, over what suits the task."""
    names = (Training.__dataclass_fields__, Data.__dataclass_fields__)
    for name in options:
        if name not in names[0] and name not in names[1]:
            raise GlassError(f"there is no setting {name!r}{nearest(name, [*names[0], *names[1]])}")
    given = {name: value for name, value in options.items() if value is not None}
    mine, told = ({n: v for n, v in given.items() if n in those} for those in names)
    said = {**kind.training, **recipe.train}
    if any(name in mine for name in BUDGETS):
        said = {n: v for n, v in said.items() if n not in BUDGETS}
    learning = make(Training, {**said, **mine}, "train.")
    return learning, make(Data, {**recipe.data, **told}, "data.")


def existing(names: Iterable[str | Path]) -> tuple[Path, ...]:
    """Names as paths that there are; - is standard input."""
    paths = tuple(map(Path, [names] if isinstance(names, str | Path) else names))
    for path in paths:
        if str(path) != "-" and not path.exists():
            raise GlassError(f"there is no file {path}")
    return paths


def begin(
    architecture: str, shape: Any, task: Task, learning: Training, run: Run, tell: Live
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
        "model": {"name": architecture, **to_dict(shape)},
        "train": to_dict(learning),
    }
    run.describe(tables, task.tokenizer)
    if learning.tensorboard:
        run.open_board()
    size = sum(p.numel() for p in network.parameters())
    tell(f"{architecture}: {size:,} parameters; {learning.steps:,} steps; run folder {run.path}")
    return Trainer(network, task, learning, run, tell)


def prepare(kind: type[Task], given: Given, run: Run, tell: Live) -> Task:
    given = replace(given, files=kept_input(given.files, run.cache, table=kind.table))
    task = kind.prepare(given, run.cache, tell)
    if given.bad.count:
        tell(f"{given.bad.count:,} bad rows were skipped: see {given.bad.log}")
    return task


def resume(path: Path, tell: Live | None = None) -> dict[str, Any]:
    """Go on with a run that was stopped."""
    tell, run = tell or Live(), Run(path)
    if not (path / checkpoint.CONFIG).exists():
        raise GlassError(f"{path} is no run: it has no {checkpoint.CONFIG}")
    tables = read(path / checkpoint.CONFIG)
    learning = make(Training, tables["train"], "train.")
    if learning.threads:
        torch.set_num_threads(learning.threads)
    if not (path / LAST).exists():
        raise GlassError(f"{path} has no checkpoint yet: start it again")
    network, tokenizer, facts = checkpoint.load(path / LAST)
    assert tokenizer is not None
    task = TASKS[facts.pop("name")](tokenizer, facts, run.cache)  # type: ignore[call-arg]
    task.start(learning.batch, getattr(network.config, "context", 0), learning.seed)
    if learning.tensorboard:
        run.open_board()
    trainer = Trainer(network, task, learning, run, tell)
    trainer.restore()
    tell(f"going on after step {trainer.state.step:,} of {learning.steps:,}")
    return finish(trainer, tell)


def finish(trainer: Trainer, tell: Live) -> dict[str, Any]:
    task, run = trainer.task, trainer.run
    baseline = task.baseline()
    figures = trainer.train()
    plot(run.metrics(), task.figure, baseline.get(task.figure), run.path / "plots")
    if isinstance(task, Classify):
        plot_confusion(task.confusion, task.labels, run.path / "plots" / "confusion.png")
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
        verdict = "better than" if wins else "as good as" if ours == simple else "NOT better than"
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


def make_config(
    architecture: str, kind: type[Task], table: dict[str, Any], settings: Iterable[str]
) -> Any:
    """The architecture's settings: what suits the task, what a recipe says, and what is set."""
    if architecture not in kind.models:
        choice = ", ".join(kind.models)
        raise GlassError(f"{kind.name} is done by {choice}, not by {architecture!r}")
    shape = models.MODELS[architecture].Config
    known = {k: v for k, v in kind.settings.items() if k in shape.__dataclass_fields__}
    return override(make(shape, {**known, **table}, "model."), *chosen(settings, "model."))


def chosen(settings: Iterable[str], prefix: str) -> list[str]:
    """The settings of one table, without its name."""
    for setting in settings:
        if not setting.startswith(("model.", "train.")):
            raise GlassError(f"{setting!r} must start with model. or train.")
    return [s.removeprefix(prefix) for s in settings if s.startswith(prefix)]
