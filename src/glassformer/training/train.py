"""Train a model in a new run folder."""

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.folder import (
    write_file,
)
from glassformer.core.reporter import Reporter
from glassformer.data.files import BadRowPolicy, save_streams
from glassformer.data.request import DataRequest
from glassformer.tasks import TASKS
from glassformer.tasks.task import Task, TaskSpec
from glassformer.training.report import train_and_report
from glassformer.training.request import (
    Request,
)  # fmt: skip
from glassformer.training.run import REQUEST, Run, next_run
from glassformer.training.setup import set_up
from glassformer.training.start import Start

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
    start_time = start_time or time.monotonic()
    reporter = reporter or Reporter()
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
    context = values.get("model.context", "")
    spec = TASKS.get(task or "")
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
