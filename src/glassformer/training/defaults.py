"""The settings that `train` would use for each model of a task, found without training."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.core.config import to_dict
from glassformer.core.reporter import NullReporter, Reporter
from glassformer.data.files import save_streams
from glassformer.registry import describe_model
from glassformer.tasks import find_task
from glassformer.tasks.task import Task, TaskSpec
from glassformer.training.request import Request, check_paths
from glassformer.training.run import Run
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings
from glassformer.training.setup import choose_model_sizes
from glassformer.training.start import Start, count_parameters, estimate_memory
from glassformer.training.train import prepare


@dataclass(frozen=True)
class ModelDefaults:
    """What `train` would use for one model of a task."""

    model: str
    task: TaskSpec
    config: Any
    training: TrainingSettings
    tokens: int  # in the training data

    def row(self) -> dict[str, Any]:
        """Return the values as plain data.

        `train` has the settings whose default is not the general one; it is empty if the model is
        fitted in one pass. The number of `parameters` is without a prior; `memory` is that of
        weights, gradients and optimizer state, in GB.
        """
        general = replace(
            TrainingSettings(), minutes=self.training.minutes, device=self.training.device
        )
        parameters = count_parameters(self.model, self.config)
        settings = to_dict(self.training).items() if parameters else ()
        return {
            "model": self.model,
            "tasks": [self.task.name],
            "default": self.model == self.task.models[0],
            "description": describe_model(self.model),
            "settings": to_dict(self.config),
            "train": {name: value for name, value in settings if value != getattr(general, name)},
            "tokens": self.tokens,
            "parameters": parameters,
            "memory": estimate_memory(parameters, self.training),
        }


def find_defaults(
    task: str,
    *data: str | Path,
    minutes: float | None = None,
    reporter: Reporter,
    **options: Any,
) -> list[ModelDefaults]:
    """Return what `train` would use for each model of a task, the default model first.

    `options` are data options. The data is read once, and again for the models that need another
    tokenizer.
    """
    spec = find_task(task)
    opened = dict[str | None, Task]()
    defaults = []
    options |= {"minutes": DEFAULT_MINUTES if minutes is None else minutes}
    with TemporaryDirectory() as scratch:
        files = save_streams(check_paths(data), Path(scratch))
        for model in spec.models:
            request = Request.of(task, files, None, (), options, model=model)
            variant = model if model in spec.data_variants else None
            if variant not in opened:
                run = Run(Path(scratch) / model)
                run.cache.mkdir(parents=True)
                data_request = replace(request.data, model=model)
                opened[variant] = prepare(spec, data_request, run, reporter)
            start = choose_model_sizes(
                Start.of(request, None, model), opened[variant], request.training, NullReporter()
            )
            size = opened[variant].dataset.size
            defaults.append(ModelDefaults(model, spec, start.config, request.training, size))
    return defaults
