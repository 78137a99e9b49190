"""Shared by the tasks on tables: rows are read twice, and their ids are written to stores."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data.corpus import MAX_TOKENIZER_CHARACTERS
from glassformer.data.examples import Example
from glassformer.data.labeled import split_labels
from glassformer.data.request import DataRequest
from glassformer.data.split import LeakCounter, held_out_fraction
from glassformer.data.store import StoreWriter

SPLITS = ("train", "valid")
MAX_KEYS = 1000  # data with more never lacks validation examples by chance
MIN_TRAIN, MIN_VALID = 10, 2  # examples; with fewer, there is a warning
VALID_EXAMPLES = "valid.examples.jsonl"  # in the cache of a run


@dataclass
class ExampleSummary:
    """The result of a first pass: counts, and texts to train a tokenizer on."""

    count: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    sample: list[str] = field(default_factory=list)
    splits: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)  # of the first examples; see `Example.key`

    def add_to_split(self, example: Example) -> None:
        """Count an example in its split, and remember its key."""
        self.count += 1
        self.splits[example.split] += 1
        if len(self.keys) < MAX_KEYS:
            self.keys.add(example.key)


def hold_out_some(request: DataRequest, summary: ExampleSummary) -> DataRequest:
    """Return a request that holds out at least one example of small data for validation.

    By chance, the split by hash may hold out none.
    """
    if request.valid or len(set(summary.splits)) > 1 or len(summary.keys) < 2:
        return request
    count = max(round(request.valid_fraction * len(summary.keys)), 1)
    fraction = held_out_fraction(summary.keys, request.seed, min(count, len(summary.keys) - 1))
    return replace(request, valid_fraction=fraction)


def summarize_examples(examples: Iterable[Example], *, multi_label: bool = False) -> ExampleSummary:
    summary = ExampleSummary()
    characters_left = MAX_TOKENIZER_CHARACTERS
    for example in examples:
        summary.add_to_split(example)
        if example.label is not None:
            summary.labels.update(split_labels(example.label) if multi_label else [example.label])
        for text in example.texts:
            if characters_left > 0:
                summary.sample.append(text[:characters_left])
                characters_left -= len(text)
    return summary


@dataclass
class WriteSummary:
    """The result of a second pass: the number of examples in each split, and their labels."""

    counts: Counter[str] = field(default_factory=Counter)
    labels: dict[str, list[str | None]] = field(default_factory=lambda: {s: [] for s in SPLITS})
    leaks: int = 0  # validation texts that are also in the training split
    left_out: int = 0  # examples that could not be encoded


def write_stores(
    examples: Iterable[Example],
    encode: Callable[[Example], list[list[int]] | None],
    stores: dict[str, list[StoreWriter]],
    folder: Path,
    bar: ProgressBar,
) -> WriteSummary:
    """Write the ids of each example to the stores of its split, one row per store.

    Examples for which `encode` returns None are left out. The validation examples are also written
    to a JSONL file in the folder as they were read, for reports.
    """
    summary, leaks = WriteSummary(), LeakCounter()
    with (folder / VALID_EXAMPLES).open("w", encoding="utf-8") as valid_examples:
        for example in examples:
            rows = encode(example)
            if rows is None:
                summary.left_out += 1
                continue
            if example.split == "valid":
                record = {"location": example.location, "texts": example.texts}
                valid_examples.write(json.dumps({**record, "label": example.label}) + "\n")
            for store, ids in zip(stores[example.split], rows, strict=True):
                store.add(ids)
            summary.counts[example.split] += 1
            summary.labels[example.split].append(example.label)
            leaks.add(example.split, example.key)
            bar.add(1)
    for writers in stores.values():
        for writer in writers:
            writer.close()
    summary.leaks = leaks.count()
    return summary


def report_sizes(
    summary: WriteSummary, unit: str, reporter: Reporter, leak_unit: str, remark: str = ""
) -> None:
    """Report the sizes of both splits; `unit` is singular, `remark` follows it."""
    train, valid = (summary.counts[split] for split in SPLITS)
    noun = f"{unit}{'' if train == 1 else 's'}{remark}"
    reporter(f"{train:,} {noun} for training, {valid:,} for validation")
    if warning := describe_small_split(train, valid):
        reporter(warning)
    if summary.leaks:
        verb = "appears" if summary.leaks == 1 else "appear"
        reporter(
            f"data leak: {summary.leaks:,} of the validation {leak_unit} also {verb} in the "
            "training data; the score will be optimistic"
        )


def describe_small_split(train: int, valid: int) -> str | None:
    """A warning about the numbers of examples in the splits, if they are too small to be useful."""
    if train >= MIN_TRAIN and valid >= MIN_VALID:
        return None
    return (
        f"too few examples for a reliable result: {train:,} for training, {valid:,} for "
        "validation; use more data"
    )


def read_valid_examples(folder: Path) -> list[dict[str, Any]]:
    """The validation examples that `write_stores` wrote: location, texts and label."""
    with (folder / VALID_EXAMPLES).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def open_writers(folder: Path, vocabs: Mapping[str, int]) -> dict[str, list[StoreWriter]]:
    """Return a writer for each split and suffix: train.source.ids, ...

    `vocabs` are the numbers of ids by suffix.
    """
    return {
        split: [StoreWriter(folder / f"{split}{suffix}.ids", vocabs[suffix]) for suffix in vocabs]
        for split in SPLITS
    }
