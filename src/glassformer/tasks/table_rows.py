"""What tasks on rows of a table share: texts that are read twice and written to stores."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data.corpus import MAX_TOKENIZER_CHARACTERS
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy
from glassformer.data.split import LeakCounter
from glassformer.data.store import StoreWriter

PARTS = ("train", "valid")


Read = Callable[[BadRowPolicy], Iterable[Example]]  # readable again and again


@dataclass
class Survey:
    """What a first pass finds: how many examples there are, and texts to train a tokenizer on."""

    count: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    sample: list[str] = field(default_factory=list)


def survey(examples: Iterable[Example]) -> Survey:
    found, size = Survey(), 0
    for example in examples:
        found.count += 1
        if example.label is not None:
            found.labels[example.label] += 1
        size += sum(map(len, example.texts))
        if size < MAX_TOKENIZER_CHARACTERS:
            found.sample.extend(example.texts)
    return found


@dataclass
class Written:
    """What a second pass wrote: how many examples of each part, with which labels."""

    counts: Counter[str] = field(default_factory=Counter)
    labels: dict[str, list[str | None]] = field(default_factory=lambda: {p: [] for p in PARTS})
    overlap: int = 0  # validation texts that stand in the training part too


def write_stores(
    examples: Iterable[Example],
    encode: Callable[[Example], list[list[int]] | None],
    stores: dict[str, list[StoreWriter]],
    bar: ProgressBar,
) -> Written:
    """Write the ids of each example to the stores of its part; None leaves an example out."""
    written, overlap = Written(), LeakCounter()
    for example in examples:
        rows = encode(example)
        if rows is None:
            continue
        for store, ids in zip(stores[example.part], rows, strict=True):
            store.add(ids)
        written.counts[example.part] += 1
        written.labels[example.part].append(example.label)
        overlap.add(example.part, example.key)
        bar.add(1)
    for writers in stores.values():
        for writer in writers:
            writer.close()
    written.overlap = overlap.count()
    return written


def report_sizes(written: Written, what: str, reporter: Reporter, leaked: str) -> None:
    train, valid = (f"{written.counts[part]:,}" for part in PARTS)
    reporter(f"{train} {what} to learn from, {valid} to validate on")
    if written.overlap:
        reporter(
            f"{written.overlap:,} of the validation {leaked} are among those to learn from: "
            "too easy"
        )


def writers(folder: Path, suffixes: tuple[str, ...], vocab: int) -> dict[str, list[StoreWriter]]:
    """A writer for each part and suffix: train.source.ids, ..."""
    return {
        part: [StoreWriter(folder / f"{part}{suffix}.ids", vocab) for suffix in suffixes]
        for part in PARTS
    }
