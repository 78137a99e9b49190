"""What to train: options from a command, a recipe or Python, merged and checked."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from glassformer import registry
from glassformer.core.config import did_you_mean, from_dict, override
from glassformer.core.errors import GlassError
from glassformer.data.request import DataOptions, DataRequest
from glassformer.tasks import TASKS, find_task
from glassformer.tasks.task import TaskSpec
from glassformer.training.optimizers import find_optimizer
from glassformer.training.recipe import Recipe, read_recipe
from glassformer.training.settings import TrainingSettings

BUDGETS = ("steps", "epochs", "minutes")
FINETUNE_LR_FACTOR = 0.2  # multiplies the learning rate for pretrained weights


@dataclass(frozen=True)
class Request:
    """A task with its data, its training settings and the settings of its model."""

    spec: TaskSpec
    data: DataRequest
    training: TrainingSettings
    recipe_model: dict[str, Any]  # the model table of the recipe
    model_settings: list[str]  # model settings from `--set`, as NAME=VALUE

    @classmethod
    def of(
        cls, task: str | None, data: Iterable[str | Path], config: str | Path | None,
        settings: Iterable[str], options: dict[str, Any], *, model: str | None = None,
        from_scratch: bool = True,
    ) -> "Request":  # fmt: skip
        """Merge and check the arguments of `train`.

        `options` are `valid`, `extend` and any data or training setting. The default
        learning rate is smaller unless the weights are trained `from_scratch`.
        """
        files = list(data)
        settings = list(settings)
        options = dict(options)
        if config and task is not None and task not in TASKS:
            files, task = [task, *files], None
        recipe = read_recipe(Path(config)) if config else Recipe(task or "")
        if task not in (None, recipe.task):
            raise GlassError(f"{config} is a recipe for {recipe.task}, not for {task}")
        spec = find_task(recipe.task, [*map(Path, files)], model or recipe.model.get("name"))
        valid = options.pop("valid", ())
        extend = bool(options.pop("extend", False))
        train_settings = select_settings(settings, "train.")
        if lora := [setting for setting in train_settings if setting.startswith("lora=")]:
            options["lora"] = override(TrainingSettings(), *lora, where="train.").lora
        if any(setting.partition("=")[0] in BUDGETS for setting in train_settings):
            options = {n: v for n, v in options.items() if n not in BUDGETS}
            kept = {n: v for n, v in recipe.train.items() if n not in BUDGETS}
            recipe = replace(recipe, train=kept)  # the budget from --set replaces all others
        name = model or recipe.model.get("name") or spec.models[0]
        model_defaults: Mapping[str, Any] = {}
        if from_scratch and name in registry.MODELS:
            model_defaults = registry.MODELS[name].train_settings
        defaults = {**spec.train_settings, **model_defaults, **recipe.train, **options}
        for setting in train_settings:
            if setting.startswith("optimizer="):
                defaults["optimizer"] = setting.partition("=")[2]
        optimizer = find_optimizer(defaults.get("optimizer") or "adamw")  # rejects an unknown name
        spec = replace(
            spec, train_settings={**spec.train_settings, **model_defaults, **optimizer.settings}
        )
        training, data_options = split_options(spec, recipe, options, from_scratch=from_scratch)
        training = override(training, *train_settings, where="train.")
        check_batch_unit(spec, training)
        training = replace(training, device=find_device(training.device))
        if (training.threads or 1) > max_threads():
            raise GlassError(
                f"threads must be at most {max_threads()} on this machine, which has "
                f"{os.cpu_count()} cores, got {training.threads}"
            )
        request = DataRequest(
            **vars(data_options), files=check_paths(files), valid=check_paths(valid), extend=extend,
            seed=training.seed,
        )  # fmt: skip
        return cls(spec, request, training, dict(recipe.model), select_settings(settings, "model."))

    def check(self, *, from_scratch: bool) -> None:
        """Reject options that would have no effect or cannot be combined."""
        data, name = self.data, self.spec.name
        if data.extend and from_scratch:
            raise GlassError("--extend adds tokens to a trained model's tokenizer: add --from")
        if data.extend and self.training.lora:
            raise GlassError("--extend needs trainable token embeddings: leave out --lora")
        if data.has_source_vocab and name != "translate":
            raise GlassError(f"--source-tokenizer and --source-vocab are not for {name}")
        if not from_scratch and (data.tokenizer or data.vocab or data.has_source_vocab):
            raise GlassError(
                "the base model (--from) has a tokenizer: leave out --tokenizer and --vocab"
            )
        if self.training.prior is not None and self.spec.fit_prior is None:
            raise GlassError(f"{name} has no prior: leave out train.prior and --no-prior")
        if self.training.prior is not None and self.training.lora:
            raise GlassError("LoRA keeps the prior of the base model: leave out train.prior")
        if data.group and name != "classify":
            raise GlassError(f"--group is for classify, not for {name}: leave it out")
        if (*data.files, *data.valid).count(Path("-")) > 1:
            raise GlassError("standard input can be read only once: use files for the other data")


def split_options(
    spec: TaskSpec, recipe: Recipe, options: dict[str, Any], *, from_scratch: bool = True
) -> tuple[TrainingSettings, DataOptions]:
    """Return the training settings and the data options.

    `options` override the recipe, and the recipe overrides the defaults for the task.
    """
    names = (TrainingSettings.__dataclass_fields__, DataOptions.__dataclass_fields__)
    for name in options:
        if name not in names[0] and name not in names[1]:
            raise GlassError(
                f"unknown setting {name!r}{did_you_mean(name, [*names[0], *names[1]])}"
            )
    options = {name: value for name, value in options.items() if value is not None}
    training, data = ({n: v for n, v in options.items() if n in fields} for fields in names)
    defaults = dict(spec.train_settings)
    if not from_scratch and not training.get("lora", recipe.train.get("lora")):
        defaults["lr"] *= FINETUNE_LR_FACTOR
    defaults |= recipe.train
    if any(name in training for name in BUDGETS):
        defaults = {n: v for n, v in defaults.items() if n not in BUDGETS}
    settings = from_dict(TrainingSettings, {**defaults, **training}, "train.")
    return settings, from_dict(DataOptions, {**recipe.data, **data}, "data.")


def check_batch_unit(spec: TaskSpec, settings: TrainingSettings) -> None:
    """Reject a batch size in examples for a task that counts tokens, and vice versa."""
    unit, other = "batch_size", "batch_tokens"
    if other in spec.train_settings:
        unit, other = other, unit
    if getattr(settings, other) is not None:
        counted = "tokens" if unit == "batch_tokens" else "examples"
        raise GlassError(
            f"the batch size for {spec.name} is counted in {counted}: set train.{unit}, not "
            f"train.{other}"
        )


def check_paths(names: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the names as paths after checking that they exist; `-` is standard input."""
    paths = tuple(map(Path, [names] if isinstance(names, str | Path) else names))
    for path in paths:
        if str(path) != "-" and not path.exists():
            raise GlassError(f"{path} does not exist")
    return paths


def select_settings(settings: Iterable[str], prefix: str) -> list[str]:
    """Return the settings from `--set` that have a prefix, without the prefix."""
    for setting in settings:
        if not setting.startswith(("model.", "train.")):
            name = setting.partition("=")[0]
            raise GlassError(
                f"unknown setting {name!r}: settings start with model. or train., such as "
                "model.dim=64"
            )
    return [s.removeprefix(prefix) for s in settings if s.startswith(prefix)]


def max_threads() -> int:
    """Return the maximum number of threads: far more threads than cores can crash the process."""
    return max(64, 4 * (os.cpu_count() or 1))


def find_device(name: str) -> str:
    """Return the device with this name; "auto" is the best one on this machine."""
    if name == "auto":
        return best_device()
    if not has_device(name):
        raise GlassError(f"this machine has no device {name!r}; available: {best_device()}")
    return name


def has_device(name: str) -> bool:
    try:
        return torch.device(name).type in ("cpu", best_device())
    except RuntimeError:  # torch does not know the name
        return False


def best_device() -> str:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type
