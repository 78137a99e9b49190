"""Shared by the tasks on images: pixels in the cache of a run, and batches of them.

Shapes: b batch, c channels, y rows, x columns.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data.batches import choose_examples
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy
from glassformer.data.image_sample import drawn_shapes
from glassformer.data.images import LabeledImage, Size, hash_pixels, read_images
from glassformer.data.request import DataRequest
from glassformer.data.split import LeakCounter
from glassformer.data.store import read_array
from glassformer.models.network import Network
from glassformer.tasks.table_rows import SPLITS, VALID_EXAMPLES, WriteSummary, report_sizes
from glassformer.tasks.task import Artifacts, Batch

EVAL_BATCH, PREVIEW_SIZE = 256, 8  # images
UNLABELED = "image"  # the class of images without labels
MAX_FIT_VALUES = 30_000_000  # pixels that a baseline is fitted on, to limit memory
Ids = NDArray[np.int64]


def read_request(request: DataRequest, on_bad_row: BadRowPolicy) -> Iterator[LabeledImage]:
    """The images of a request, or the built-in ones."""
    if request.files:
        yield from read_images(request, on_bad_row)
        return
    for i, (pixels, name) in enumerate(drawn_shapes()):
        yield LabeledImage(f"shape {i}", pixels, name, request.assign_split(hash_pixels(pixels)))


def read_image_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, _reporter: Reporter
) -> Iterator[Example]:
    """The images as examples for `check-data`; what stands for the text is a hash of the pixels."""
    for image in read_request(request, on_bad_row):
        text = f"{Size(*image.pixels.shape)}, {image.key}"
        yield Example(image.location, (text,), image.split, image.label)


def prepare_images(
    request: DataRequest, folder: Path, reporter: Reporter
) -> tuple[dict[str, Any], WriteSummary]:
    """Write the pixels of both splits to the folder.

    Returns the metadata (labels, size, mean and standard deviation of the pixels) and the labels of
    each split.
    """
    if not request.files:
        reporter("no data given: using drawn shapes, labeled by their kind")
    size, moments = None, np.zeros(3)  # moments: count, sum and sum of squares
    summary = WriteSummary()
    leaks = LeakCounter()
    bar = ProgressBar(reporter, "reading", 0)
    files: dict[str, BinaryIO] = {s: (folder / f"{s}.pixels").open("wb") for s in SPLITS}
    with (
        files["train"],
        files["valid"],
        (folder / VALID_EXAMPLES).open("w", encoding="utf-8") as examples,
    ):
        for image in read_request(request, request.on_bad_row):
            size = size or Size(*image.pixels.shape)
            files[image.split].write(image.pixels.tobytes())
            summary.counts[image.split] += 1
            summary.labels[image.split].append(image.label)
            leaks.add(image.split, image.key)
            if image.split == "train":
                values = image.pixels.astype(np.float64)
                moments += (values.size, values.sum(), np.square(values).sum())
            else:
                record = {"location": image.location, "texts": [image.location]}
                examples.write(json.dumps({**record, "label": image.label}) + "\n")
            bar.add(1)
    if size is None:
        raise GlassError("there are no images that can be read")
    summary.leaks = leaks.count()
    for split in () if request.is_evaluation else SPLITS:
        if not summary.counts[split]:
            total = sum(summary.counts.values())
            purpose = "training" if split == "train" else "validation"
            raise GlassError(f"too few images ({total}): none are left for {purpose}")
    report_sizes(summary, "image", reporter, "images", remark=f" ({size})")
    mean = moments[1] / max(moments[0], 1)
    std = np.sqrt(max(moments[2] / max(moments[0], 1) - mean**2, 1.0))
    metadata = {"image": list(size), "mean": round(float(mean), 3), "std": round(float(std), 3)}
    if request.is_evaluation:  # with the pixels normalized as in training
        metadata |= {name: request.trained_metadata[name] for name in ("mean", "std")}
    if request.image_size:
        metadata["image_size"] = request.image_size
    return metadata, summary


def count_labels(summary: WriteSummary) -> Counter[str]:
    return Counter(label or UNLABELED for labels in summary.labels.values() for label in labels)


def write_labels(summary: WriteSummary, labels: list[str], folder: Path) -> None:
    """Write the index of the label of each image."""
    index = {label: i for i, label in enumerate(labels)}
    for split, cells in summary.labels.items():
        indices = [index[cell or UNLABELED] for cell in cells]
        np.save(folder / f"{split}.labels.npy", np.array(indices, dtype=np.int64))


class ImageStore:
    """The images of one split, memory-mapped, and the indices of their labels."""

    def __init__(self, folder: Path, split: str, artifacts: Artifacts) -> None:
        size = Size(*artifacts.metadata["image"])
        n_labels = len(artifacts.metadata["labels"])
        self.labels: Ids = read_array(folder / f"{split}.labels.npy").astype(np.int64)
        file = folder / f"{split}.pixels"
        values = int(np.prod(size))
        with wrap_read_errors(file):
            is_complete = file.stat().st_size == len(self.labels) * values
        are_valid = ((self.labels >= 0) & (self.labels < n_labels)).all()
        if not is_complete or not are_valid:
            raise GlassError(f"{file} is corrupted: expected {len(self.labels):,} images of {size}")
        empty = np.empty((0, *size), np.uint8)
        shape = (len(self.labels), *size)
        self.pixels = np.memmap(file, np.uint8, "r", shape=shape) if len(self.labels) else empty
        self.mean = artifacts.metadata["mean"]
        self.std = artifacts.metadata["std"]

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, rows: Ids) -> Batch:
        """Normalized images and their labels: b c y x, b."""
        return {
            "pixels": normalize_pixels(self.pixels[rows], self.mean, self.std),
            "targets": torch.from_numpy(self.labels[rows]),
        }


def normalize_pixels(pixels: NDArray[np.uint8], mean: float, std: float) -> Tensor:
    return (torch.from_numpy(np.array(pixels)).float() - mean) / std


class ImageBatches:
    """Batches in which every image occurs once per epoch, in a random order."""

    truncated = 0

    def __init__(self, store: ImageStore, batch_size: int, seed: int) -> None:
        self.store, self.seed = store, seed
        self.batch_size = min(batch_size, len(store))
        self.per_epoch = len(store) // self.batch_size
        self.order = lru_cache(maxsize=2)(self.make_order)

    def make_order(self, epoch: int) -> Ids:
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.store))

    def at(self, step: int) -> Batch:
        epoch, number = divmod(step, self.per_epoch)
        start = number * self.batch_size
        return self.store.gather(self.order(epoch)[start : start + self.batch_size])


class ImageDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        self.train, self.valid = (ImageStore(folder, split, artifacts) for split in SPLITS)
        self.eval_size, self.n_targets = len(self.valid), len(self.train)
        self.size = self.train.pixels.size

    def sizes(self) -> dict[str, int]:
        size = Size(*self.artifacts.metadata["image"])
        labels = self.artifacts.metadata["labels"]
        return {**size._asdict(), "classes": len(labels)}

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> ImageBatches:
        return ImageBatches(self.train, batch_size, seed)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        chosen = choose_examples(len(self.valid), limit)
        for start in range(0, len(chosen), EVAL_BATCH):
            rows = chosen[start : start + EVAL_BATCH]
            yield {**self.valid.gather(rows), "index": torch.from_numpy(rows)}

    def preview_batch(self, context: int | None) -> Batch:
        return self.valid.gather(np.arange(min(PREVIEW_SIZE, len(self.valid))))

    def fit(self, network: Network, fraction: float) -> float:
        limit = min(len(self.train) * fraction, MAX_FIT_VALUES / self.train.pixels[0].size)
        rows = choose_examples(len(self.train), max(int(limit), 1))
        batch = self.train.gather(rows)
        network.fit(batch["pixels"], batch["targets"])  # type: ignore[operator]
        return len(rows) / len(self.train)
