"""From a request to a trainer at its first step: build, take over, decide, write down."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer import checkpoint, models
from glassformer.checkpoint import BEST, Adapter
from glassformer.config import make, nearest, override, to_dict
from glassformer.errors import GlassError
from glassformer.folder import subfolder
from glassformer.live import Live
from glassformer.nn.lora import add_lora
from glassformer.tasks import TASKS
from glassformer.tasks.task import Task
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.counting import count_baseline, teach
from glassformer.training.decide import decide
from glassformer.training.loop import Trainer
from glassformer.training.memory import TooLongError, total_memory
from glassformer.training.request import Request
from glassformer.training.run import Run
from glassformer.training.settings import Training
from glassformer.weights import Unfilled


@dataclass(frozen=True)
class Start:
    """What a run starts from: an architecture, its settings, and perhaps another model."""

    architecture: str
    shape: Any
    base: Path | None = None
    network: nn.Module | None = None
    tokenizer: Tokenizer | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of the task that the model was made for

    @classmethod
    def of(cls, request: Request, base: str | Path | None, model: str | None) -> Start:
        kind, table, settings = request.kind, dict(request.table), request.settings
        named = table.pop("name", None)
        if base is None:
            architecture = model or named or kind.models[0]
            return cls(architecture, make_config(architecture, kind, table, settings))
        path = Path(base)
        path = subfolder(path, BEST) or path
        network, tokenizer, facts = checkpoint.open_folder(path)
        if tokenizer is None:
            raise GlassError(f"{path} has no tokenizer, so that nothing can be read with it")
        if models.counts(network):
            raise GlassError(f"{path} learnt in one go: count all the data again, without --from")
        old = models.name_of(network)
        architecture = kind.built_on.get(old, old)
        if (model or architecture) != architecture:
            raise GlassError(f"{path} holds a model that becomes {architecture}, not {model}")
        known = models.MODELS[architecture].Config.__dataclass_fields__
        kept: dict[str, Any] = to_dict(network.config)
        for name in ("masked", "pooled", "classes", "dropout"):
            kept |= {name: kind.settings[name]} if name in kind.settings else {}
        kept |= table
        kept = {name: value for name, value in kept.items() if name in known}
        shape = make_config(architecture, kind, kept, settings)
        return cls(architecture, shape, path, network, tokenizer, facts)

    def build(self, task: Task, learning: Training, tell: Live) -> nn.Module:
        """The network, with what it takes over from another."""
        check_memory(self.architecture, self.shape, learning)
        torch.manual_seed(learning.seed)
        network: nn.Module = models.MODELS[self.architecture](self.shape)
        if self.network is None:
            return network
        same = self.facts.get("labels") == task.facts.get("labels")
        head = [] if same else ["head.weight", "head.bias"]
        anew = checkpoint.inherit(network, self.network.state_dict(), but=head)
        tell(f"starts from {self.base}" + (f"; anew: {', '.join(anew)}" if anew else ""))
        if learning.lora:
            add_lora(network, learning.lora)
            for name, parameter in network.named_parameters():
                parameter.requires_grad_(parameter.requires_grad or name in anew)
        return network

    def adapter(self, learning: Training) -> Adapter | None:
        if not learning.lora:
            return None
        if self.base is None:
            raise GlassError("lora trains beside a model that there is: name it with --from")
        base = self.base.absolute()
        return Adapter(learning.lora, str(base), checkpoint.fingerprint(base))


def begin(start: Start, task: Task, learning: Training, run: Run, tell: Live) -> Trainer:
    """Build the network, count what counting reaches, decide what is open, write all of it down."""
    if learning.threads:
        torch.set_num_threads(learning.threads)
    start = replace(start, shape=sized(start.shape, task))
    if learning.parameters and start.base is None:
        shape = of_size(start.architecture, start.shape, learning.parameters)
        start = replace(start, shape=shape)
    adapter = start.adapter(learning)
    network = start.build(task, learning, tell)
    context = getattr(start.shape, "context", 0)
    task.start(learning.batch, context, learning.seed)
    at_once = models.counts(network)
    if not at_once:
        task.batch(0)  # what cannot be learnt from is found before anything is written
    if cut := getattr(task, "cut", 0):
        way = f"--set model.context={2 * context} reads more of them"
        tell(f"{cut:,} texts are longer than the context of {context} and are cut; {way}")
    if "eos" in start.facts and task.name == "generate":  # how a text ends stays as it was
        task.facts["eos"] = start.facts["eos"]
    baseline: dict[str, Any] = {}
    if learning.baseline and start.architecture != task.counted:
        baseline = count_baseline(task, run, learning, tell)
    began = time.monotonic()
    if at_once:
        share = teach(task, network)
        if share < 1:
            tell(f"more would not fit into memory: it counts the first {share:.1%} of the text")
        learning, steps = replace(learning, precision="float32"), 0
    else:
        while isinstance(found := decide_or_shorten(network, task, learning, run, tell), int):
            tell(f"a context of {found} in place of {context} fits into memory")
            start, context = replace(start, shape=replace(start.shape, context=found)), found
            del network  # before the next is built: memory is short
            network = start.build(task, learning, tell)
            task.start(learning.batch, context, learning.seed)
        learning, steps = found
    trainer = Trainer(network, task, learning, run, tell)
    trainer.adapter, trainer.state.steps, trainer.baseline = adapter, steps, baseline
    trainer.state.before = baseline.get("seconds", 0.0)
    if at_once:
        trainer.state.seconds, trainer.state.predictions = (
            time.monotonic() - began,
            round(task.predictions * share),
        )
    write_down(start, trainer)
    return trainer


def decide_or_shorten(
    network: nn.Module, task: Task, learning: Training, run: Run, tell: Live
) -> tuple[Training, int] | int:
    """What was decided, or, where not even one text fits into memory, a context that does.

    The caller builds the smaller network after the error is gone: as long as it is handled, it
    keeps everything alive that did not fit.
    """
    try:
        return decide(network, task, learning, run, tell)
    except TooLongError as error:
        if not learning.fit or not error.fits or not hasattr(network.config, "context"):
            raise
        return error.fits


def write_down(start: Start, trainer: Trainer) -> None:
    """Save what was decided, before the first step, and say it."""
    run, network, learning = trainer.run, trainer.network, trainer.settings
    trainer.save()
    tables = {
        "task": {"name": trainer.task.name, **trainer.task.facts},
        "model": {"name": start.architecture, **to_dict(start.shape)},
        "train": to_dict(learning),
    }
    run.describe(tables, trainer.task.tokenizer)
    run.seal()
    if learning.tensorboard:
        run.open_board()
    size = sum(p.numel() for p in network.parameters())
    learns = sum(p.numel() for p in network.parameters() if p.requires_grad)
    part = "" if learns in (0, size) else f", of which {learns:,} learn"
    steps = trainer.state.steps
    plan = f"{steps:,} steps" + (" at this pace" if learning.minutes else "")
    what = f"{size:,} parameters{part}; {plan}" if steps else f"{size:,} numbers, counted in one go"
    trainer.live(f"{start.architecture}: {what}; run folder {run.path}")


def sized(shape: Any, task: Task) -> Any:
    """The settings of a model, with those that the data decides."""
    known = shape.__dataclass_fields__
    return replace(shape, **{name: v for name, v in task.sizes().items() if name in known})


def of_size(architecture: str, shape: Any, parameters: int) -> Any:
    """The settings whose width brings a model nearest to so many parameters."""
    if not hasattr(shape, "dim"):
        return shape
    unit = 2 * getattr(shape, "heads", 4)

    def wide(times: int) -> Any:
        dim = unit * times
        hidden = {"hidden": 4 * dim} if getattr(shape, "hidden", None) else {}
        return replace(shape, dim=dim, **hidden)

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


def count_parameters(architecture: str, shape: Any) -> int:
    """The parameters that a network has, found without allocating them."""
    with torch.device("meta"), Unfilled():
        network = models.MODELS[architecture](shape)
    return sum(p.numel() for p in network.parameters())


def check_memory(architecture: str, shape: Any, learning: Training) -> None:
    """Refuse a network that cannot be trained in this machine's memory, before it is allocated.

    Weights that learn have a gradient and two moments; beside an adapter, or frozen, they do not.
    """
    if learning.device != "cpu":
        return
    count = count_parameters(architecture, shape)
    copies = 1 if learning.lora or learning.freeze else 4 + (learning.average > 0)
    needed, there = 4 * count * copies / 1e9, total_memory()
    if needed > there:
        raise GlassError(
            f"{count:,} parameters need about {needed:,.0f} GB to be trained, and this machine has "
            f"{there:,.0f} GB: take a smaller model"
        )


def make_config(
    architecture: str, kind: type[Task], table: dict[str, Any], settings: list[str]
) -> Any:
    """The architecture's settings: what suits the task, what a recipe says, and what is set."""
    if architecture not in kind.models:
        does = [task.name for task in TASKS.values() if architecture in task.models]
        hint = f", which does {', '.join(does)}" if does else nearest(architecture, kind.models)
        choice = ", ".join(kind.models)
        raise GlassError(f"{kind.name} is done by {choice}, not by {architecture!r}{hint}")
    shape = models.MODELS[architecture].Config
    known = {k: v for k, v in kind.settings.items() if k in shape.__dataclass_fields__}
    return override(make(shape, {**known, **table}, "model."), *settings)
