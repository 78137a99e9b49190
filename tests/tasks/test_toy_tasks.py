"""Two toy tasks, image classification and adversarial training, defined entirely in this file.

Neither has a tokenizer. The adversarial task updates two groups of parameters in turn, in one
network, with one checkpoint and one training loop.
"""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from glassformer import MODELS, load
from glassformer.core.reporter import NullReporter
from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.tasks import TASKS
from glassformer.tasks.task import METRICS, Artifacts, Scores, TaskSpec
from glassformer.training.evaluate import evaluate
from glassformer.training.resume import resume
from glassformer.training.step import Step
from glassformer.training.train import train
from glassformer.training.trainer import Trainer

SIZE = 6  # height and width in pixels


def draw_shapes(count, seed):
    """Return images of horizontal or vertical bars on noise, and their labels: n 1 y x, n."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    images = random.normal(0, 0.3, (count, 1, SIZE, SIZE)).astype(np.float32)
    for image, label, at in zip(images, labels, random.integers(0, SIZE, count), strict=True):
        image[0, at, :] += 1 - label
        image[0, :, at] += label
    return images, labels


# --- images ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShapesConfig(ModelConfig):
    classes: int = 2
    dim: int = 16


class ShapesNetwork(Network):
    """A convolution, max-pooled over positions, and a linear classifier: b 1 y x -> b c."""

    Config = ShapesConfig
    traits = frozenset({Trait.COMPILABLE})
    forward_inputs = ("pixels",)

    def __init__(self, config):
        super().__init__(config)
        self.window = nn.Conv2d(1, config.dim, 5, padding=2)
        self.head = nn.Linear(config.dim, config.classes)

    def forward(self, pixels):
        return self.head(F.relu(self.window(pixels)).amax(dim=(2, 3)))


def prepare_shapes(request, folder, reporter):
    for part, (count, seed) in {"train": (200, 1), "valid": (50, 2)}.items():
        images, labels = draw_shapes(count, seed)
        np.savez(folder / f"{part}.npz", images=images, labels=labels)
    reporter("images of bars drawn")
    mean = float(np.load(folder / "train.npz")["images"].mean())
    return Artifacts({"labels_of_shapes": ["horizontal", "vertical"], "mean": mean})


@dataclass(frozen=True)
class ShapeBatches:
    dataset: "ShapesDataset"
    batch_size: int
    seed: int
    truncated: int = 0

    @property
    def per_epoch(self):
        return len(self.dataset.parts["train"]["labels"]) // self.batch_size

    def at(self, step):
        size = len(self.dataset.parts["train"]["labels"])
        rows = np.random.default_rng((self.seed, step)).integers(0, size, self.batch_size)
        return self.dataset.gather("train", rows)


class ShapesDataset:
    def __init__(self, artifacts, folder):
        self.artifacts = artifacts
        self.parts = {part: dict(np.load(folder / f"{part}.npz")) for part in ("train", "valid")}
        self.size = self.parts["train"]["images"].size
        self.n_targets = len(self.parts["train"]["labels"])
        self.eval_size = len(self.parts["valid"]["labels"])

    def sizes(self):
        return {"classes": 2}

    def train_batches(self, batch_size, context, seed):
        return ShapeBatches(self, batch_size, seed)

    def gather(self, part, rows):
        images = self.parts[part]["images"][rows] - self.artifacts.metadata["mean"]
        labels = self.parts[part]["labels"][rows]
        return {"pixels": torch.from_numpy(images), "targets": torch.from_numpy(labels)}

    def eval_batches(self, network, limit=None, context=None):
        for rows in np.array_split(np.arange(min(limit or 10**9, self.eval_size)), 3):
            yield self.gather("valid", rows)

    def preview_batch(self, context):
        return self.gather("valid", np.arange(2))

    def fit(self, network, fraction):
        raise NotImplementedError


class ShapeLabel:
    groups = (None,)

    def __init__(self, artifacts):
        pass

    def count(self, batch):
        return len(batch["targets"])

    def losses(self, network, batch, *, label_smoothing=0.0):
        yield F.cross_entropy(
            network(**network.select_inputs(batch)), batch["targets"], reduction="sum"
        )

    def scores(self, network, batch):
        logits = network(**network.select_inputs(batch))
        correct = int((logits.argmax(dim=1) == batch["targets"]).sum())
        nats = float(F.cross_entropy(logits, batch["targets"], reduction="sum"))
        return Scores({"nats": nats, "correct": correct, "examples": len(logits)})

    def metrics(self, scores):
        sums = scores.sums
        return {
            "loss": sums["nats"] / sums["examples"],
            "accuracy": sums["correct"] / sums["examples"],
            "examples": sums["examples"],
        }


class ShapesCodec:
    batch_size = 8

    def __init__(self, artifacts):
        self.labels, self.mean = artifacts.metadata["labels_of_shapes"], artifacts.metadata["mean"]

    def encode(self, examples, context=None):
        return {"pixels": torch.stack(list(examples)) - self.mean}

    def run(self, network, batch):
        with torch.inference_mode():
            return network(**network.select_inputs(batch)).argmax(dim=1)

    def decode(self, output):
        return [self.labels[i] for i in output.tolist()]

    def preview(self, network, batch):
        return " ".join(self.decode(self.run(network, batch)))


SHAPES = TaskSpec(
    name="toy-shapes",
    models=("toy_shapes",),
    model_settings={"dim": 16},
    train_settings={"batch_size": 16, "lr": 1e-2},
    metric=METRICS["accuracy"],
    unit="images",
    eval_limit=50,
    prepare=prepare_shapes,
    examples=lambda request, on_bad_row, reporter: iter(()),
    dataset=ShapesDataset,
    objective=ShapeLabel,
    codec=ShapesCodec,
)


# --- adversarial ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GanConfig(ModelConfig):
    dim: int = 16


class GanNetwork(Network):
    """A generator that maps noise to points, and a critic that separates them from real points."""

    Config = GanConfig
    forward_inputs = ("noise",)

    def __init__(self, config):
        super().__init__(config)
        self.critic = nn.Sequential(nn.Linear(2, config.dim), nn.ReLU(), nn.Linear(config.dim, 1))
        self.generator = nn.Linear(2, 2)

    def forward(self, noise):
        return self.generator(noise)


class Adversarial:
    """Hinge losses: the critic is updated first, then the generator against the updated critic."""

    groups = ("critic", "generator")

    def __init__(self, artifacts):
        pass

    def count(self, batch):
        return len(batch["real"])

    def losses(self, network, batch, *, label_smoothing=0.0):
        fake_points = network(batch["noise"])
        real, fake = network.critic(batch["real"]), network.critic(fake_points.detach())
        yield (1 - real).relu().sum() + (1 + fake).relu().sum()
        yield -network.critic(fake_points).sum()

    def scores(self, network, batch):
        distance = (network(batch["noise"]).mean(dim=0) - batch["real"].mean(dim=0)).norm()
        return Scores({"distance": float(distance), "batches": 1})

    def metrics(self, scores):
        return {"loss": scores.sums["distance"] / scores.sums["batches"]}


@dataclass(frozen=True)
class PointBatches:
    batch_size: int
    seed: int
    per_epoch: int = 10
    truncated: int = 0

    def at(self, step):
        random = np.random.default_rng((self.seed, step))
        noise = random.normal(size=(self.batch_size, 2)).astype(np.float32)
        real = (random.normal(size=(self.batch_size, 2)) * 0.3 + (2, -1)).astype(np.float32)
        return {"noise": torch.from_numpy(noise), "real": torch.from_numpy(real)}


class PointsDataset:
    size = n_targets = 1000
    eval_size = 100

    def __init__(self, artifacts, folder):
        self.artifacts = artifacts

    def sizes(self):
        return {}

    def train_batches(self, batch_size, context, seed):
        return PointBatches(batch_size, seed)

    def eval_batches(self, network, limit=None, context=None):
        yield PointBatches(limit or 100, 9).at(0)

    def preview_batch(self, context):
        return PointBatches(2, 9).at(1)

    def fit(self, network, fraction):
        raise NotImplementedError


class PointsCodec:
    batch_size = 8

    def __init__(self, artifacts):
        pass

    def encode(self, examples, context=None):
        return {"noise": torch.stack(list(examples))}

    def run(self, network, batch):
        return network(**network.select_inputs(batch))

    def decode(self, output):
        return output.tolist()

    def preview(self, network, batch):
        return str(self.decode(self.run(network, batch)))


GAN = TaskSpec(
    name="toy-gan",
    models=("toy_gan",),
    model_settings={},
    train_settings={"batch_size": 64, "lr": 2e-2, "weight_decay": 0.0},
    metric=METRICS["loss"],
    unit="points",
    eval_limit=100,
    prepare=lambda request, folder, reporter: Artifacts(),
    examples=lambda request, on_bad_row, reporter: iter(()),
    dataset=PointsDataset,
    objective=Adversarial,
    codec=PointsCodec,
)


@pytest.fixture(autouse=True)
def register_toys(monkeypatch):
    monkeypatch.setitem(TASKS, "toy-shapes", SHAPES)
    monkeypatch.setitem(TASKS, "toy-gan", GAN)
    monkeypatch.setitem(MODELS, "toy_shapes", ShapesNetwork)
    monkeypatch.setitem(MODELS, "toy_gan", GanNetwork)


EXACT = {"device": "cpu", "precision": "float32", "threads": 1, "reporter": NullReporter()}


def test_image_task_trains_evaluates_and_predicts(tmp_path):
    result = train("toy-shapes", run=tmp_path / "run", steps=60, **EXACT)
    assert result["accuracy"] > 0.9
    assert "baseline" not in result
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"best", "last", "metrics.jsonl", "config.toml", "plots"} <= files
    assert "tokenizer.json" not in files
    metrics = evaluate(tmp_path / "run")
    assert (metrics["accuracy"], metrics["examples"]) == (result["accuracy"], 50)
    model = load(tmp_path / "run")
    images, labels = draw_shapes(20, 3)
    codec = SHAPES.codec(Artifacts(model.task))
    predictions = codec.decode(codec.run(model.network, codec.encode(torch.from_numpy(images))))
    correct = sum(p == codec.labels[i] for p, i in zip(predictions, labels, strict=True))
    assert correct >= 17


@pytest.mark.parametrize("task", ["toy-shapes", "toy-gan"])
@pytest.mark.parametrize("more", [{}, {"accumulate": 3}, {"ema_decay": 0.9}], ids=str)
def test_resumed_run_equals_an_uninterrupted_run(tmp_path, monkeypatch, task, more):
    options = {"steps": 20, "save_every": 4, **EXACT, **more}
    train(task, run=tmp_path / "uninterrupted", **options)
    take_step = Trainer.take_step

    def stop_after_seven_steps(self, moment):
        result = take_step(self, moment)
        self.is_stopping = self.state.step == 7
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", stop_after_seven_steps)
        train(task, run=tmp_path / "resumed", **options)
    assert json.loads((tmp_path / "resumed/last/training.json").read_text())["step"] == 7
    resume(tmp_path / "resumed", NullReporter())
    files = (tmp_path / run / "last" / "model.safetensors" for run in ("uninterrupted", "resumed"))
    uninterrupted, resumed = (file.read_bytes() for file in files)
    assert uninterrupted == resumed


def test_generator_approaches_the_real_points(tmp_path):
    result = train("toy-gan", run=tmp_path / "run", steps=300, patience=0, **EXACT)
    assert result["loss"] < 0.7  # about 2.2 before training


def test_step_updates_the_groups_in_turn():
    """The critic is updated first; the loss of the generator uses the updated critic."""
    from glassformer.training.settings import TrainingSettings

    torch.manual_seed(0)
    ours = GanNetwork(GanConfig())
    theirs = GanNetwork(GanConfig())
    theirs.load_state_dict(ours.state_dict())
    settings = TrainingSettings(
        steps=9, device="cpu", precision="float32", clip=1e9, weight_decay=0.0
    )
    step, batch = Step(ours, Adversarial(None), settings), PointBatches(32, 0).at(0)
    optimizers = [
        torch.optim.AdamW(part.parameters(), lr=0.1, betas=(0.9, 0.99), weight_decay=0.0)
        for part in (theirs.critic, theirs.generator)
    ]
    for at in range(3):
        step(batch, 0.1, at)
        fake_points = theirs(batch["noise"]).detach()
        real, fake = theirs.critic(batch["real"]), theirs.critic(fake_points)
        for optimizer, loss in (
            (optimizers[0], lambda r=real, f=fake: (1 - r).relu().sum() + (1 + f).relu().sum()),
            (optimizers[1], lambda: -theirs.critic(theirs(batch["noise"])).sum()),
        ):
            theirs.zero_grad()
            (loss() / 32).backward()
            optimizer.step()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("micro_batches", [2, 5])
def test_accumulated_micro_batches_equal_one_batch(micro_batches):
    from glassformer.training.settings import TrainingSettings

    results = []
    for accumulate in (1, micro_batches):
        torch.manual_seed(0)
        network = GanNetwork(GanConfig())
        settings = TrainingSettings(
            steps=9, device="cpu", precision="float32", accumulate=accumulate
        )
        step = Step(network, Adversarial(None), settings)
        for at in range(3):
            step(PointBatches(32, 0).at(at), 0.05, at)
        results.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)
