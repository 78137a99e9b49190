"""Set up a trainer from a request, up to its first step."""

import math
import time
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
from glassformer.tasks.task import Batches, Task, TaskSpec
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.autotune import Autotune
from glassformer.training.baseline import fit, fit_baseline
from glassformer.training.budget import Budget, Deadline, StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluator
from glassformer.training.memory import ContextTooLongError, total_memory
from glassformer.training.prior import fit_prior, should_fit_prior
from glassformer.training.request import Request
from glassformer.training.run import SCHEDULE, Run
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings
from glassformer.training.step import State, Step
from glassformer.training.trainer import Trainer
from glassformer.weights import SkipInit

MIN_STEPS = 500  # before `max_epochs` may end training, however small the data


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
        spec, table, settings = request.spec, dict(request.recipe_model), request.model_settings
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
                f"{path} was fitted in one pass and cannot be trained further: leave out --from"
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


def set_up(
    start: Start,
    task: Task,
    settings: TrainingSettings,
    run: Run,
    reporter: Reporter,
    start_time: float,
) -> Trainer:
    """Build the network, fit the baseline, choose the settings left unset, and save it all.

    `start_time` is when the command started, on the monotonic clock; a deadline counts from it.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    start = choose_model_sizes(start, task, settings, reporter)
    checkpointer = Checkpointer(run, task, start.adapter(settings))
    network = start.build(task, settings, reporter)
    if "eos" in start.metadata and task.name == "generate":  # keep the base model's eos
        task.artifacts.metadata["eos"] = start.metadata["eos"]
    if network.has(Trait.FITTED):
        trainer = make_fitted_trainer(network, task, settings, checkpointer, reporter)
    else:
        batches = make_batches(network, task, settings, reporter)
        check_metric(network, task, settings)
        settings = replace(settings, prior=should_fit_prior(network, task, settings))
        fitted, baseline = None, dict[str, Any]()
        if settings.prior:
            fitted = fit_prior(network, start.network, task, settings, reporter)
        if settings.baseline and task.spec.baseline_model:
            baseline = fit_baseline(task, run, settings, network.context, reporter, fitted)
        start, network, batches, settings = tune(start, network, task, batches, settings, reporter)
        step, state = Step(network, task.objective, settings), State()
        state.setup = time.monotonic() - start_time
        budget = make_budget(network, settings, run, state, batches.per_epoch)
        trainer = Trainer(step, task, batches, budget, checkpointer, reporter, baseline, state)
    save_setup(start, trainer)
    return trainer


def choose_model_sizes(
    start: Start, task: Task, settings: TrainingSettings, reporter: Reporter
) -> Start:
    """Set the sizes that the data determines, and choose those that the user did not set.

    They are chosen for the time budget and the data, or for `settings.parameters`.
    """
    start = replace(start, config=add_data_sizes(start.config, task))
    if start.base is not None:
        return start
    if settings.parameters:
        config = scale_to_parameters(start.architecture, start.config, settings.parameters)
        return replace(start, config=config)
    minutes = settings.minutes or DEFAULT_MINUTES
    sizes = registry.MODELS[start.architecture].suggest_sizes(minutes, task.dataset.size)
    explicit = start.explicit
    if explicit & {"dim", "heads"}:  # dim must stay divisible by heads
        explicit |= {"dim", "heads"}
    sizes = {name: value for name, value in sizes.items() if name not in explicit}
    if not sizes:
        return start
    summary = ", ".join(f"{name} {value}" for name, value in sizes.items() if value is not None)
    unit = "tokens" if task.spec.reads_text else "values"
    reporter(f"model settings for this budget and {task.dataset.size:,} {unit}: {summary}")
    return replace(start, config=replace(start.config, **sizes))


def make_budget(
    network: Network, settings: TrainingSettings, run: Run, state: State, steps_per_epoch: int
) -> Budget:
    """Return the budget of a run in this state; 0 steps for a model that is fitted in one pass."""
    if network.has(Trait.FITTED):
        return StepBudget(0)
    if settings.minutes is None:
        return StepBudget(settings.steps or 0)
    max_steps = None
    if settings.max_epochs is not None:
        max_steps = max(math.ceil(settings.max_epochs * steps_per_epoch), MIN_STEPS)
    deadline = Deadline(
        60 * settings.minutes,
        run.path / SCHEDULE,
        spent=state.setup + state.seconds,
        setup=state.setup,
        max_steps=max_steps,
    )
    deadline.total_eval_seconds = state.eval_seconds
    deadline.eval_seconds = state.eval_seconds / max(state.evals, 1)
    deadline.resume_at(state.step)
    return deadline


def make_batches(
    network: Network, task: Task, settings: TrainingSettings, reporter: Reporter
) -> Batches:
    """Return the batches of a run; raise an error if the data cannot be trained on."""
    batches = task.train_batches(network, settings.batch, settings.seed)
    batches.at(0)
    if batches.truncated:
        context = network.context or 0
        reporter(
            f"{batches.truncated:,} texts are longer than the context of {context} tokens and are "
            f"{task.spec.shortening}; to use more of each text: --set model.context={2 * context}"
        )
    return batches


def check_metric(network: Network, task: Task, settings: TrainingSettings) -> None:
    """Reject a `best_metric` that the task does not have."""
    if settings.best_metric != "loss":
        metrics, _ = task.evaluate(network.eval(), task.spec.eval_limit)
        Evaluator(task, settings).metric_value(metrics)


def make_fitted_trainer(
    network: Network,
    task: Task,
    settings: TrainingSettings,
    checkpointer: Checkpointer,
    reporter: Reporter,
) -> Trainer:
    """Fit a network in one pass; return a trainer for it with a budget of 0 steps."""
    start_time = time.monotonic()
    fraction = fit(task, network)
    if fraction < 1:
        reporter(f"fitted on the first {fraction:.1%} of the data, to limit memory")
    settings = replace(settings, precision="float32")
    batches = task.train_batches(network, settings.batch, settings.seed)
    step = Step(network, task.objective, settings)
    trainer = Trainer(step, task, batches, StepBudget(0), checkpointer, reporter)
    trainer.state.seconds = time.monotonic() - start_time
    trainer.state.predictions = round(task.dataset.n_targets * fraction)
    return trainer


def tune(
    start: Start, network: Network, task: Task, batches: Batches, settings: TrainingSettings,
    reporter: Reporter,
) -> tuple[Start, Network, Batches, TrainingSettings]:  # fmt: skip
    """Choose the settings left unset.

    The context is shortened if not even one sequence fits in memory.
    """
    while True:
        max_context = 0
        try:
            decided = Autotune(network, task, batches, reporter).decide(settings)
        except ContextTooLongError as error:
            if not settings.shrink_on_oom or not error.max_context:
                raise
            max_context = error.max_context  # used below, after the error and its tensors are freed
        if not max_context:
            return start, network.train(), batches, decided
        reporter(
            f"out of memory with a context of {network.context} tokens: shortening it to "
            f"{max_context}"
        )
        start = replace(start, config=replace(start.config, context=max_context))
        prior, prior_config = None, None
        if isinstance(network, PriorNetwork):
            prior, prior_config = network.prior, network.prior_config
        del network  # frees its memory before the next one is built
        network = start.build(task, settings, reporter)
        if isinstance(network, PriorNetwork) and prior_config:
            network.attach_prior(prior_config, prior)
        batches = task.train_batches(network, settings.batch, settings.seed)


def save_setup(start: Start, trainer: Trainer) -> None:
    """Save the first checkpoint and all settings before the first step, and report them."""
    run, network, settings, task = trainer.run, trainer.network, trainer.settings, trainer.task
    trainer.save()
    tables = {
        "task": checkpoint.split_lists(task.metadata)[0],
        "model": {"name": start.architecture, **to_dict(start.config)},
        "train": to_dict(settings),
    }
    run.write_config(tables, task.artifacts.tokenizer)
    run.write_checksums()
    if settings.tensorboard:
        run.open_tensorboard()
    size = network.size
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    trainable = "" if trained in (0, size) else f", {trained:,} of them trainable"
    if network.has(Trait.FITTED):
        summary = f"{size:,} parameters, fitted in one pass"
    else:
        summary = f"{size:,} parameters{trainable}; {format_budget(settings)}"
    trainer.reporter(f"{start.architecture}: {summary}; run folder {run.path}")


def format_budget(settings: TrainingSettings) -> str:
    if settings.steps:
        return f"{settings.steps:,} step{'' if settings.steps == 1 else 's'}"
    if settings.epochs:
        return f"{settings.epochs:g} epoch{'' if settings.epochs == 1 else 's'}"
    minutes = settings.minutes or DEFAULT_MINUTES
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def resolve_architecture(architecture: str, spec: TaskSpec) -> str:
    """Return the variant of an architecture for a task, such as bert_classifier for bert."""
    return spec.task_variants.get(architecture, architecture)


def add_data_sizes(config: Any, task: Task) -> Any:
    """Return a config with the sizes that depend on the data, such as `vocab`."""
    fields, sizes = config.__dataclass_fields__, task.dataset.sizes()
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
    needed, available = estimate_memory(count, settings), total_memory()
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
