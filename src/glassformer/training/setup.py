"""Set up a trainer from a request, up to its first step."""

import math
import time
from dataclasses import replace
from typing import Any

import torch

from glassformer import checkpoint, registry
from glassformer.core.config import to_dict
from glassformer.core.reporter import Reporter, format_count
from glassformer.models.network import Network, PriorNetwork, Trait
from glassformer.tasks.task import Batches, Task
from glassformer.training.autotune import Autotune
from glassformer.training.baseline import fit_baseline
from glassformer.training.budget import Budget, Deadline, StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluator
from glassformer.training.fitting import fit
from glassformer.training.memory import ContextTooLongError, release_memory
from glassformer.training.prior import fit_prior, should_fit_prior
from glassformer.training.run import SCHEDULE, Run
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings
from glassformer.training.start import Start, add_data_sizes, scale_to_parameters
from glassformer.training.step import State, Step
from glassformer.training.trainer import Trainer

MIN_STEPS = 500  # before `max_epochs` may end training, however small the data


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
        release_memory()  # of reading and encoding the data
        if settings.prior:
            fitted = fit_prior(network, start.network, task, settings, reporter)
        if settings.baseline and task.spec.baseline_model:
            baseline = fit_baseline(task, run, settings, network.context, reporter, fitted)
        release_memory()
        start, network, batches, settings = tune(start, network, task, batches, settings, reporter)
        release_memory()  # of the copies that were tried
        step = Step(network, task.objective, settings)
        state = State()
        state.setup_seconds = time.monotonic() - start_time
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
    size = format_count(task.dataset.size, "token" if task.spec.reads_text else "value")
    reporter(f"model settings for this budget and {size}: {summary}")
    return replace(start, config=replace(start.config, **sizes))


def make_budget(
    network: Network, settings: TrainingSettings, run: Run, state: State, steps_per_epoch: int
) -> Budget:
    """Return the budget of a run in this state; 0 steps for a model that is fitted directly."""
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
        spent=state.setup_seconds + state.seconds,
        setup_seconds=state.setup_seconds,
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
        texts = "1 text is" if batches.truncated == 1 else f"{batches.truncated:,} texts are"
        reporter(
            f"{texts} longer than the context of {context} tokens and will be "
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
    """Fit a network directly; return a trainer for it with a budget of 0 steps."""
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
    run = trainer.run
    network = trainer.network
    settings = trainer.settings
    task = trainer.task
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
        summary = f"{size:,} parameters, fitted directly"
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
