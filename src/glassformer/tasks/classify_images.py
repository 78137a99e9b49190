"""Classify images: predict the label of an image.

Shapes: b batch, c classes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.images import Size, check_size, has_images, read_picture
from glassformer.data.labeled import check_labels
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.tasks.classify import ClassifyObjective, balance_classes, rank_labels
from glassformer.tasks.image_rows import (
    UNLABELED,
    ImageDataset,
    count_labels,
    normalize_pixels,
    prepare_images,
    read_image_examples,
    write_labels,
)
from glassformer.tasks.label_metrics import (
    ACCURACY,
    calibrate,
    label_details,
    label_predictions,
    plot_labels,
)
from glassformer.tasks.task import METRICS, Artifacts, Batch, TaskSpec, read_calibration


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    metadata, summary = prepare_images(request, folder, reporter)
    counts = count_labels(summary)
    if UNLABELED in counts and not request.labels:
        raise GlassError(
            "the images have no labels: put those of each class into a subfolder, as in "
            "images/cat/1.png"
        )
    labels = list(request.labels) or check_labels(counts)
    write_labels(summary, labels, folder)
    if request.class_weights:
        targets = np.load(folder / "train.labels.npy")
        metadata["class_weights"] = balance_classes(targets, len(labels))
    return Artifacts({**metadata, "labels": labels})


class ClassifyImagesCodec:
    """Encodes images, runs the network, and decodes its output to label probabilities.

    Images are files or arrays of pixels; the highest probability comes first.
    """

    batch_size = 64

    def __init__(self, artifacts: Artifacts) -> None:
        metadata = artifacts.metadata
        self.labels: list[str] = list(metadata["labels"])
        self.size = Size(*metadata["image"])
        self.scale_to = metadata.get("image_size")
        self.mean, self.std = metadata["mean"], metadata["std"]
        self.temperature = read_calibration(metadata, "temperature")

    def encode(self, examples: Sequence[Any], context: int | None = None) -> Batch:
        """`examples` are files, or arrays of pixels from 0 to 255: c y x."""
        pixels = np.stack([self.read(example) for example in examples])
        return {"pixels": normalize_pixels(pixels, self.mean, self.std)}

    def read(self, example: Any) -> Any:
        if isinstance(example, tuple):
            (example,) = example
        if not isinstance(example, str | Path):
            return check_size(np.asarray(example, dtype=np.uint8), self.size)
        path = Path(example)
        if not path.is_file():
            raise GlassError(f"{path} does not exist: this model classifies image files")
        try:
            return read_picture(path, self.size, self.scale_to)
        except GlassError as error:
            raise GlassError(f"{path}: {error}") from error

    @torch.inference_mode()
    def run(self, network: Network, batch: Batch) -> Tensor:
        """Return probabilities: b c."""
        logits: Tensor = network(**network.select_inputs(batch))
        return (logits.float() / self.temperature).softmax(dim=-1)

    def decode(self, output: Tensor) -> list[dict[str, float]]:
        return rank_labels(self.labels, output)

    def preview(self, network: Network, batch: Batch) -> str:
        cells = []
        for probs, target in zip(
            self.decode(self.run(network, batch)), batch["targets"].tolist(), strict=True
        ):
            label, prob = next(iter(probs.items()))
            cells.append(f"{self.labels[target]}: {label} ({prob:.0%})")
        return "true: predicted   " + "   ".join(cells)


CLASSIFY_IMAGES = TaskSpec(
    name="classify-images",
    command="classify",
    accepts=has_images,
    example_input="image.png",
    reads_text=False,
    models=("vision", "image_cnn", "logistic"),
    model_settings={},
    train_settings={"batch_size": 128, "lr": 2e-3, "weight_decay": 0.01},
    metric=METRICS["accuracy"],
    unit="images",
    eval_limit=2_000,
    prepare=prepare,
    examples=read_image_examples,
    dataset=ImageDataset,
    objective=ClassifyObjective,
    codec=ClassifyImagesCodec,
    baseline_model="logistic",
    baseline_name="logistic regression",
    calibrate=calibrate,
    sampled_metric=ACCURACY,
    details=label_details,
    predictions=label_predictions,
    plots={"confusion": plot_labels},
)
