"""Recommend: predict the next item of a user from the items before it, in order of time.

The last item of each user is held out for validation: the network reads the items before it and
ranks all items that are not among them. Shapes: b users, t items of a history, v items.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.batches import choose_examples, pad_rows
from glassformer.data.catalog import Catalog
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy
from glassformer.data.rating_scale import parse_time
from glassformer.data.ratings import make_rating_reader
from glassformer.data.request import DataRequest
from glassformer.data.store import Store, StoreWriter, read_array
from glassformer.models.network import Encoder, ItemVectors, Network, NextItem
from glassformer.tasks.bootstrap import Sample, SampledMetric
from glassformer.tasks.ranking import RecommendationCodec, gains, hits, rank_targets
from glassformer.tasks.table_rows import SPLITS, VALID_EXAMPLES
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec

EVAL_BATCH = 64  # users
PREVIEW_USERS = 3
SAMPLED_ITEMS = 512  # per user, with which the next items are compared in training

Ids = NDArray[np.int64]


# --- files to histories ---------------------------------------------------------------------------


@dataclass
class Event:
    time: float
    item: str
    location: str


@dataclass
class Histories:
    """What each user has rated in order of time: everything, for training and for validation."""

    everything: dict[str, list[Event]] = field(default_factory=dict)
    train: dict[str, list[Event]] = field(default_factory=dict)
    valid: dict[str, list[Event]] = field(default_factory=dict)

    @classmethod
    def read(cls, examples: Iterable[Example], split: str | None) -> "Histories":
        """Read events of users; with `split`, all of them belong to that part."""
        histories = cls()
        for number, example in enumerate(examples):
            user, item, time = example.texts
            part = histories.valid if (split or example.split) == "valid" else histories.train
            seconds = parse_time(time) if time else None
            event = Event(number if seconds is None else seconds, item, example.location)
            for users in (part, histories.everything):
                users.setdefault(user, []).append(event)
        for part in (histories.train, histories.valid, histories.everything):
            for events in part.values():
                events.sort(key=lambda event: event.time)
        return histories

    def hold_out_last(self) -> None:
        """Hold out the last item of each user with at least two."""
        for user, events in self.train.items():
            if len(events) > 1:
                self.valid[user] = list(events)
                events.pop()


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns, titles = make_rating_reader(request, reporter, "time")
    split = "valid" if request.is_evaluation else None if request.valid else "train"
    histories = Histories.read(read(request.on_bad_row), split)
    if split == "train":
        histories.hold_out_last()
    trained = request.trained_metadata
    catalog = Catalog.of(trained) if trained else make_catalog(histories, titles)
    items = catalog.item_index
    if not trained and not any(len(events) > 1 for events in histories.train.values()):
        raise GlassError("no user has enough items to learn from: at least three are needed")
    save_histories(histories, items, folder)
    if trained:
        return Artifacts({**trained, **columns})
    count = sum(map(len, histories.train.values()))
    reporter(
        f"{count:,} items of {len(histories.train):,} users for training; validation: the last "
        f"item of {len(histories.valid):,} users, ranked among {len(items):,} items"
    )
    return Artifacts({**columns, **catalog.metadata})


def make_catalog(histories: Histories, titles: dict[str, str]) -> Catalog:
    """The items in the training part, and all that each user has rated."""
    items: dict[str, int] = {}
    for events in histories.train.values():
        for event in events:
            items.setdefault(event.item, len(items))
    known = [
        [items[event.item] for event in events if event.item in items]
        for events in histories.everything.values()
    ]
    names = [titles.get(item, "") for item in items] if titles else []
    return Catalog(list(histories.everything), list(items), known, names)


def save_histories(histories: Histories, items: dict[str, int], folder: Path) -> None:
    """Write the items of each training user, and of each validation user all but the last.

    Items that are not in the training part are left out; as the last item, they are -1.
    """
    writer = StoreWriter(folder / "train.ids", len(items))
    vocab = len(items)
    for events in histories.train.values():
        writer.add([items[event.item] for event in events])
    writer.close()
    writer = StoreWriter(folder / "valid.ids", vocab)
    targets = list[int]()
    with (folder / VALID_EXAMPLES).open("w", encoding="utf-8") as file:
        for user, events in histories.valid.items():
            known = [items[event.item] for event in events[:-1] if event.item in items]
            if not known:
                continue  # nothing to predict from
            writer.add(known)
            last = events[-1]
            targets.append(items.get(last.item, -1))
            record = {"location": last.location, "texts": (user, last.item, ""), "label": None}
            file.write(json.dumps(record) + "\n")
    writer.close()
    np.save(folder / "valid.targets.npy", np.array(targets, dtype=np.int64))
    if max(targets, default=-1) < 0:
        raise GlassError(
            "there is no user to evaluate: at least two items of a user are needed, and the last "
            "must occur in the training data"
        )


def read_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """Yield the rows of the data for `check-data`."""
    yield from make_rating_reader(request, reporter, "time")[0](on_bad_row)


# --- batches --------------------------------------------------------------------------------------


class HistoryBatches:
    """Random windows of the histories of random users; long histories are drawn more often.

    Each has a sample of all items, with which its next items are compared.
    """

    truncated = 0

    def __init__(
        self, dataset: "NextDataset", batch_size: int, context: int | None, seed: int
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.items = len(dataset.catalog.items)
        lengths = dataset.histories["train"].lengths
        self.length = (context or int(lengths.max())) + 1  # inputs, and the target of the last
        self.users = np.flatnonzero(lengths > 1)
        windows = np.ceil(lengths[self.users] / self.length)
        self.probs = windows / windows.sum()
        self.per_epoch = max(int(windows.sum()) // batch_size, 1)

    def at(self, step: int) -> Batch:
        random = np.random.default_rng((self.seed, step))
        rows = list[Ids]()
        for user in random.choice(self.users, self.batch_size, p=self.probs):
            items = self.dataset.histories["train"][user]
            start = random.integers(0, max(len(items) - self.length, 0) + 1)
            rows.append(items[start : start + self.length])
        ids, keep = pad_rows(rows)
        size = min(SAMPLED_ITEMS, self.items)
        sampled = [random.choice(self.items, size, replace=False, shuffle=False) for _ in rows]
        return {
            "ids": ids[:, :-1],
            "keep": keep[:, 1:],
            "targets": ids[:, 1:],
            "sampled": torch.from_numpy(np.stack(sampled)),
        }


class NextDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        vocab = len(self.catalog.items)
        self.histories = {split: Store(folder / f"{split}.ids", vocab) for split in SPLITS}
        self.targets = read_array(folder / "valid.targets.npy")
        is_valid = ((self.targets >= -1) & (self.targets < vocab)).all()
        if not is_valid or len(self.targets) != len(self.histories["valid"]):
            raise GlassError(f"{folder / 'valid.targets.npy'} is corrupted: expected known items")
        train = self.histories["train"]
        self.size = train.size
        self.n_targets = int((train.lengths - 1).clip(min=0).sum())
        self.eval_size = len(self.targets)

    @cached_property
    def catalog(self) -> Catalog:
        return Catalog.of(self.artifacts.metadata)

    def sizes(self) -> dict[str, int]:
        return {"items": len(self.catalog.items)}

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> HistoryBatches:
        return HistoryBatches(self, batch_size, context, seed)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        rows = choose_examples(self.eval_size, limit)
        for start in range(0, len(rows), EVAL_BATCH):
            part = rows[start : start + EVAL_BATCH]
            histories = [self.histories["valid"][i] for i in part]
            ids, keep = pad_rows([history[-(network.context or 10**9) :] for history in histories])
            seen, _ = pad_rows(histories, fill=-1)
            targets = torch.from_numpy(self.targets[part])
            index = torch.from_numpy(part)
            yield {"ids": ids, "keep": keep, "seen": seen, "targets": targets, "index": index}

    def preview_batch(self, context: int | None) -> Batch:
        return {"user": torch.arange(min(PREVIEW_USERS, len(self.catalog.users)))}

    def fit(self, network: Network, fraction: float) -> float:
        store = self.histories["train"]
        users = choose_examples(len(store), max(round(len(store) * fraction), 1))
        ids = np.concatenate([store[user] for user in users])
        network.fit(torch.from_numpy(ids))  # type: ignore[operator]
        return len(users) / len(store)


# --- losses and metrics ---------------------------------------------------------------------------


def sampled_logits(features: Tensor, vectors: Tensor, targets: Tensor, sampled: Tensor) -> Tensor:
    """Logits of the targets and of sampled items: b t d, v d, b t, b m -> b t 1+m.

    The logits of a sample are raised so that its probabilities stand for those of all items. If all
    items are in the sample, the cross-entropy is exactly that over all items.
    """
    target = (features * vectors[targets]).sum(dim=-1, keepdim=True)
    others = features @ vectors[sampled].mT + math.log(len(vectors) / sampled.shape[1])
    is_target = sampled[:, None] == targets[:, :, None]
    return torch.cat((target, others.masked_fill(is_target, -math.inf)), dim=-1)


class NextObjective:
    """Predict each next item of a history; in an evaluation, only the last."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        pass

    def count(self, batch: Batch) -> int:
        return int(batch["keep"].sum())

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        assert isinstance(network, ItemVectors)
        assert isinstance(network, Encoder)
        keep, targets = batch["keep"], batch["targets"]
        features = network.features(batch["ids"], keep)
        logits = sampled_logits(features, network.item_vectors(), targets, batch["sampled"])
        nats = logits.float().logsumexp(dim=-1) - logits[..., 0].float()
        yield nats[keep].sum()

    def scores(self, network: Network, batch: Batch) -> Scores:
        assert isinstance(network, NextItem)
        logits = network.score_next(batch["ids"], batch["keep"]).float()
        targets = batch["targets"]
        seen = [row[row >= 0] for row in batch["seen"]]
        nats = F.cross_entropy(logits, targets.clamp(min=0), reduction="none")
        columns = {
            "index": batch["index"],
            "target": targets,
            "nats": nats,
            "rank": rank_targets(logits, targets, seen),
        }
        return Scores(arrays={name: [x.cpu().numpy()] for name, x in columns.items()})

    def metrics(self, scores: Scores) -> dict[str, Any]:
        """The cross-entropy of the last items that are known, hit rate and NDCG of all of them."""
        ranks = scores.array("rank")
        is_known = scores.array("target") >= 0
        nats = scores.array("nats")[is_known].astype(np.float64)
        return {
            "loss": float(nats.mean()) if len(nats) else float("nan"),
            "hit_rate_10": float(hits(ranks).mean()),
            "ndcg_10": float(gains(ranks).mean()),
            "examples": len(ranks),
            "unseen": int((~is_known).sum()),
        }


def sample_gains(scores: Scores, artifacts: Artifacts) -> Sample:
    values = gains(scores.array("rank"))
    return Sample(scores.array("index"), np.column_stack((values, np.ones_like(values))))


NDCG = SampledMetric(sample_gains, lambda sums: sums[:, 0] / sums[:, 1])


def rank_predictions(scores: Scores, artifacts: Artifacts) -> dict[int, dict[str, Any]]:
    """The rank of the last item of each user of an evaluation, by the user's index."""
    pairs = zip(scores.array("index").tolist(), scores.array("rank").tolist(), strict=True)
    return {index: {"rank": rank} for index, rank in pairs}


# --- prediction -----------------------------------------------------------------------------------


class NextCodec(RecommendationCodec):
    """Encodes users, runs the network, and decodes the next items with their probabilities."""

    def score_items(self, network: Network, user: Tensor) -> Tensor:
        histories = [self.catalog.histories[i] for i in user.tolist()]
        if not all(histories):
            raise GlassError("the model knows none of the items of this user")
        context = network.context or 10**9
        ids, keep = pad_rows(
            [np.array(history[-context:], dtype=np.int64) for history in histories]
        )
        assert isinstance(network, NextItem)
        return network.score_next(ids.to(user.device), keep.to(user.device)).softmax(dim=-1)


RECOMMEND_NEXT = TaskSpec(
    name="recommend-next",
    command="recommend",
    models=("sasrec", "popularity"),
    model_settings={},
    train_settings={
        "batch_size": 32,
        "lr": 2e-3,
        "weight_decay": 0.0,
        "best_metric": "ndcg_10",  # still improves when the loss of rare items rises
    },
    metric=METRICS["ndcg_10"],
    unit="items",
    eval_limit=1000,
    prepare=prepare,
    examples=read_examples,
    dataset=NextDataset,
    objective=NextObjective,
    codec=NextCodec,
    baseline_model="popularity",
    baseline_name="item popularity",
    example_input="--user USER",
    reads_text=False,
    sampled_metric=NDCG,
    predictions=rank_predictions,
)
