"""From what a person asks for to a trained model: prepare, build, decide, learn, sum up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer import checkpoint, models
from glassformer.checkpoint import BEST, LAST, Adapter
from glassformer.config import make, nearest, override, read, to_dict
from glassformer.data.files import Bad, kept_input
from glassformer.errors import GlassError
from glassformer.folder import read_json, write_file
from glassformer.live import Live
from glassformer.nn.lora import add_lora
from glassformer.tasks import TASKS
from glassformer.tasks.classify import Classify
from glassformer.tasks.task import Data, Given, Task
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.decide import decide
from glassformer.training.loop import Trainer
from glassformer.training.memory import TooLongError
from glassformer.training.recipe import Recipe, read_recipe
from glassformer.training.run import Run, next_run
from glassformer.training.settings import Training
from glassformer.training.show import plot, plot_confusion

BUDGETS = ("steps", "epochs", "minutes")
REQUEST = "request.json"


def train(
    task: str | None = None,
    *data: str | Path,
    run: str | Path | None = None,
    model: str | None = None,
    base: str | Path | None = None,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    tell: Live | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a model for a task on files, in a new run folder; give back what came of it.

    With `config`, a recipe, the task may be left out. `base` is a model to start from. `settings`
    are those of `--set`; `options` are `valid` (files), `extend`, `skip_bad`, `overwrite`, and any
    setting of the data or of training.
    """
    tell = tell or Live()
    if config and task is not None and task not in TASKS:
        data, task = (task, *data), None
    recipe = read_recipe(Path(config)) if config else Recipe(task or "")
    if task not in (None, recipe.task):
        raise GlassError(f"{config} is a recipe for {recipe.task}, not for {task}")
    if recipe.task not in TASKS:
        raise GlassError(f"there is no task {recipe.task!r}{nearest(recipe.task, TASKS)}")
    kind, settings = TASKS[recipe.task], list(settings)
    path = Path(run) if run else next_run(Path("runs"), kind.name)
    asked: dict[str, Any] = {
        "task": kind.name, "data": [absolute(name) for name in data], "model": model,
        "base": base and absolute(base), "config": config and absolute(config),
        "settings": settings, **options, "valid": [absolute(n) for n in listed(options, "valid")],
    }  # fmt: skip
    names = ("valid", "extend", "skip_bad", "overwrite")
    valid, extend, skip_bad, overwrite = (options.pop(name, None) for name in names)
    learning, reading = sort_options(kind, recipe, options)
    learning = override(learning, *chosen(settings, "train."))
    start = Start.of(kind, base, model, dict(recipe.model), settings)
    given = Given(
        **vars(reading),
        files=existing(data),
        valid=existing(valid or ()),
        seed=learning.seed,
        bad=Bad(path / "skipped.jsonl" if skip_bad else None),
        model=start.architecture,
        ready=start.tokenizer,
        extend=bool(extend),
    )
    folder = Run.create(path, overwrite=bool(overwrite))
    with folder.held():
        write_file(path / REQUEST, json.dumps(asked))
        try:
            prepared = prepare(kind, given, folder, tell)
            trainer = begin(start, prepared, learning, folder, tell)
        except BaseException:
            shutil.rmtree(path)  # nothing was learnt yet
            raise
        return finish(trainer, tell)


def absolute(name: str | Path) -> str:
    """A name that means the same from every folder."""
    return str(name) if str(name) == "-" else str(Path(name).absolute())


def listed(options: dict[str, Any], name: str) -> list[str | Path]:
    value = options.get(name) or []
    return [value] if isinstance(value, str | Path) else list(value)


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


@dataclass(frozen=True)
class Start:
    """What a run starts from: an architecture, its settings, and perhaps another model."""

    architecture: str
    shape: Any
    base: Path | None = None
    network: nn.Module | None = None
    tokenizer: Tokenizer | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of the task that the model was made for

    @classmethod
    def of(
        cls, kind: type[Task], base: str | Path | None, model: str | None, table: dict[str, Any],
        settings: list[str],
    ) -> Start:  # fmt: skip
        named = table.pop("name", None)
        if base is None:
            architecture = model or named or kind.models[0]
            return cls(architecture, make_config(architecture, kind, table, settings))
        path = Path(base)
        path = path / BEST if (path / BEST).is_dir() else path
        network, tokenizer, facts = checkpoint.open_folder(path)
        if tokenizer is None:
            raise GlassError(f"{path} has no tokenizer, so that nothing can be read with it")
        old = models.name_of(network)
        architecture = kind.built_on.get(old, old)
        if (model or architecture) != architecture:
            raise GlassError(f"{path} holds a model that becomes {architecture}, not {model}")
        known = models.MODELS[architecture].Config.__dataclass_fields__
        kept: dict[str, Any] = to_dict(network.config)
        for name in ("masked", "pooled", "dropout"):
            kept |= {name: kind.settings[name]} if name in kind.settings else {}
        kept |= table
        kept = {name: value for name, value in kept.items() if name in known}
        shape = make_config(architecture, kind, kept, settings)
        return cls(architecture, shape, path, network, tokenizer, facts)

    def build(self, task: Task, learning: Training, tell: Live) -> nn.Module:
        """The network, with what it takes over from another."""
        torch.manual_seed(learning.seed)
        network: nn.Module = models.MODELS[self.architecture](self.shape)
        if self.network is None:
            return network
        same = self.facts.get("labels") == task.facts.get("labels")
        head = [] if same else ["head.weight", "head.bias"]
        anew = checkpoint.inherit(network, self.network.state_dict(), but=head)
        tell(f"starts from {self.base}" + (f"; anew: {', '.join(anew)}" if anew else ""))
        if learning.lora:
            add_lora(network, learning.lora)
            for name, parameter in network.named_parameters():
                parameter.requires_grad_(parameter.requires_grad or name in anew)
        return network

    def adapter(self, learning: Training) -> Adapter | None:
        if not learning.lora:
            return None
        if self.base is None:
            raise GlassError("lora trains beside a model that there is: name it with --from")
        base = self.base.absolute()
        return Adapter(learning.lora, str(base), checkpoint.fingerprint(base))


def begin(start: Start, task: Task, learning: Training, run: Run, tell: Live) -> Trainer:
    """Build the network, decide what is open, and write all of it down."""
    if learning.threads:
        torch.set_num_threads(learning.threads)
    start = replace(start, shape=replace(start.shape, **task.sizes()))
    adapter = start.adapter(learning)
    network = start.build(task, learning, tell)
    context = getattr(start.shape, "context", 0)
    task.start(learning.batch, context, learning.seed)
    if cut := getattr(task, "cut", 0):
        tell(f"{cut:,} texts are longer than the context of {context} and are cut")
    try:
        learning = decide(network, task, learning, run, tell)
    except TooLongError as error:
        if not learning.fit or not error.fits or not context:
            raise
        tell(f"a context of {error.fits} in place of {context} fits into memory")
        smaller = replace(start, shape=replace(start.shape, context=error.fits))
        return begin(smaller, task, learning, run, tell)
    trainer = Trainer(network, task, learning, run, tell)
    trainer.adapter = adapter
    trainer.save()
    tables = {
        "task": {"name": task.name, **task.facts},
        "model": {"name": start.architecture, **to_dict(start.shape)},
        "train": to_dict(learning),
    }
    run.describe(tables, task.tokenizer)
    run.seal()
    if learning.tensorboard:
        run.open_board()
    size = sum(p.numel() for p in network.parameters())
    learns = sum(p.numel() for p in network.parameters() if p.requires_grad)
    part = "" if learns == size else f", of which {learns:,} learn"
    what = f"{start.architecture}: {size:,} parameters{part}"
    tell(f"{what}; {learning.steps:,} steps; run folder {run.path}")
    return trainer


def prepare(kind: type[Task], given: Given, run: Run, tell: Live) -> Task:
    given = replace(given, files=kept_input(given.files, run.cache, table=kind.table))
    task = kind.prepare(given, run.cache, tell)
    if given.bad.count:
        tell(f"{given.bad.count:,} bad rows were skipped: see {given.bad.log}")
    return task


def resume(path: Path, tell: Live | None = None) -> dict[str, Any]:
    """Go on with a run that was stopped, or begin again with one that had not begun to learn."""
    tell, run = tell or Live(), Run(path)
    if not (path / checkpoint.CONFIG).exists():
        return again(path, tell)
    with run.held():
        wrong = run.damage(only=("config.toml", "tokenizer.json", "cache/"))
        if wrong:
            raise GlassError("; ".join(wrong))
        tables = read(path / checkpoint.CONFIG)
        learning = make(Training, tables["train"], "train.")
        if learning.threads:
            torch.set_num_threads(learning.threads)
        for name, value in run.changed():
            tell(f"{name} was {value}: the last bits of the numbers may differ")
        network, tokenizer, facts = checkpoint.load(path / LAST, merged=False)
        assert tokenizer is not None
        task = TASKS[facts.pop("name")](tokenizer, facts, run.cache)  # type: ignore[call-arg]
        task.start(learning.batch, getattr(network.config, "context", 0), learning.seed)
        if learning.tensorboard:
            run.open_board()
        trainer = Trainer(network, task, learning, run, tell)
        trainer.adapter = checkpoint.adapter_of(path / LAST)
        trainer.restore()
        tell(f"going on after step {trainer.state.step:,} of {learning.steps:,}")
        return finish(trainer, tell)


def again(path: Path, tell: Live) -> dict[str, Any]:
    """Begin anew with a run that was stopped before its first step, as it was asked for."""
    if not (path / REQUEST).exists():
        raise GlassError(f"{path} is no run: it has no {checkpoint.CONFIG}")
    asked = read_json(path / REQUEST)
    if "-" in asked["data"]:
        raise GlassError(f"{path} was to read standard input, which is gone: start it again")
    tell("it had not begun to learn: it begins again")
    task, data = asked.pop("task"), asked.pop("data")
    return train(task, *data, run=path, tell=tell, **{**asked, "overwrite": True})


def finish(trainer: Trainer, tell: Live) -> dict[str, Any]:
    task, run = trainer.task, trainer.run
    baseline = task.baseline()
    figures = trainer.train()
    if not figures:  # it was stopped
        return {"run": str(run.path), "task": task.name, "steps": trainer.state.step}
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
    run.seal()
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
