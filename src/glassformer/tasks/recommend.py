"""Recommend: predict the rating that a user gives an item.

Shapes: b ratings, n ratings of an evaluation.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.baselines.biases import Biases
from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.core.reporter import NullReporter, Reporter, format_count
from glassformer.data.batches import choose_examples
from glassformer.data.catalog import Catalog
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.rating_scale import Scale
from glassformer.data.ratings import make_rating_reader
from glassformer.data.request import DataRequest
from glassformer.data.store import read_array
from glassformer.models.factorization import Factorization
from glassformer.models.network import Network, Rater
from glassformer.tasks.bootstrap import Sample, SampledMetric
from glassformer.tasks.ranking import RecommendationCodec
from glassformer.tasks.table_rows import (
    SPLITS,
    VALID_EXAMPLES,
    describe_small_split,
    hold_out_some,
    summarize_examples,
)
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec

EVAL_BATCH = 4096  # ratings
PREVIEW_USERS = 3
WORST_ERRORS = 5

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


# --- files to ratings -----------------------------------------------------------------------------


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns, titles = make_rating_reader(request, reporter)
    values = Counter[float]()
    summary = summarize_examples(count_ratings(read(request.on_bad_row), values))
    if not summary.count:
        raise GlassError("the data has no valid row with a user, an item and a rating")
    if not request.is_evaluation and (new := hold_out_some(request, summary)) is not request:
        read, columns, titles = make_rating_reader(new, NullReporter())
    trained = request.trained_metadata
    given = (request.scale[0], request.scale[1]) if request.scale else None
    scale = Scale.read(trained) if trained else Scale.of(values, given)
    examples = drop_outside(read(IgnoreBadRows()), scale, request.on_bad_row)
    ratings = RatingTables.read(examples, Catalog.of(trained) if trained else None)
    if trained:
        ratings.save(folder)
        return Artifacts({**trained, **columns})
    if not ratings.train or not ratings.valid:
        purpose = "training" if not ratings.train else "validation"
        raise GlassError(f"too few ratings ({summary.count}): none are left for {purpose}")
    catalog = ratings.catalog(titles)
    ratings.save(folder)
    reporter(
        f"{format_count(len(ratings.train), 'rating')} for training, {len(ratings.valid):,} for "
        f"validation: {format_count(len(catalog.users), 'user')}, "
        f"{format_count(len(catalog.items), 'item')}, ratings from {scale.low:g} to {scale.high:g}"
    )
    if warning := describe_small_split(len(ratings.train), len(ratings.valid)):
        reporter(warning)
    mean = sum(rating for _, _, rating in ratings.train) / len(ratings.train)
    return Artifacts({**columns, **scale.metadata, "mean": mean, **catalog.metadata})


def count_ratings(examples: Iterable[Example], counts: Counter[float]) -> Iterator[Example]:
    """Yield the examples, and count how often each rating occurs."""
    for example in examples:
        counts[float(example.texts[2])] += 1
        yield example


def drop_outside(
    examples: Iterable[Example], scale: Scale, on_bad_row: BadRowPolicy
) -> Iterator[Example]:
    """Yield the examples with a rating on the scale; the others are bad rows."""
    for example in examples:
        if scale.contains(float(example.texts[2])):
            yield example
        else:
            reason = (
                f"the rating {example.texts[2]} is outside the scale from {scale.low:g} to "
                f"{scale.high:g}; if it is right, give the scale when training: --scale LOW HIGH"
            )
            on_bad_row(example.location, reason, str(example.texts))


@dataclass
class RatingTables:
    """Ratings as (user, item, rating), with the indices of users and items in the training split.

    The index of users and items that occur only in the validation split is -1.
    """

    users: dict[str, int]
    items: dict[str, int]
    train: list[tuple[int, int, float]]
    valid: list[tuple[int, int, float]]
    valid_examples: list[Example]

    @classmethod
    def read(cls, examples: Iterable[Example], catalog: Catalog | None) -> "RatingTables":
        """Read examples; the users and items are those of `catalog`, if there is one."""
        users = dict(catalog.user_index) if catalog else {}
        items = dict(catalog.item_index) if catalog else {}
        train = list[tuple[int, int, float]]()
        held_out = list[Example]()
        for example in examples:
            user, item, rating = example.texts
            if catalog or example.split == "valid":
                held_out.append(example)
                continue
            pair = users.setdefault(user, len(users)), items.setdefault(item, len(items))
            train.append((*pair, float(rating)))
        valid = [
            (users.get(user, -1), items.get(item, -1), float(rating))
            for user, item, rating in (example.texts for example in held_out)
        ]
        return cls(users, items, train, valid, held_out)

    def catalog(self, titles: dict[str, str]) -> Catalog:
        """The users and items, with all that each user has rated in either split."""
        histories: list[list[int]] = [[] for _ in self.users]
        for user, item, _ in (*self.train, *self.valid):
            if user >= 0 and item >= 0:
                histories[user].append(item)
        names = [titles.get(item, "") for item in self.items] if titles else []
        return Catalog(list(self.users), list(self.items), histories, names)

    def save(self, folder: Path) -> None:
        for split, rows in zip(SPLITS, (self.train, self.valid), strict=True):
            pairs = [(user, item) for user, item, _ in rows]
            np.save(folder / f"{split}.pairs.npy", np.array(pairs, dtype=np.int64).reshape(-1, 2))
            ratings = np.array([rating for _, _, rating in rows], dtype=np.float64)
            np.save(folder / f"{split}.ratings.npy", ratings)
        with (folder / VALID_EXAMPLES).open("w", encoding="utf-8") as file:
            for example in self.valid_examples:
                record = {"location": example.location, "texts": example.texts, "label": None}
                file.write(json.dumps(record) + "\n")


def read_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """Yield the rows of the data for `check-data`."""
    yield from make_rating_reader(request, reporter)[0](on_bad_row)


# --- batches --------------------------------------------------------------------------------------


class RatingBatches:
    """Batches of ratings in random order, another in each epoch."""

    truncated = 0

    def __init__(self, dataset: "RecommendDataset", batch_size: int, seed: int) -> None:
        self.dataset, self.seed = dataset, seed
        self.batch_size = min(batch_size, dataset.n_targets)
        self.per_epoch = max(dataset.n_targets // self.batch_size, 1)
        self.order = lru_cache(maxsize=2)(self.shuffle)

    def shuffle(self, epoch: int) -> Ids:
        return np.random.default_rng((self.seed, epoch)).permutation(self.dataset.n_targets)

    def at(self, step: int) -> Batch:
        epoch, number = divmod(step, self.per_epoch)
        start = number * self.batch_size
        return self.dataset.gather("train", self.order(epoch)[start : start + self.batch_size])


class RecommendDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        self.parts = {split: self.read_split(folder, split) for split in SPLITS}
        self.n_targets, self.eval_size = (len(self.parts[split][1]) for split in SPLITS)
        self.size = self.n_targets

    @cached_property
    def catalog(self) -> Catalog:
        return Catalog.of(self.artifacts.metadata)

    def read_split(self, folder: Path, split: str) -> tuple[Ids, Floats]:
        """The users and items (n 2) and the ratings (n) of one split."""
        file = folder / f"{split}.ratings.npy"
        pairs = read_array(folder / f"{split}.pairs.npy", ndim=2)
        with wrap_read_errors(file):
            ratings = np.load(file, allow_pickle=False)
        sizes = [len(self.catalog.users), len(self.catalog.items)]
        is_valid = ratings.dtype == np.float64 and pairs.shape == (*ratings.shape, 2)
        if not is_valid or not ((pairs >= -1) & (pairs < sizes)).all():
            raise GlassError(f"{file} is corrupted: expected a rating for each user and item")
        return pairs, ratings

    def sizes(self) -> dict[str, int]:
        return {"users": len(self.catalog.users), "items": len(self.catalog.items)}

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> RatingBatches:
        return RatingBatches(self, batch_size, seed)

    def gather(self, split: str, rows: Ids) -> Batch:
        pairs, ratings = self.parts[split]
        user, item = torch.from_numpy(pairs[rows]).unbind(dim=1)
        return {"user": user, "item": item, "targets": torch.from_numpy(ratings[rows]).float()}

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        rows = choose_examples(self.eval_size, limit)
        for start in range(0, len(rows), EVAL_BATCH):
            part = rows[start : start + EVAL_BATCH]
            yield {**self.gather("valid", part), "index": torch.from_numpy(part)}

    def preview_batch(self, context: int | None) -> Batch:
        return {"user": torch.arange(min(PREVIEW_USERS, len(self.catalog.users)))}

    def fit(self, network: Network, fraction: float) -> float:
        rows = choose_examples(self.n_targets, max(round(self.n_targets * fraction), 1))
        network.fit(*self.gather("train", rows).values())  # type: ignore[operator]
        return len(rows) / self.n_targets

    @torch.no_grad()
    def initialize(self, network: Network) -> None:
        """Start from the baseline: the mean and the biases of a factorization are those of it."""
        if isinstance(network, Factorization):
            baseline = Biases(Biases.Config(**self.sizes()))
            self.fit(baseline, 1.0)
            network.mean.copy_(baseline.mean)
            network.user_bias.weight.copy_(baseline.user_bias[:, None])
            network.item_bias.weight.copy_(baseline.item_bias[:, None])


# --- losses and metrics ---------------------------------------------------------------------------


class RecommendObjective:
    """Minimize the squared errors of ratings."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        self.scale = Scale.read(artifacts.metadata)
        self.mean = float(artifacts.metadata["mean"])

    def count(self, batch: Batch) -> int:
        return len(batch["targets"])

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        ratings = network(**network.select_inputs(batch)).float()
        yield (ratings - batch["targets"]).square().sum()

    def scores(self, network: Network, batch: Batch) -> Scores:
        ratings = (
            network(**network.select_inputs(batch)).float().clamp(self.scale.low, self.scale.high)
        )
        is_unseen = (batch["user"] < 0) | (batch["item"] < 0)
        columns = {"index": batch["index"], "target": batch["targets"], "rating": ratings}
        arrays = {name: [x.cpu().numpy()] for name, x in (columns | {"unseen": is_unseen}).items()}
        return Scores(arrays=arrays)

    def metrics(self, scores: Scores) -> dict[str, Any]:
        """The mean squared error, its root, and the root for predicting the mean rating."""
        target = scores.array("target").astype(np.float64)
        loss = float(np.square(scores.array("rating") - target).mean())
        return {
            "loss": loss,
            "rmse": loss**0.5,
            "mean_rmse": float(np.square(self.mean - target).mean() ** 0.5),
            "examples": len(target),
            "unseen": int(scores.array("unseen").sum()),
        }


def squared_errors(scores: Scores, artifacts: Artifacts) -> Sample:
    errors = np.square(scores.array("rating").astype(np.float64) - scores.array("target"))
    return Sample(scores.array("index"), np.column_stack((errors, np.ones_like(errors))))


RMSE = SampledMetric(squared_errors, lambda sums: np.sqrt(sums[:, 0] / sums[:, 1]))


def rating_predictions(scores: Scores, artifacts: Artifacts) -> dict[int, dict[str, Any]]:
    """The predicted rating of each row of an evaluation, by its index."""
    pairs = zip(scores.array("index").tolist(), scores.array("rating").tolist(), strict=True)
    return {index: {"prediction": round(rating, 4)} for index, rating in pairs}


def rating_details(scores: Scores, artifacts: Artifacts) -> dict[str, Any]:
    """The ratings with the largest errors."""
    rating = scores.array("rating")
    target = scores.array("target")
    worst = np.argsort(-np.abs(rating - target), kind="stable")[:WORST_ERRORS]
    rows = [
        {
            "index": int(scores.array("index")[i]),
            "rating": float(target[i]),
            "prediction": round(float(rating[i]), 2),
        }
        for i in worst
    ]
    return {"worst": rows}


# --- prediction -----------------------------------------------------------------------------------


class RecommendCodec(RecommendationCodec):
    """Encodes users, runs the network, and decodes the items with the highest predicted ratings."""

    def score_items(self, network: Network, user: Tensor) -> Tensor:
        assert isinstance(network, Rater)
        return network.rate_items(user)


RECOMMEND = TaskSpec(
    name="recommend",
    models=("factorization", "biases"),
    model_settings={},
    train_settings={"batch_size": 1024, "lr": 5e-3, "weight_decay": 0.0, "max_epochs": 30.0},
    metric=METRICS["rmse"],
    unit="ratings",
    eval_limit=20_000,
    final_eval_limit=1_000_000,
    prepare=prepare,
    examples=read_examples,
    dataset=RecommendDataset,
    objective=RecommendObjective,
    codec=RecommendCodec,
    initialize=RecommendDataset.initialize,
    baseline_model="biases",
    baseline_name="user and item biases",
    example_input="--user USER",
    reads_text=False,
    sampled_metric=RMSE,
    details=rating_details,
    predictions=rating_predictions,
)
