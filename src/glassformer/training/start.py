"""Train, resume, and sum up what came of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint, models
from glassformer.checkpoint import LAST
from glassformer.config import make, read
from glassformer.data.files import Bad, kept_input
from glassformer.errors import GlassError
from glassformer.folder import read_json, reading, subfolder, write_file
from glassformer.live import Live, shown
from glassformer.tasks import TASKS
from glassformer.tasks.classify import Classify
from glassformer.tasks.task import Given, Task
from glassformer.training.begin import Start, begin
from glassformer.training.counting import beats, known_baseline, sentence
from glassformer.training.decide import CannotRunError, pace
from glassformer.training.loop import Trainer
from glassformer.training.request import (
    BUDGETS,
    Request,
    find_device,
    has_device,
    most_threads,
)
from glassformer.training.run import METRICS, REQUEST, Run, next_run
from glassformer.training.settings import Training
from glassformer.training.show import peak_memory, plot, plot_confusion


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
    tell: Live | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a model for a task on files, in a new run folder; give back what came of it.

    With `config`, a recipe, the task may be left out. `base` is a model to start from. `settings`
    are those of `--set`; `options` are `valid` (files), `extend`, and any setting of the data or of
    training.
    """
    tell = tell or Live()
    request = Request.of(task, data, config, settings, options, anew=base is None)
    start = Start.of(request, base, model)
    path = Path(run) if run else next_run(Path("runs"), request.kind.name)
    given = replace(
        request.given,
        bad=Bad(path / "skipped.jsonl" if skip_bad else None),
        model=start.architecture,
        ready=start.tokenizer,
    )
    asked = {
        "task": request.kind.name, "data": [*map(absolute, given.files)],
        "run": absolute(path), "model": model, "base": base and absolute(base),
        "config": config and absolute(config), "settings": list(settings), "skip_bad": skip_bad,
        **options, "valid": [*map(absolute, given.valid)],
    }  # fmt: skip
    for needed in (*given.files, *given.valid, *([Path(base)] if base else [])):
        if needed.resolve().is_relative_to(path.resolve()):
            raise GlassError(f"{needed} is needed, and {path} would take its place")
    request.check(anew=base is None)
    folder = Run.create(path, overwrite=overwrite)
    with folder.held():
        write_file(path / REQUEST, json.dumps(asked))
        try:
            prepared = prepare(request.kind, given, folder, tell)
            trainer = begin(start, prepared, request.learning, folder, tell)
        except BaseException:
            folder.give_up()
            raise
        shutil.rmtree(folder.aside, ignore_errors=True)
        return finish(trainer, tell)


def absolute(name: str | Path) -> str:
    """A name that means the same from every folder."""
    return str(name) if str(name) == "-" else str(Path(name).absolute())


def prepare(kind: type[Task], given: Given, run: Run, tell: Live) -> Task:
    given = replace(
        given,
        files=kept_input(given.files, run.cache, table=kind.table),
        valid=kept_input(given.valid, run.cache, table=kind.table, name="valid"),
    )
    task = kind.prepare(given, run.cache, tell)
    if given.bad.count:
        tell(f"{given.bad.count:,} bad rows were skipped: see {given.bad.log}")
    return task


def resume(
    path: Path,
    tell: Live | None = None,
    *,
    steps: int | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Go on with a run that was stopped, or begin again with one that had not begun to learn.

    `steps` in all, or so many `minutes` more, let a run go on beyond its end.
    """
    tell, run = tell or Live(), Run(path)
    if not (path / checkpoint.CONFIG).exists():
        return again(path, tell, steps, minutes)
    with run.held():
        with reading(path):
            trainer = continued(run, tell)
        if steps or minutes:
            trainer.extend(steps, minutes)
        state = trainer.state
        tell(f"going on after step {state.step:,} of {state.steps:,}")
        if state.step >= state.steps:
            tell(f"all steps are done; to learn more: glass resume {path} --minutes 5")
        return finish(trainer, tell)


def continued(run: Run, tell: Live) -> Trainer:
    """The trainer of a run as it was at its last checkpoint."""
    run.require(checkpoint.CONFIG, checkpoint.TOKENIZER, METRICS, "cache/")
    tables = read(run.path / checkpoint.CONFIG)
    learning = make(Training, tables["train"], "train.")
    if not has_device(learning.device):
        tell(f"device was {learning.device}: the last bits of the numbers may differ")
        learning = replace(learning, device=find_device("auto"))
    if learning.threads:
        torch.set_num_threads(min(learning.threads, most_threads()))
    for name, value in run.changed():
        tell(f"{name} was {value}: the last bits of the numbers may differ")
    last = subfolder(run.path, LAST)
    if last is None:
        raise GlassError(f"{run.path} has no folder {LAST}: there is nothing to go on from")
    network, tokenizer, facts = checkpoint.load(last, merged=False)
    if tokenizer is None or facts.get("name") not in TASKS:
        raise GlassError(f"{last} is damaged: it has no task or no tokenizer")
    task = TASKS[facts.pop("name")](tokenizer, facts, run.cache)  # type: ignore[call-arg]
    task.start(learning.batch, getattr(network.config, "context", 0), learning.seed)
    if learning.tensorboard:
        run.open_board()
    if learning.precision != "float32":
        try:
            pace(network, task, learning, run, rounds=1)
        except CannotRunError as error:
            tell(f"{error}; it goes on in float32")
            learning = replace(learning, precision="float32")
    trainer = Trainer(network, task, learning, run, tell)
    trainer.adapter = checkpoint.adapter_of(last)
    trainer.baseline = known_baseline(run, task)
    trainer.restore()
    return trainer


def again(path: Path, tell: Live, steps: int | None, minutes: float | None) -> dict[str, Any]:
    """Begin anew with a run that was stopped before its first step, as it was asked for.

    Another budget takes the place of that which it had.
    """
    asked = read_request(path)
    if "-" in asked["data"]:
        raise GlassError(f"{path} was to read standard input, which is gone: start it again")
    tell("it had not begun to learn: it begins again")
    task, data = asked.pop("task"), asked.pop("data")
    if steps or minutes:
        asked |= dict.fromkeys(BUDGETS) | {"steps": steps, "minutes": minutes}
    return train(task, *data, **{**asked, "run": path, "tell": tell, "overwrite": True})


def read_request(path: Path) -> dict[str, Any]:
    """What was asked of a run, as `train` wrote it down."""
    if not (path / REQUEST).exists():
        raise GlassError(f"{path} is no run: it has no {checkpoint.CONFIG}")
    asked = read_json(path / REQUEST)
    texts, names = ("data", "valid", "settings"), ("task", "model", "base", "config")
    sound = isinstance(asked, dict) and all(
        isinstance(asked.get(name), list) and all(isinstance(text, str) for text in asked[name])
        for name in texts
    )
    if not sound or not all(isinstance(asked.get(name), str | None) for name in names):
        raise GlassError(f"{path / REQUEST} is damaged: it does not say what to train")
    found: dict[str, Any] = asked
    return found


def finish(trainer: Trainer, tell: Live) -> dict[str, Any]:
    task, run = trainer.task, trainer.run
    baseline = trainer.baseline
    figures = trainer.train()
    if not figures:  # it was stopped
        return {"run": str(run.path), "task": task.name, "steps": trainer.state.step}
    try:
        with reading(run.path / METRICS):
            plot(run.metrics(), task, baseline.get(task.verdict), run.path / "plots")
    except GlassError as error:
        tell(f"the plots could not be drawn: {error}")
    if isinstance(task, Classify):
        plot_confusion(task.confusion, task.labels, run.path / "plots" / "confusion.png")
    result = {
        "run": str(run.path),
        "task": task.name,
        "model": models.name_of(trainer.network),
        "parameters": sum(p.numel() for p in trainer.network.parameters()),
        "steps": trainer.state.step,
        "seconds": round(trainer.state.seconds, 1),
        "speed": round(trainer.speed(), 1),
        "memory": round(peak_memory(), 2),
        **figures,
        **({"baseline": baseline} if baseline else {}),
    }
    card(trainer, result)
    run.seal()
    tell("  ".join(f"{n} {v:.4g}" for n, v in figures.items() if isinstance(v, float)))
    if baseline:
        tell(sentence(task, figures, baseline))
        if not beats(task, figures, baseline) and trainer.state.step:
            passes = trainer.state.step / task.epoch()
            more = f"glass resume {run.path} --minutes 10 goes on"
            tell(f"it saw its data {passes:.1f} times: {more}")
    tell(f"use it: glass {task.name} {run.path}   measure it: glass evaluate {run.path}")
    return result


def card(trainer: Trainer, result: dict[str, Any]) -> None:
    """A README.md that says what the folder holds and how it came to be."""
    rows = "\n".join(
        f"| {name} | {shown(value)} |"
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
    (trainer.run.path / "README.md").write_text(text, encoding="utf-8")
