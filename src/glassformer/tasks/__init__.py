"""One task, one file: what its examples are, its loss, its figures, its baseline."""

from __future__ import annotations

from glassformer.config import nearest
from glassformer.errors import GlassError
from glassformer.tasks.classify import Classify
from glassformer.tasks.fill_mask import FillMask
from glassformer.tasks.generate import Generate
from glassformer.tasks.task import Task
from glassformer.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    kind.name: kind for kind in (Generate, Classify, Translate, FillMask)
}


def find_task(name: str) -> type[Task]:
    if name not in TASKS:
        raise GlassError(f"there is no task {name!r}{nearest(name, TASKS)}")
    return TASKS[name]
