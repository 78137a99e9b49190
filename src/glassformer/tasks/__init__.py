"""The tasks, one file each: a spec, a dataset, an objective and a codec (see task.py)."""

from collections.abc import Sequence
from pathlib import Path

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError
from glassformer.tasks.classify import CLASSIFY
from glassformer.tasks.classify_images import CLASSIFY_IMAGES
from glassformer.tasks.fill_mask import FILL_MASK
from glassformer.tasks.generate import GENERATE
from glassformer.tasks.paint import PAINT
from glassformer.tasks.recommend import RECOMMEND
from glassformer.tasks.recommend_next import RECOMMEND_NEXT
from glassformer.tasks.summarize import SUMMARIZE
from glassformer.tasks.task import TaskSpec
from glassformer.tasks.translate import TRANSLATE

TASKS: dict[str, TaskSpec] = {
    spec.name: spec
    for spec in (
        *(GENERATE, CLASSIFY, CLASSIFY_IMAGES, TRANSLATE, FILL_MASK, SUMMARIZE),
        *(RECOMMEND, RECOMMEND_NEXT, PAINT),
    )
}


def find_task(name: str, files: Sequence[Path] = (), model: str | None = None) -> TaskSpec:
    """Return the task with this name, or one that shares its command and suits the data or model.

    A task suits the model if it can train it. If there is no such task, the one with the name is
    returned.
    """
    if name not in TASKS:
        commands = list(dict.fromkeys(spec.command or spec.name for spec in TASKS.values()))
        hint = did_you_mean(name, commands) or f"; tasks: {', '.join(commands)}"
        raise GlassError(f"unknown task {name!r}{hint}")
    others = [spec for spec in TASKS.values() if spec.command == name]
    suits_data = [spec for spec in others if files and spec.accepts and spec.accepts(files)]
    suits_model = [spec for spec in others if model in spec.models]
    return next(iter((*suits_data, *suits_model)), TASKS[name])
