"""A look at data before anything is trained: sizes, lengths, labels, duplicates, bad rows."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.data.files import Bad, Quiet, kept_input
from glassformer.data.split import Overlap, fingerprint
from glassformer.errors import GlassError
from glassformer.live import Silent
from glassformer.tasks import TASKS, classify, running_text, translate
from glassformer.tasks.task import Given

LARGE = 50_000_000  # bytes; more is not read a second time only to see what training would say
BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Noted(Bad):
    """Bad rows are remembered, the first of them with their places."""

    first: list[str] = field(default_factory=list)

    def __call__(self, place: str, reason: str, content: str = "") -> None:
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.first) < 10:
            self.first.append(f"{place}: {reason}")


class Told(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)


@dataclass(frozen=True)
class Example:
    text: str
    label: str | None
    part: str  # train or valid
    key: str  # what must not stand in both parts


def check(name: str, given: Given) -> dict[str, Any]:
    """What is in the data, and what `train` would do with it."""
    table = TASKS[name].table
    with tempfile.TemporaryDirectory() as scratch:
        files = kept_input(given.files, Path(scratch), table=table)
        valid = kept_input(given.valid, Path(scratch), table=table, name="valid")
        return report(name, replace(given, files=files, valid=valid))


def report(name: str, given: Given) -> dict[str, Any]:
    """The same of files that can be read again and again."""
    bad, told, overlap = Noted(), Told(), Overlap()
    labels, lengths, parts = Counter[str](), list[int](), Counter[str]()
    seen: dict[int, str | None] = {}
    size = again = conflicts = empty = 0
    samples: list[Example] = []
    for example in examples(name, given, bad, told):
        size += len(example.text.encode("utf-8", "replace"))
        lengths.append(len(example.text.rstrip("\n")))
        parts[example.part] += 1
        if len(samples) < 2 and example.text.strip():
            samples.append(example)
        if not example.text.strip():
            empty += 1
            continue
        overlap.add(example.part, example.key)
        if example.label is not None:
            labels[example.label] += 1
        mark = fingerprint(example.text)
        if mark in seen:
            again += 1
            conflicts += seen[mark] != example.label
        seen.setdefault(mark, example.label)
    found: dict[str, Any] = {
        "task": name,
        "examples": len(lengths),
        "bytes": size,
        "lengths": describe(lengths),
        "empty": empty,
        "duplicates": again,
        "split": dict(parts),
        "leaks": overlap.count(),
        "bad_rows": bad.count,
        "bad_reasons": bad.reasons,
        "first_bad": bad.first,
        "read_as": told.lines,
        "model": TASKS[name].models[0],
        "samples": [{"text": s.text.rstrip("\n"), "label": s.label} for s in samples],
        "refused": refused(name, given) if size < LARGE and not bad.count else None,
    }
    if labels:
        found |= {"labels": dict(labels.most_common()), "same_text_other_label": conflicts}
    return found


def refused(name: str, given: Given) -> str | None:
    """Why `train` would not learn from the data, found by letting it read them."""
    kind = TASKS[name]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            task = kind.prepare(given, Path(scratch), Silent())
            task.start(1, kind.settings.get("context", 0), given.seed)
            task.batch(0)
        except GlassError as error:
            return str(error)
    return None


def examples(name: str, given: Given, bad: Noted, told: Told) -> Iterator[Example]:
    """The texts of a task, one at a time; of a language model's text, its lines."""
    if name == "classify":
        labelled, _ = classify.reader(given, told)
        for _, texts, label, part in labelled(bad):
            yield Example(" ".join(texts), label, part, "\0".join(texts))
    elif name == "translate":
        for _, source, target, part in translate.reader(given, told)(bad):
            yield Example(f"{source}\t{target}", None, part, source)
    else:
        content = running_text.reader(given, told)
        total = sum(len(piece.encode("utf-8", "replace")) for piece in content(given.files, bad))
        read = 0
        for files, fixed in given.sides():
            for piece in content(files, bad if fixed == "valid" else Quiet()):
                for line in piece.splitlines(keepends=True):
                    side = "train" if read < total * (1 - given.share) else "valid"
                    read += len(line.encode("utf-8", "replace"))
                    yield Example(line, None, fixed or side, line)


def describe(lengths: list[int], bins: int = 24) -> dict[str, Any]:
    """Smallest, middle and largest length in characters, and how they are spread."""
    if not lengths:
        return {}
    ordered = sorted(lengths)
    top = ordered[int(len(ordered) * 0.99)] + 1
    counts = Counter(min(length * bins // top, bins - 1) for length in lengths)
    tallest = max(counts.values())
    bars = "".join(
        BARS[counts[i] * (len(BARS) - 1) // tallest] if counts[i] else " " for i in range(bins)
    )
    return {
        "least": ordered[0],
        "middle": statistics.median(ordered),
        "of 99 %": top - 1,
        "most": ordered[-1],
        "spread": bars,
    }
