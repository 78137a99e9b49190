"""What is kept of a run: the best weights, and all that is needed to go on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import checkpoint, weights
from glassformer.checkpoint import BEST, LAST, Adapter
from glassformer.config import make
from glassformer.errors import GlassError
from glassformer.folder import read_json, reading
from glassformer.live import Live
from glassformer.tasks.task import Task
from glassformer.training.learner import Learner, State
from glassformer.training.optimiser import optimiser_tensors, restore_optimiser
from glassformer.training.run import Run
from glassformer.training.settings import Training

TENSORS, STATE = "training.safetensors", "training.json"


class Keeper(Learner):
    """One who learns and writes it down, in a run folder."""

    def __init__(
        self, network: nn.Module, task: Task, settings: Training, run: Run, live: Live
    ) -> None:
        super().__init__(network, task, settings)
        self.run, self.live = run, live
        self.adapter: Adapter | None = None

    @property
    def judged(self) -> nn.Module:
        """The network whose figures count and which is kept as best."""
        return self.average.network if self.average else self.network

    def keep(self, name: str, **more: Any) -> None:
        network = self.judged if name == BEST else self.network
        if not self.run.path.is_dir():
            raise GlassError(f"{self.run.path} is gone, and with it what was saved")
        facts = {"name": self.task.name, **self.task.facts}
        learnt = [n for n, p in self.network.named_parameters() if p.requires_grad]
        try:
            checkpoint.save(
                self.run.path / name, network, self.task.tokenizer, task=facts, overwrite=True,
                adapter=(self.adapter, learnt) if self.adapter else None, **more,
            )  # fmt: skip
        except (OSError, GlassError) as error:
            raise GlassError(f"could not save: {error}; {self.kept()}") from None

    def save(self) -> None:
        """Write the state of this step, unless it is worth nothing."""

        def more(folder: Path) -> None:
            tensors = {f"optimiser.{k}": v for k, v in optimiser_tensors(self.optimiser).items()}
            tensors |= {f"random.{where}": state for where, state in self.random().items()}
            if self.average:
                mean = self.average.network.state_dict()
                tensors |= {f"average.{k}": v for k, v in mean.items()}
            weights.write(tensors, folder / TENSORS)
            state = {**asdict(self.state), "scaler": self.scaler.state_dict()}
            (folder / STATE).write_text(json.dumps(state), encoding="utf-8")

        if not all(p.isfinite().all() for p in self.network.parameters()):
            self.live(f"step {self.state.step:,} is not saved: a weight is not finite")
            return
        self.keep(LAST, more=more)
        self.run.seal()

    def random(self) -> dict[str, Tensor]:
        """Where the streams of random numbers are: the processor's, and that of another device."""
        states = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            states[self.device.type] = torch.get_device_module(self.device).get_rng_state()
        return states

    def restore(self) -> None:
        """Take up the state in `last/`, whose weights the network already has."""
        folder = self.run.path / LAST
        tensors, state = weights.read(folder / TENSORS), read_json(folder / STATE)
        with reading(folder / STATE):
            self.scaler.load_state_dict(state.pop("scaler"))
            self.state = make(State, state, "state.")
            self.settings = make(Training, {**vars(self.settings), **self.state.changed}, "train.")
        parts: dict[str, dict[str, Tensor]] = {"optimiser": {}, "average": {}, "random": {}}
        with reading(folder / TENSORS):
            for name, value in tensors.items():
                part, _, rest = name.partition(".")
                parts[part][rest] = value
            torch.set_rng_state(parts["random"]["cpu"])
            if self.device.type != "cpu" and self.device.type in parts["random"]:
                module = torch.get_device_module(self.device)
                module.set_rng_state(parts["random"][self.device.type])
            restore_optimiser(self.optimiser, parts["optimiser"])
            if self.average:
                self.average.network.load_state_dict(parts["average"])
        self.run.forget_after(self.state.step)

    def reload(self) -> None:
        """Go back to `last/`, weights and all."""
        file = checkpoint.ADAPTER if self.adapter else weights.FILE
        state = weights.read(self.run.path / LAST / file)
        self.network.load_state_dict(state, strict=self.adapter is None)
        best, seconds = self.state.best, self.state.seconds
        self.restore()
        self.state.best, self.state.seconds = best, seconds  # what was found, and spent, stays so

    def kept(self) -> str:
        """What is left when a run cannot go on."""
        file = self.run.path / LAST / STATE
        if not file.exists():
            return "there is no checkpoint"
        step = read_json(file)["step"]
        return f"the checkpoint of step {step:,} is whole: glass resume {self.run.path}"
