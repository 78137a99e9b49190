"""Paint: make new images like those of the training data, of a class, from noise.

Shapes: b batch, c channels, y rows, x columns, z noise values.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.images import make_sheet
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.tasks.frechet import feature_sums, frechet_distance, load_classifier, recognize
from glassformer.tasks.image_rows import (
    ImageDataset,
    count_labels,
    prepare_images,
    read_image_examples,
    write_labels,
)
from glassformer.tasks.task import METRICS, Artifacts, Batch, Batches, Scores, TaskSpec

HALF_RANGE = 127.5  # pixels from 0 to 255 become values from -1 to 1
NOISE = 64  # random values that an image is painted from
SAMENESS_WEIGHT, MIN_DISTANCE = 0.1, 1e-4  # in the loss of a generator
NOISE_STREAM = 1  # for the seed of the noise, which differs from that of the order of the images
SHEET_IMAGES, MAX_COLUMNS = 100, 12  # of the sheet in `plots/`
PREVIEW_WIDTH, SHADES = 12, " ░▒▓█"
MAX_LABELS = 1000


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    metadata, summary = prepare_images(request, folder, reporter)
    counts = count_labels(summary)
    labels = list(request.labels) or sorted(counts)
    if len(labels) > MAX_LABELS:
        raise GlassError(
            f"there are {len(labels):,} classes, but at most {MAX_LABELS:,} are allowed"
        )
    write_labels(summary, labels, folder)
    return Artifacts({**metadata, "labels": labels, "mean": HALF_RANGE, "std": HALF_RANGE})


class PaintBatches:
    """Real images, and noise to paint others from: a pure function of the seed and the step."""

    truncated = 0

    def __init__(self, images: Batches, seed: int) -> None:
        self.images = images
        self.seed = seed
        self.per_epoch = images.per_epoch

    def at(self, step: int) -> Batch:
        return add_noise(self.images.at(step), NOISE_STREAM, self.seed, step)


def add_noise(batch: Batch, *seed: int) -> Batch:
    """A batch of real images with noise (b z), twice, and the classes to paint (b), theirs."""
    noise, other_noise = make_noise(2 * len(batch["targets"]), *seed).chunk(2)
    return {**batch, "noise": noise, "other_noise": other_noise, "labels": batch["targets"]}


def make_noise(count: int, *seed: int) -> Tensor:
    values = np.random.default_rng(seed).standard_normal((count, NOISE))
    return torch.from_numpy(values.astype(np.float32))


class PaintDataset(ImageDataset):
    """Images with noise; the noise of evaluations is always the same."""

    def sizes(self) -> dict[str, int]:
        return {**super().sizes(), "noise": NOISE}

    def train_batches(  # type: ignore[override]
        self, batch_size: int, context: int | None, seed: int
    ) -> PaintBatches:
        return PaintBatches(super().train_batches(batch_size, context, seed), seed)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        for i, batch in enumerate(super().eval_batches(network, limit, context)):
            yield add_noise(batch, NOISE_STREAM, i)

    def preview_batch(self, context: int | None) -> Batch:
        return add_noise(super().preview_batch(context), NOISE_STREAM)


class PaintObjective:
    """The hinge losses of a critic and of a generator, which is trained against the new critic.

    So that the generator does not paint one image per class, its loss has a second term: images of
    one class that are painted from different noise should differ (Mao et al., 2019).
    """

    groups = ("critic", "generator")

    def __init__(self, artifacts: Artifacts) -> None:
        self.labels = list(artifacts.metadata["labels"])

    def count(self, batch: Batch) -> int:
        return len(batch["targets"])

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        critic = network.get_submodule("critic")
        labels = batch["labels"]
        painted = network(**network.select_inputs(batch))
        real_score = critic(batch["pixels"], labels)
        score = critic(painted.detach(), labels)
        yield (1 - real_score).relu().sum() + (1 + score).relu().sum()
        with keep_constant(critic):
            score = critic(painted, labels)
        other = network(batch["other_noise"], labels)
        yield (SAMENESS_WEIGHT * sameness(painted, other, batch) - score).sum()

    def scores(self, network: Network, batch: Batch) -> Scores:
        painted = network(**network.select_inputs(batch)).float()
        sums: dict[str, Any] = {
            "painted": feature_sums(painted), "real": feature_sums(batch["pixels"]),
            "images": len(painted),
        }  # fmt: skip
        if set(self.labels) <= set(load_classifier()[1]):
            expected = [self.labels[i] for i in batch["labels"].tolist()]
            sums["recognized"] = sum(map(str.__eq__, recognize(painted), expected))
        shown = to_pixels(painted[:SHEET_IMAGES])
        labels = batch["labels"][:SHEET_IMAGES].cpu().numpy()
        return Scores(sums, arrays={"painted": [shown], "label": [labels]})

    def metrics(self, scores: Scores) -> dict[str, Any]:
        sums = scores.sums
        distance = frechet_distance(sums["painted"], sums["real"])
        metrics = {"loss": distance, "frechet": distance, "examples": sums["images"]}
        if "recognized" in sums:
            metrics["recognized"] = sums["recognized"] / sums["images"]
        return metrics


def sameness(painted: Tensor, other: Tensor, batch: Batch) -> Tensor:
    """The distance between two noises, divided by that of the images painted from them: b."""
    noise_distance = (batch["noise"] - batch["other_noise"]).abs().mean(dim=1)
    distance = (painted - other).abs().mean(dim=(1, 2, 3))
    return noise_distance / (distance + MIN_DISTANCE)


@contextmanager
def keep_constant(module: nn.Module) -> Iterator[None]:
    """What is computed in this context has no gradient with respect to the module's parameters."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def to_pixels(images: Tensor) -> NDArray[np.uint8]:
    """Images between -1 and 1 as integers from 0 to 255."""
    values = images.float().cpu().numpy() * HALF_RANGE + HALF_RANGE
    return np.asarray(values.round().clip(0, 255).astype(np.uint8))


def draw_sheet(scores: Scores, artifacts: Artifacts, file: Path) -> None:
    """A sheet of painted images, with a column for each class if there are few classes."""
    labels = scores.array("label")
    n_classes = len(artifacts.metadata["labels"])
    columns = count_columns(SHEET_IMAGES, n_classes)
    chosen = np.arange(min(SHEET_IMAGES, len(labels)))
    by_class = [np.flatnonzero(labels == i) for i in range(n_classes)]
    rows = min(SHEET_IMAGES // columns, *map(len, by_class), len(labels))
    if columns == n_classes and rows:
        chosen = np.stack([indices[:rows] for indices in by_class], axis=1).ravel()
    make_sheet(scores.array("painted")[chosen], columns).save(file)


def count_columns(images: int, classes: int) -> int:
    """The number of columns of a sheet: that of the classes, or about that of the rows."""
    return classes if 1 < classes <= MAX_COLUMNS else math.ceil(math.sqrt(images))


class PaintCodec:
    """Encodes classes (None: any) and seeds, and runs the network, whose output becomes images.

    An image is c y x, integers from 0 to 255.
    """

    batch_size = 64

    def __init__(self, artifacts: Artifacts) -> None:
        self.labels: list[str] = list(artifacts.metadata["labels"])

    def encode(
        self, examples: Sequence[tuple[str | None, int]], context: int | None = None
    ) -> Batch:
        classes = [
            seed % len(self.labels) if label is None else self.find_class(label)
            for label, seed in examples
        ]
        noise = torch.cat([make_noise(1, seed) for _, seed in examples])
        return {"noise": noise, "labels": torch.tensor(classes)}

    def find_class(self, label: str) -> int:
        if label not in self.labels:
            known = ", ".join(self.labels[:20])
            raise GlassError(f"this model cannot paint {label!r}; its classes are {known}")
        return self.labels.index(label)

    @torch.inference_mode()
    def run(self, network: Network, batch: Batch) -> Tensor:
        images: Tensor = network(**network.select_inputs(batch))
        return images

    def decode(self, output: Tensor) -> list[NDArray[np.uint8]]:
        return list(to_pixels(output))

    def preview(self, network: Network, batch: Batch) -> str:
        """The painted images in block characters, side by side."""
        images = self.run(network, batch).float().mean(dim=1, keepdim=True)
        size = (PREVIEW_WIDTH // 2, PREVIEW_WIDTH)  # characters are twice as high as wide
        small = torch.nn.functional.interpolate(images, size, mode="area")[:, 0]
        shades = ((small + 1) / 2 * len(SHADES)).long().clamp(0, len(SHADES) - 1)
        lines = [
            "  ".join("".join(SHADES[shade] for shade in row) for row in rows)
            for rows in shades.transpose(0, 1).tolist()
        ]
        names = [self.labels[i][:PREVIEW_WIDTH] for i in batch["labels"].tolist()]
        return "\n".join(("  ".join(f"{name:<{PREVIEW_WIDTH}}" for name in names), *lines))


PAINT = TaskSpec(
    name="paint",
    models=("sagan",),
    model_settings={},
    train_settings={
        "batch_size": 64,
        "lr": 3e-4,
        "beta1": 0.0,
        "beta2": 0.9,
        "weight_decay": 0.0,
        "ema_decay": 0.999,
        "patience": 0,  # the distance does not fall steadily
    },
    metric=METRICS["frechet"],
    unit="images",
    eval_limit=1_000,
    example_input="-n 64",
    reads_text=False,
    prepare=prepare,
    examples=read_image_examples,
    dataset=PaintDataset,
    objective=PaintObjective,
    codec=PaintCodec,
    plots={"sheet": draw_sheet},
)
