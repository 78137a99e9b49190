"""One task, one file: what its examples are, its loss, its figures, its baseline."""

from __future__ import annotations

from glassformer.tasks.classify import Classify
from glassformer.tasks.fill_mask import FillMask
from glassformer.tasks.generate import Generate
from glassformer.tasks.task import Task
from glassformer.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    kind.name: kind for kind in (Generate, Classify, Translate, FillMask)
}
