"""From a request to a trainer at its first step: build, take over, decide, write down."""

import time
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
from glassformer.models.network import Network, Trait
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
from glassformer.training.request import Request
from glassformer.training.run import SCHEDULE, Run
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import State, Step
from glassformer.training.trainer import Trainer
from glassformer.weights import SkipInit


@dataclass(frozen=True)
class Start:
    """What a run starts from: an architecture, its settings, and perhaps another model."""

    architecture: str
    config: Any
    base: Path | None = None
    network: Network | None = None
    tokenizer: Tokenizer | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # of the task that the base is for

    @classmethod
    def of(cls, request: Request, base: str | Path | None, model: str | None) -> "Start":
        spec, table, settings = request.spec, dict(request.table), request.settings
        named = table.pop("name", None)
        if base is None:
            architecture = resolve(model or named or spec.models[0], spec)
            return cls(architecture, make_config(architecture, spec, table, settings))
        path = Path(base)
        path = find_subfolder(path, BEST) or path
        network, tokenizer, metadata = checkpoint.open_model(path)
        if tokenizer is None:
            raise GlassError(f"{path} has no tokenizer, so that nothing can be read with it")
        if network.has(Trait.FITTED):
            raise GlassError(f"{path} learnt in one go: count all the data again, without --from")
        architecture = resolve(registry.model_name(network), spec)
        if model and resolve(model, spec) != architecture:
            raise GlassError(f"{path} holds a model that becomes {architecture}, not {model}")
        fields = registry.MODELS[architecture].Config.__dataclass_fields__
        kept: dict[str, Any] = to_dict(network.config)
        if "dropout" in spec.model_settings:
            kept["dropout"] = spec.model_settings["dropout"]
        kept = {name: value for name, value in (kept | table).items() if name in fields}
        config = make_config(architecture, spec, kept, settings)
        return cls(architecture, config, path, network, tokenizer, metadata)

    def build(self, task: Task, settings: TrainingSettings, reporter: Reporter) -> Network:
        """The network, with what it takes over from another."""
        check_memory(self.architecture, self.config, settings)
        torch.manual_seed(settings.seed)
        network = registry.MODELS[self.architecture](self.config)
        if self.network is None:
            return network
        same = self.metadata.get("labels") == task.artifacts.metadata.get("labels")
        head = () if same else network.heads
        from_scratch = checkpoint.load_matching(network, self.network.state_dict(), but=head)
        reporter(f"starts from {self.base}" + (f"; anew: {', '.join(from_scratch)}" if from_scratch else ""))
        if settings.lora:
            add_lora(network, network.stacks, settings.lora)
            for name, parameter in network.named_parameters():
                parameter.requires_grad_(parameter.requires_grad or name in from_scratch)
        return network

    def adapter(self, settings: TrainingSettings) -> Adapter | None:
        if not settings.lora:
            return None
        if self.base is None:
            raise GlassError("lora trains beside a model that there is: name it with --from")
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
    """Build the network, fit the baseline, decide what is open, write all of it down.

    `began` is when the command began, by the monotonic clock: a deadline counts from there.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    start = replace(start, config=add_data_sizes(start.config, task))
    if settings.parameters and start.base is None:
        config = scale_to_parameters(start.architecture, start.config, settings.parameters)
        start = replace(start, config=config)
    checkpointer = Checkpointer(run, task, start.adapter(settings))
    network = start.build(task, settings, reporter)
    if "eos" in start.metadata and task.name == "generate":  # how a text ends stays as it was
        task.artifacts.metadata["eos"] = start.metadata["eos"]
    if network.has(Trait.FITTED):
        trainer = make_fitted_trainer(network, task, settings, checkpointer, reporter)
    else:
        batches = make_batches(network, task, settings, reporter)
        check_metric(network, task, settings)
        baseline: dict[str, Any] = {}
        if settings.baseline and task.spec.baseline_model:
            baseline = fit_baseline(task, run, settings, network.context, reporter)
        start, network, batches, settings = tune(start, network, task, batches, settings, reporter)
        step, state = Step(network, task.objective, settings), State()
        state.setup = time.monotonic() - start_time
        budget = make_budget(network, settings, run, state)
        trainer = Trainer(step, task, batches, budget, checkpointer, reporter, baseline, state)
    save_setup(start, trainer)
    return trainer


def make_budget(network: Network, settings: TrainingSettings, run: Run, state: State) -> Budget:
    """What is left to do, after a state: nothing for what is fitted in one pass."""
    if network.has(Trait.FITTED):
        return StepBudget(0)
    if settings.minutes is None:
        return StepBudget(settings.steps or 0)
    deadline = Deadline(
        60 * settings.minutes,
        run.path / SCHEDULE,
        spent=state.setup + state.seconds,
        setup=state.setup,
    )
    deadline.evaluated = state.evaluated
    deadline.evaluation = state.evaluated / max(state.evals, 1)
    deadline.resume_at(state.step)
    return deadline


def make_batches(
    network: Network, task: Task, settings: TrainingSettings, reporter: Reporter
) -> Batches:
    """The batches of a run; what cannot be trained on is found before anything is written."""
    batches = task.dataset.train_batches(settings.batch, network.context, settings.seed)
    batches.at(0)
    if batches.truncated:
        context = network.context or 0
        way = f"--set model.context={2 * context} reads more of them"
        reporter(
            f"{batches.truncated:,} texts are longer than the context of {context} and are cut; "
            f"{way}"
        )
    return batches


def check_metric(network: Network, task: Task, settings: TrainingSettings) -> None:
    """Refuse a metric that the task does not have, before anything is trained by it."""
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
    """A trainer with nothing left to do: its network is fitted in one pass."""
    start_time = time.monotonic()
    share = fit(task, network)
    if share < 1:
        reporter(f"more would not fit into memory: it counts the first {share:.1%} of the text")
    settings = replace(settings, precision="float32")
    batches = task.dataset.train_batches(settings.batch, network.context, settings.seed)
    step = Step(network, task.objective, settings)
    trainer = Trainer(step, task, batches, StepBudget(0), checkpointer, reporter)
    trainer.state.seconds = time.monotonic() - start_time
    trainer.state.predictions = round(task.dataset.predictions * share)
    return trainer


def tune(
    start: Start, network: Network, task: Task, batches: Batches, settings: TrainingSettings,
    reporter: Reporter,
) -> tuple[Start, Network, Batches, TrainingSettings]:  # fmt: skip
    """Decide what is open; where not even one text fits into memory, with a shorter context."""
    while True:
        shorter = 0
        try:
            decided = Autotune(network, task, batches, reporter).decide(settings)
        except ContextTooLongError as error:
            if not settings.shrink_on_oom or not error.fits:
                raise
            shorter = error.fits  # built below, when the error is gone and what it kept alive
        if not shorter:
            return start, network.train(), batches, decided
        reporter(f"a context of {shorter} in place of {network.context} fits into memory")
        start = replace(start, config=replace(start.config, context=shorter))
        del network  # before the next is built: memory is short
        network = start.build(task, settings, reporter)
        batches = task.dataset.train_batches(settings.batch, shorter, settings.seed)


def save_setup(start: Start, trainer: Trainer) -> None:
    """Save what was decided, before the first step, and report it."""
    run, network, settings, task = trainer.run, trainer.network, trainer.settings, trainer.task
    trainer.save()
    tables = {
        "task": task.metadata,
        "model": {"name": start.architecture, **to_dict(start.config)},
        "train": to_dict(settings),
    }
    run.describe(tables, task.artifacts.tokenizer)
    run.seal()
    if settings.tensorboard:
        run.open_tensorboard()
    size = sum(p.numel() for p in network.parameters())
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    part = "" if trained in (0, size) else f", of which {trained:,} learn"
    if network.has(Trait.FITTED):
        what = f"{size:,} numbers, counted in one go"
    else:
        plan = f"{settings.minutes:g} minutes" if settings.minutes else f"{settings.steps:,} steps"
        what = f"{size:,} parameters{part}; {plan}"
    trainer.reporter(f"{start.architecture}: {what}; run folder {run.path}")


def resolve(architecture: str, spec: TaskSpec) -> str:
    """The architecture that another one becomes for a task."""
    return spec.task_variants.get(architecture, architecture)


def add_data_sizes(config: Any, task: Task) -> Any:
    """The settings of a model, with those that the data decides."""
    known, sizes = config.__dataclass_fields__, task.dataset.sizes()
    return replace(config, **{name: value for name, value in sizes.items() if name in known})


def scale_to_parameters(architecture: str, config: Any, parameters: int) -> Any:
    """The settings whose width brings a model nearest to so many parameters."""
    known = config.__dataclass_fields__
    if "dim" not in known:
        return config
    unit = 2 * (config.heads if "heads" in known else 4)

    def wide(times: int) -> Any:
        dim = unit * times
        hidden = {"hidden": 4 * dim} if "hidden" in known and config.hidden else {}
        return replace(config, dim=dim, **hidden)

    few, many = 0, 1
    while count_parameters(architecture, wide(many)) < parameters:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        if count_parameters(architecture, wide(middle)) < parameters:
            few = middle
        else:
            many = middle
    near = [wide(times) for times in (few, many) if times]
    return min(near, key=lambda one: abs(count_parameters(architecture, one) - parameters))


def count_parameters(architecture: str, config: Any) -> int:
    """The parameters that a network has, found without allocating them."""
    with torch.device("meta"), SkipInit():
        network = registry.MODELS[architecture](config)
    return sum(p.numel() for p in network.parameters())


def check_memory(architecture: str, config: Any, settings: TrainingSettings) -> None:
    """Refuse a network that cannot be trained in this machine's memory, before it is allocated.

    Weights that learn have a gradient and two moments; beside an adapter, or frozen, they do not.
    """
    if settings.device != "cpu":
        return
    count = count_parameters(architecture, config)
    copies = 1 if settings.lora or settings.freeze else 4 + (settings.ema_decay > 0)
    needed, there = 4 * count * copies / 1e9, total_memory()
    if needed > there:
        raise GlassError(
            f"{count:,} parameters need about {needed:,.0f} GB to be trained, and this machine has "
            f"{there:,.0f} GB: take a smaller model"
        )


def make_config(
    architecture: str, spec: TaskSpec, table: dict[str, Any], settings: list[str]
) -> Any:
    """The architecture's settings: what suits the task, what a recipe says, and what is set."""
    if architecture not in spec.models:
        does = [task.name for task in TASKS.values() if architecture in task.models]
        hint = (
            f", which does {', '.join(does)}" if does else did_you_mean(architecture, spec.models)
        )
        choice = ", ".join(spec.models)
        raise GlassError(f"{spec.name} is done by {choice}, not by {architecture!r}{hint}")
    kind = registry.MODELS[architecture].Config
    known = {k: v for k, v in spec.model_settings.items() if k in kind.__dataclass_fields__}
    return override(from_dict(kind, {**known, **table}, "model."), *settings)
