"""A look at data before anything is trained: sizes, lengths, labels, duplicates, bad rows."""

import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.files import BadRowPolicy, save_streams
from glassformer.data.request import DataRequest
from glassformer.data.split import LeakCounter, fingerprint
from glassformer.tasks import TASKS

LARGE = 50_000_000  # bytes; more is not read a second time only to see what training would say
BARS = "▁▂▃▄▅▆▇█"


@dataclass
class RecordBadRows(BadRowPolicy):
    """Bad rows are remembered, the first of them with their places."""

    first: list[str] = field(default_factory=list)

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.first) < 10:
            self.first.append(f"{location}: {reason}")


class RecordingReporter(NullReporter):
    """Keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)


def check(name: str, request: DataRequest) -> dict[str, Any]:
    """What is in the data, and what `train` would do with it."""
    table = TASKS[name].is_table
    with tempfile.TemporaryDirectory() as scratch:
        files = save_streams(request.files, Path(scratch), table=table)
        valid = save_streams(request.valid, Path(scratch), table=table, name="valid")
        return report(name, replace(request, files=files, valid=valid))


def report(name: str, request: DataRequest) -> dict[str, Any]:
    """The same of files that can be read again and again."""
    on_bad_row, told, overlap = RecordBadRows(), RecordingReporter(), LeakCounter()
    labels, lengths, parts = Counter[str](), list[int](), Counter[str]()
    seen: dict[int, str | None] = {}
    size = again = conflicts = empty = 0
    samples: list[dict[str, Any]] = []
    for example in TASKS[name].examples(request, on_bad_row, told):
        text = ("\t" if example.group else " ").join(example.texts)
        size += len(text.encode("utf-8", "replace"))
        lengths.append(len(text.rstrip("\n")))
        parts[example.part] += 1
        if len(samples) < 2 and text.strip():
            samples.append({"text": text.rstrip("\n"), "label": example.label})
        if not text.strip():
            empty += 1
            continue
        overlap.add(example.part, example.key)
        if example.label is not None:
            labels[example.label] += 1
        mark = fingerprint(text)
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
        "bad_rows": on_bad_row.count,
        "bad_reasons": on_bad_row.reasons,
        "first_bad": on_bad_row.first,
        "read_as": told.lines,
        "model": TASKS[name].models[0],
        "samples": samples,
        "refused": refused(name, request) if size < LARGE and not on_bad_row.count else None,
    }
    if labels:
        found |= {"labels": dict(labels.most_common()), "same_text_other_label": conflicts}
    return found


def refused(name: str, request: DataRequest) -> str | None:
    """Why `train` would not learn from the data, found by letting it read them."""
    spec = TASKS[name]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            artifacts = spec.prepare(request, Path(scratch), NullReporter())
            dataset = spec.dataset(artifacts, Path(scratch))
            dataset.train_batches(1, spec.model_settings.get("context"), request.seed).at(0)
        except GlassError as error:
            return str(error)
    return None


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
