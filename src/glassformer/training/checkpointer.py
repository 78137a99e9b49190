"""Checkpoints of a run: the best weights, and everything needed to resume."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import checkpoint, weights
from glassformer.checkpoint import BEST, LAST, Adapter
from glassformer.core.config import from_dict
from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json, wrap_read_errors
from glassformer.models.network import Network
from glassformer.tasks.task import Task
from glassformer.training.optimizers import optimizer_tensors, restore_optimizer
from glassformer.training.run import Run
from glassformer.training.step import State, Step

TENSORS, STATE = "training.safetensors", "training.json"


class Checkpointer:
    """Writes and reads `best/` and `last/` in a run folder."""

    def __init__(self, run: Run, task: Task, adapter: Adapter | None = None) -> None:
        self.run = run
        self.task = task
        self.adapter = adapter

    def save_best(self, network: Network) -> None:
        self.write(BEST, network)

    def save_last(self, step: Step, state: State) -> None:
        """Write the weights and the state of training."""

        def write_state(folder: Path) -> None:
            weights.write(training_tensors(step), folder / TENSORS)
            values = {**asdict(state), "scaler": step.scaler.state_dict()}
            (folder / STATE).write_text(json.dumps(values), encoding="utf-8")

        self.write(LAST, step.network, write_extra=write_state)
        self.run.write_checksums()

    def write(self, name: str, network: Network, **options: Any) -> None:
        """Write a model folder in the run; `options` are those of `checkpoint.save`."""
        if not self.run.path.is_dir():
            raise GlassError(f"{self.run.path} no longer exists: its checkpoints are lost")
        trained = [n for n, p in network.named_parameters() if p.requires_grad]
        adapter = (self.adapter, trained) if self.adapter else None
        try:
            checkpoint.save(
                self.run.path / name, network, self.task.artifacts.tokenizer,
                task=self.task.metadata, overwrite=True, adapter=adapter, **options,
            )  # fmt: skip
        except (OSError, GlassError) as error:
            raise GlassError(
                f"could not save {name}/: {error}; {self.describe_checkpoint()}"
            ) from None

    def restore(self, step: Step) -> State:
        """Restore the state in `last/` into a step whose network already has its weights."""
        folder = self.run.path / LAST
        tensors = weights.read(folder / TENSORS)
        values = read_json(folder / STATE)
        with wrap_read_errors(folder / STATE):
            step.scaler.load_state_dict(values.pop("scaler"))
            state = from_dict(State, values, "state.")
        with wrap_read_errors(folder / TENSORS):
            restore_tensors(step, tensors)
        self.run.drop_metrics_after(state.step)
        return state

    def reload(self, step: Step) -> State:
        """Restore the weights and the state in `last/`."""
        file = checkpoint.ADAPTER if self.adapter else weights.FILE
        tensors = weights.read(self.run.path / LAST / file)
        step.network.load_state_dict(tensors, strict=self.adapter is None)
        return self.restore(step)

    def describe_checkpoint(self) -> str:
        """Describe, for an error message, the checkpoint that a failed run can resume from."""
        file = self.run.path / LAST / STATE
        if not file.exists():
            return "there is no checkpoint"
        step = read_json(file)["step"]
        return (
            f"the checkpoint from step {step:,} is intact; to continue: "
            f"glass resume {self.run.path}"
        )


def training_tensors(step: Step) -> dict[str, Tensor]:
    """Return the states of the optimizers, the network and the random number generators.

    Averaged weights are included.
    """
    tensors: dict[str, Tensor] = {}
    for group, optimizer in step.optimizers.items():
        prefix = optimizer_prefix(group)
        tensors |= {f"{prefix}.{name}": v for name, v in optimizer_tensors(optimizer).items()}
    if step.ema:
        tensors |= {f"ema.{n}": p.detach() for n, p in step.ema.network.named_parameters()}
    tensors |= {f"network.{n}": value for n, value in step.network.training_state().items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if step.device.type != "cpu":
        module = torch.get_device_module(step.device)
        tensors[f"random.{step.device.type}"] = module.get_rng_state()
    return tensors


def restore_tensors(step: Step, tensors: dict[str, Tensor]) -> None:
    """Restore the tensors that `training_tensors` returned."""
    prefixes = (*map(optimizer_prefix, step.optimizers), "random", "ema", "network")
    groups: dict[str, dict[str, Tensor]] = {prefix: {} for prefix in prefixes}
    for name, value in tensors.items():
        prefix, _, rest = name.partition(".")
        groups[prefix][rest] = value
    torch.set_rng_state(groups["random"]["cpu"])
    if step.device.type != "cpu" and step.device.type in groups["random"]:
        module = torch.get_device_module(step.device)
        module.set_rng_state(groups["random"][step.device.type])
    for group, optimizer in step.optimizers.items():
        restore_optimizer(step.settings.optimizer, optimizer, groups[optimizer_prefix(group)])
    step.network.load_training_state(groups["network"])
    if step.ema:
        if groups["ema"].keys() != dict(step.ema.network.named_parameters()).keys():
            raise ValueError("the averaged weights do not match the network")
        step.ema.network.load_state_dict(groups["ema"], strict=False)


def optimizer_prefix(group: str | None) -> str:
    """Return the prefix for the saved tensors of a parameter group's optimizer."""
    return "optimizer" if group is None else f"optimizer/{group}"
