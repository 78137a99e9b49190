"""What a run starts from: an architecture, its config, and optionally a base model."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from glassformer import checkpoint, registry
from glassformer.checkpoint import BEST, Adapter
from glassformer.core.config import did_you_mean, from_dict, override, to_dict
from glassformer.core.errors import GlassError
from glassformer.core.folder import find_subfolder
from glassformer.core.reporter import Reporter
from glassformer.models.network import Network, PriorNetwork, Trait
from glassformer.nn.lora import add_lora
from glassformer.tasks import TASKS
from glassformer.tasks.task import Task, TaskSpec
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.memory import total_memory
from glassformer.training.request import Request
from glassformer.training.settings import TrainingSettings
from glassformer.weights import SkipInit


@dataclass(frozen=True)
class Start:
    """What a run starts from: an architecture, its config, and optionally a trained base model."""

    architecture: str
    config: Any
    base: Path | None = None  # folder of the base model
    network: Network | None = None  # from the base model, like the tokenizer
    tokenizer: Tokenizer | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # task metadata of the base model
    explicit: frozenset[str] = frozenset()  # model settings that the user or a recipe set

    @classmethod
    def of(cls, request: Request, base: str | Path | None, model: str | None) -> "Start":
        """Choose the architecture and its config; load the base model if there is one."""
        spec = request.spec
        table = dict(request.recipe_model)
        settings = request.model_settings
        recipe_name = table.pop("name", None)
        if base is None:
            architecture = resolve_architecture(model or recipe_name or spec.models[0], spec)
            explicit = {*table, *(setting.partition("=")[0] for setting in settings)}
            config = make_config(architecture, spec, table, settings)
            return cls(architecture, config, explicit=frozenset(explicit))
        path = Path(base)
        path = find_subfolder(path, BEST) or path
        network, tokenizer, metadata = checkpoint.open_model(path)
        if tokenizer is None and spec.reads_text:
            raise GlassError(f"{path} has no tokenizer, which a base model needs")
        if network.has(Trait.FITTED):
            raise GlassError(
                f"{path} was fitted directly and cannot be trained further: leave out --from"
            )
        architecture = resolve_architecture(registry.model_name(network), spec)
        if model and resolve_architecture(model, spec) != architecture:
            raise GlassError(
                f"the model in {path} can only be fine-tuned as {architecture}, not as {model}"
            )
        fields = registry.MODELS[architecture].Config.__dataclass_fields__
        values: dict[str, Any] = to_dict(network.config)
        if "dropout" in spec.model_settings:
            values["dropout"] = spec.model_settings["dropout"]
        values = {name: value for name, value in (values | table).items() if name in fields}
        config = make_config(
            architecture, spec, values, settings, network.config.__dataclass_fields__
        )
        return cls(architecture, config, path, network, tokenizer, metadata)

    def build(self, task: Task, settings: TrainingSettings, reporter: Reporter) -> Network:
        """Build the network, with the weights of the base model where they fit."""
        check_memory(self.architecture, self.config, settings)
        torch.manual_seed(settings.seed)
        network = registry.MODELS[self.architecture](self.config)
        if self.network is None:
            if task.spec.initialize is not None:
                task.spec.initialize(task.dataset, network)
            return network
        for name in ("users", "items"):
            if self.metadata.get(name) != task.artifacts.metadata.get(name):
                raise GlassError(f"{self.base} was trained on other {name}: leave out --from")
        has_same_labels = self.metadata.get("labels") == task.artifacts.metadata.get("labels")
        head = () if has_same_labels else network.output_heads
        new = checkpoint.load_matching(network, self.network.state_dict(), exclude=head)
        reporter(
            f"starting from {self.base}" + (f"; re-initialized: {', '.join(new)}" if new else "")
        )
        if settings.lora:
            if isinstance(network, PriorNetwork):
                network.share_prior(self.network)
            if not network.stacks:
                raise GlassError(f"{self.architecture} has no layers for --lora to adapt")
            add_lora(network, network.stacks, settings.lora)
            for name, parameter in network.named_parameters():
                parameter.requires_grad_(parameter.requires_grad or name in new)
        return network

    def adapter(self, settings: TrainingSettings) -> Adapter | None:
        if not settings.lora:
            return None
        if self.base is None:
            raise GlassError("--lora needs a trained model to adapt: specify it with --from")
        base = self.base.absolute()
        return Adapter(settings.lora, str(base), checkpoint.hash_weights(base))


def resolve_architecture(architecture: str, spec: TaskSpec) -> str:
    """Return the variant of an architecture for a task, such as bert_classifier for bert."""
    return spec.task_variants.get(architecture, architecture)


def add_data_sizes(config: Any, task: Task) -> Any:
    """Return a config with the sizes that depend on the data, such as `vocab`."""
    fields = config.__dataclass_fields__
    sizes = task.dataset.sizes()
    return replace(config, **{name: value for name, value in sizes.items() if name in fields})


def scale_to_parameters(architecture: str, config: Any, parameters: int) -> Any:
    """Return a config whose `dim` brings the model closest to the given number of parameters."""
    fields = config.__dataclass_fields__
    if "dim" not in fields:
        return config
    unit = 2 * (config.heads if "heads" in fields else 4)

    def scale(factor: int) -> Any:
        dim = unit * factor
        hidden = {"hidden": 4 * dim} if "hidden" in fields and config.hidden else {}
        return replace(config, dim=dim, **hidden)

    low, high = 0, 1
    while count_parameters(architecture, scale(high)) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if count_parameters(architecture, scale(middle)) < parameters:
            low = middle
        else:
            high = middle
    candidates = [scale(factor) for factor in (low, high) if factor]
    return min(candidates, key=lambda c: abs(count_parameters(architecture, c) - parameters))


def count_parameters(architecture: str, config: Any) -> int:
    """Count the parameters of a network without allocating them."""
    with torch.device("meta"), SkipInit():
        network = registry.MODELS[architecture](config)
    return sum(p.numel() for p in network.parameters())


def check_memory(architecture: str, config: Any, settings: TrainingSettings) -> None:
    """Reject a network that needs more memory than this machine has, before it is allocated."""
    if settings.device != "cpu":
        return
    count = count_parameters(architecture, config)
    needed = estimate_memory(count, settings)
    available = total_memory()
    if needed > available:
        raise GlassError(
            f"training {count:,} parameters needs about {needed:,.0f} GB of memory, but this "
            f"machine has {available:,.0f} GB: use a smaller model"
        )


def estimate_memory(parameters: int, settings: TrainingSettings) -> float:
    """Estimate the memory for training this many parameters in GB, without activations.

    Trained weights also need memory for a gradient and two moments; with LoRA or frozen weights,
    only the weights themselves are counted.
    """
    copies = 1 if settings.lora or settings.freeze else 4 + (settings.ema_decay > 0)
    return 4 * parameters * copies / 1e9


def make_config(
    architecture: str,
    spec: TaskSpec,
    table: dict[str, Any],
    settings: list[str],
    base_fields: Collection[str] = (),
) -> Any:
    """Return an architecture's config.

    `settings` (NAME=VALUE) override `table`, which overrides the task's defaults. The defaults do
    not apply to the fields of a base model, which may be None and therefore not in the table.
    """
    if architecture not in spec.models:
        tasks = [task.name for task in TASKS.values() if architecture in task.models]
        available = f"models for {spec.name}: {', '.join(spec.models)}"
        if tasks:
            raise GlassError(
                f"{architecture!r} is a model for {', '.join(tasks)}, not for {spec.name}; "
                f"{available}"
            )
        hint = did_you_mean(architecture, spec.models) or f"; {available}"
        raise GlassError(f"unknown model {architecture!r}{hint}")
    kind = registry.MODELS[architecture].Config
    names = kind.__dataclass_fields__.keys() - set(base_fields)
    defaults = {k: v for k, v in spec.model_settings.items() if k in names}
    config = from_dict(kind, {**defaults, **table}, "model.")
    return override(config, *settings, where="model.")
