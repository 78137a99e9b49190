"""The tasks, one file each: a spec, a dataset, an objective and a codec (see task.py)."""

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.tasks.classify import CLASSIFY
from glassformer.tasks.fill_mask import FILL_MASK
from glassformer.tasks.generate import GENERATE
from glassformer.tasks.task import TaskSpec
from glassformer.tasks.translate import TRANSLATE

TASKS: dict[str, TaskSpec] = {
    spec.name: spec for spec in (GENERATE, CLASSIFY, TRANSLATE, FILL_MASK)
}


def find_task(name: str) -> TaskSpec:
    if name not in TASKS:
        raise GlassError(f"unknown task {name!r}{did_you_mean(name, TASKS)}")
    return TASKS[name]
