"""A recipe: a TOML file with a task and its settings, for `glass train --config`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.core import config
from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.tasks import TASKS


@dataclass(frozen=True)
class Recipe:
    task: str
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)  # the architecture's name and settings
    train: dict[str, Any] = field(default_factory=dict)


def read_recipe(path: Path) -> Recipe:
    with wrap_read_errors(path):
        tables = config.read_toml(path)
    for name, value in tables.items():
        if name not in Recipe.__dataclass_fields__:
            hint = config.did_you_mean(name, Recipe.__dataclass_fields__)
            raise GlassError(f"{path}: unknown recipe entry {name!r}{hint}")
        if name != "task" and not isinstance(value, dict):
            raise GlassError(f"{path}: {name} must be a table of settings, got {value!r}")
    if not isinstance(tables.get("task"), str) or tables["task"] not in TASKS:
        raise GlassError(
            f"{path}: unknown task {tables.get('task')!r}; available: {', '.join(TASKS)}"
        )
    recipe = Recipe(**tables)
    architecture = recipe.model.get("name")
    if not isinstance(architecture, str | None):
        raise GlassError(f"{path}: the name of the model must be a string, got {architecture!r}")
    return recipe
