"""A recipe: a TOML file that says what to train and how, for `glass train --config`."""

from __future__ import annotations

import json
from pathlib import Path

from glassformer import config
from glassformer.errors import GlassError
from glassformer.tasks import TASKS
from glassformer.tasks.task import Given

TABLES = ("task", "data", "model", "train")
DATA = ("text", "label", "group", "separator", "tokenizer", "vocab", "valid")


def read_recipe(path: Path) -> tuple[str, Given, str | None, list[str]]:
    """The task, how to read the data, the model's name, and settings as `--set` has them."""
    recipe = config.read(path)
    for name in recipe:
        if name not in TABLES:
            raise GlassError(f"{path} has no table {name!r}{config.nearest(name, TABLES)}")
    task = recipe.get("task")
    if task not in TASKS:
        raise GlassError(f"{path}: there is no task {task!r}; there are {', '.join(TASKS)}")
    data = recipe.get("data", {})
    for name in data:
        if name not in DATA:
            raise GlassError(
                f"{path}: there is no setting 'data.{name}'{config.nearest(name, DATA)}"
            )
    if "text" in data:
        data["text"] = tuple(data["text"])
    model = dict(recipe.get("model", {}))
    architecture = model.pop("name", TASKS[task].models[0])
    tables = {"model": model, "train": recipe.get("train", {})}
    settings = [
        f"{table}.{name}={json.dumps(value)}"
        for table, values in tables.items()
        for name, value in values.items()
    ]
    return task, Given(**data), architecture, settings
