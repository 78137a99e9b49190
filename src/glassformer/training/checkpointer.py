"""What is saved of a run: the best weights, and all that is needed to go on."""

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
    """Writes and reads `best/` and `last/` of a run folder."""

    def __init__(self, run: Run, task: Task, adapter: Adapter | None = None) -> None:
        self.run, self.task, self.adapter = run, task, adapter

    def save_best(self, network: Network) -> None:
        self.write(BEST, network)

    def save_last(self, step: Step, state: State) -> None:
        """Write the weights and all that training remembers."""

        def more(folder: Path) -> None:
            weights.write(training_tensors(step), folder / TENSORS)
            values = {**asdict(state), "scaler": step.scaler.state_dict()}
            (folder / STATE).write_text(json.dumps(values), encoding="utf-8")

        self.write(LAST, step.network, more=more)
        self.run.seal()

    def write(self, name: str, network: Network, **more: Any) -> None:
        if not self.run.path.is_dir():
            raise GlassError(f"{self.run.path} is gone, and with it what was saved")
        trained = [n for n, p in network.named_parameters() if p.requires_grad]
        adapter = (self.adapter, trained) if self.adapter else None
        try:
            checkpoint.save(
                self.run.path / name, network, self.task.artifacts.tokenizer,
                task=self.task.metadata, overwrite=True, adapter=adapter, **more,
            )  # fmt: skip
        except (OSError, GlassError) as error:
            raise GlassError(f"could not save: {error}; {self.describe_checkpoint()}") from None

    def restore(self, step: Step) -> State:
        """Take up the state in `last/`, whose weights the network already has."""
        folder = self.run.path / LAST
        tensors, values = weights.read(folder / TENSORS), read_json(folder / STATE)
        with wrap_read_errors(folder / STATE):
            step.scaler.load_state_dict(values.pop("scaler"))
            state = from_dict(State, values, "state.")
        with wrap_read_errors(folder / TENSORS):
            restore_tensors(step, tensors)
        self.run.drop_metrics_after(state.step)
        return state

    def reload(self, step: Step) -> State:
        """Go back to `last/`, weights and all."""
        file = checkpoint.ADAPTER if self.adapter else weights.FILE
        saved = weights.read(self.run.path / LAST / file)
        step.network.load_state_dict(saved, strict=self.adapter is None)
        return self.restore(step)

    def describe_checkpoint(self) -> str:
        """What there is when a run cannot go on."""
        file = self.run.path / LAST / STATE
        if not file.exists():
            return "there is no checkpoint"
        step = read_json(file)["step"]
        return f"the checkpoint of step {step:,} is whole: glass resume {self.run.path}"


def training_tensors(step: Step) -> dict[str, Tensor]:
    """Moments of the optimizers, averaged weights, and where the random numbers are."""
    tensors: dict[str, Tensor] = {}
    for group, optimizer in step.optimizers.items():
        tensors |= {
            f"{part_of(group)}.{name}": v for name, v in optimizer_tensors(optimizer).items()
        }
    if step.ema:
        tensors |= {f"ema.{k}": v for k, v in step.ema.network.state_dict().items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if step.device.type != "cpu":
        module = torch.get_device_module(step.device)
        tensors[f"random.{step.device.type}"] = module.get_rng_state()
    return tensors


def restore_tensors(step: Step, tensors: dict[str, Tensor]) -> None:
    known = (*map(part_of, step.optimizers), "random", "ema")
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in known}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    torch.set_rng_state(parts["random"]["cpu"])
    if step.device.type != "cpu" and step.device.type in parts["random"]:
        module = torch.get_device_module(step.device)
        module.set_rng_state(parts["random"][step.device.type])
    for group, optimizer in step.optimizers.items():
        restore_optimizer(step.settings.optimizer, optimizer, parts[part_of(group)])
    if step.ema:
        step.ema.network.load_state_dict(parts["ema"])


def part_of(group: str | None) -> str:
    """The name under which the moments of a group of parameters are saved."""
    return "optimizer" if group is None else f"optimizer/{group}"
