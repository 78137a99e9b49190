"""What a person asks for, from a command, a recipe or Python, sorted and checked."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from glassformer.core.config import did_you_mean, from_dict, override
from glassformer.core.errors import GlassError
from glassformer.data.request import DataOptions, DataRequest
from glassformer.tasks import TASKS, find_task
from glassformer.tasks.task import TaskSpec
from glassformer.training.optimizers import find_optimizer
from glassformer.training.recipe import Recipe, read_recipe
from glassformer.training.settings import TrainingSettings

BUDGETS = ("steps", "epochs", "minutes")
FINETUNE_LR_FACTOR = 0.2  # of the rate, for weights that have learnt already


@dataclass(frozen=True)
class Request:
    """Data, how to learn, and settings of the model: a recipe's, and those of `--set`."""

    spec: TaskSpec
    data: DataRequest
    learning: TrainingSettings
    table: dict[str, Any]
    settings: list[str]

    @classmethod
    def of(
        cls, task: str | None, data: Iterable[str | Path], config: str | Path | None,
        settings: Iterable[str], options: dict[str, Any], *, from_scratch: bool = True,
    ) -> "Request":  # fmt: skip
        """`options` are `valid`, `extend` and any setting of the data or of training.

        What does not start anew learns at a smaller rate, unless another is asked for.
        """
        files, settings, options = list(data), list(settings), dict(options)
        if config and task is not None and task not in TASKS:
            files, task = [task, *files], None
        recipe = read_recipe(Path(config)) if config else Recipe(task or "")
        if task not in (None, recipe.task):
            raise GlassError(f"{config} is a recipe for {recipe.task}, not for {task}")
        spec = find_task(recipe.task)
        valid, extend = options.pop("valid", ()), bool(options.pop("extend", False))
        from_scratch = from_scratch or any(setting.startswith("train.lora=") for setting in settings)
        told = select_settings(settings, "train.")
        if any(setting.partition("=")[0] in BUDGETS for setting in told):
            options = {n: v for n, v in options.items() if n not in BUDGETS}
            kept = {n: v for n, v in recipe.train.items() if n not in BUDGETS}
            recipe = replace(recipe, train=kept)  # one budget takes the place of another
        learning, reading = sort_options(spec, recipe, options, from_scratch=from_scratch)
        learning = override(learning, *told)
        check_batch_unit(spec, learning)
        find_optimizer(learning.optimizer)  # a wrong name is found before anything is read
        learning = replace(learning, device=find_device(learning.device))
        if (learning.threads or 1) > max_threads():
            raise GlassError(
                f"threads must be at most {max_threads()} on this machine, which has "
                f"{os.cpu_count()} cores, not {learning.threads}"
            )
        request = DataRequest(
            **vars(reading), files=check_paths(files), valid=check_paths(valid), extend=extend,
            seed=learning.seed,
        )  # fmt: skip
        return cls(spec, request, learning, dict(recipe.model), select_settings(settings, "model."))

    def check(self, *, from_scratch: bool) -> None:
        """Refuse what would otherwise be passed over in silence."""
        given, name = self.data, self.spec.name
        if given.extend and from_scratch:
            raise GlassError(
                "extend adds to the tokenizer of a model to start from: name it, --from"
            )
        if given.extend and self.learning.lora:
            raise GlassError("lora leaves the table of tokens as it is: new ones cannot be learnt")
        if not from_scratch and (given.tokenizer or given.vocab):
            raise GlassError("a model to start from has a tokenizer: no --tokenizer and no --vocab")
        if given.group and name != "classify":
            raise GlassError(f"{name} has no groups of rows: leave out --group")
        if (*given.files, *given.valid).count(Path("-")) > 1:
            raise GlassError("standard input can be read only once: name a file beside -")


def sort_options(
    spec: TaskSpec, recipe: Recipe, options: dict[str, Any], *, from_scratch: bool = True
) -> tuple[TrainingSettings, DataOptions]:
    """What was asked for, over what the recipe says, over what suits the task."""
    names = (TrainingSettings.__dataclass_fields__, DataOptions.__dataclass_fields__)
    for name in options:
        if name not in names[0] and name not in names[1]:
            raise GlassError(
                f"there is no setting {name!r}{did_you_mean(name, [*names[0], *names[1]])}"
            )
    given = {name: value for name, value in options.items() if value is not None}
    mine, told = ({n: v for n, v in given.items() if n in those} for those in names)
    suits, lora = dict(spec.train_settings), mine.get("lora") or recipe.train.get("lora")
    if not from_scratch and not lora:
        suits["lr"] *= FINETUNE_LR_FACTOR
    said = {**suits, **recipe.train}
    if any(name in mine for name in BUDGETS):
        said = {n: v for n, v in said.items() if n not in BUDGETS}
    learning = from_dict(TrainingSettings, {**said, **mine}, "train.")
    return learning, from_dict(DataOptions, {**recipe.data, **told}, "data.")


def check_batch_unit(spec: TaskSpec, settings: TrainingSettings) -> None:
    """Refuse a batch in the unit that the task does not count in."""
    unit, other = "batch_size", "batch_tokens"
    if other in spec.train_settings:
        unit, other = other, unit
    if getattr(settings, other) is not None:
        what = "tokens" if unit == "batch_tokens" else "examples"
        raise GlassError(f"{spec.name} counts a batch in {what}: set train.{unit}, not {other}")


def check_paths(names: Iterable[str | Path]) -> tuple[Path, ...]:
    """Names as paths that there are; - is standard input."""
    paths = tuple(map(Path, [names] if isinstance(names, str | Path) else names))
    for path in paths:
        if str(path) != "-" and not path.exists():
            raise GlassError(f"there is no file {path}")
    return paths


def select_settings(settings: Iterable[str], prefix: str) -> list[str]:
    """The settings of one table, without its name."""
    for setting in settings:
        if not setting.startswith(("model.", "train.")):
            raise GlassError(f"{setting!r} must start with model. or train.")
    return [s.removeprefix(prefix) for s in settings if s.startswith(prefix)]


def max_threads() -> int:
    """Far more threads than cores only wait for each other, and at last the process dies."""
    return max(64, 4 * (os.cpu_count() or 1))


def find_device(name: str) -> str:
    """The device of that name, or the best that there is."""
    if name == "auto":
        return best_device()
    if not has_device(name):
        raise GlassError(f"there is no device {name!r} here; there is {best_device()}")
    return name


def has_device(name: str) -> bool:
    try:
        return torch.device(name).type in ("cpu", best_device())
    except RuntimeError:  # nothing has that name
        return False


def best_device() -> str:
    there = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if there is None else there.type
