"""Check data before training: sizes, lengths, labels, duplicates, leaks, bad rows."""

import statistics
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.files import CountBadRows, save_streams
from glassformer.data.request import DataRequest
from glassformer.data.split import LeakCounter, hash_text
from glassformer.tasks import TASKS

MAX_TRIAL_BYTES = 50_000_000  # with more data, do not check whether training would fail
BARS = "▁▂▃▄▅▆▇█"


class RecordingReporter(NullReporter):
    """Records its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)


def check(name: str, request: DataRequest) -> dict[str, Any]:
    """Return statistics about the data for a task, and the error if `train` would fail.

    The keys are those of `check-data --json`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = save_streams(request.files, Path(scratch))
        valid = save_streams(request.valid, Path(scratch), name="valid")
        return check_files(name, replace(request, files=files, valid=valid))


def check_files(name: str, request: DataRequest) -> dict[str, Any]:
    """Check files that can be read more than once; returns the same as `check`."""
    on_bad_row, reporter, leaks = CountBadRows(), RecordingReporter(), LeakCounter()
    labels, lengths, split_counts = Counter[str](), list[int](), Counter[str]()
    label_by_text: dict[int, str | None] = {}
    size = duplicates = conflicts = empty = 0
    samples: list[dict[str, Any]] = []
    for example in TASKS[name].examples(request, on_bad_row, reporter):
        text = ("\t" if example.group else " ").join(example.texts)
        size += len(text.encode("utf-8", "replace"))
        lengths.append(len(text.rstrip("\n")))
        split_counts[example.split] += 1
        if len(samples) < 2 and text.strip():
            samples.append({"text": text.rstrip("\n"), "label": example.label})
        if not text.strip():
            empty += 1
            continue
        leaks.add(example.split, example.key)
        if example.label is not None:
            labels[example.label] += 1
        key = hash_text(text)
        if key in label_by_text:
            duplicates += 1
            conflicts += label_by_text[key] != example.label
        label_by_text.setdefault(key, example.label)
    result: dict[str, Any] = {
        "task": name,
        "examples": len(lengths),
        "bytes": size,
        "lengths": summarize_lengths(lengths),
        "empty": empty,
        "duplicates": duplicates,
        "split": dict(split_counts),
        "leaks": leaks.count(),
        "bad_rows": on_bad_row.count,
        "bad_reasons": on_bad_row.reasons,
        "first_bad": on_bad_row.first,
        "read_as": reporter.lines,
        "model": TASKS[name].models[0],
        "samples": samples,
        "error": None,
    }
    if size < MAX_TRIAL_BYTES and not on_bad_row.count:
        result["error"] = find_training_error(name, request)
    if labels:
        result |= {"labels": dict(labels.most_common()), "same_text_other_label": conflicts}
    return result


def find_training_error(name: str, request: DataRequest) -> str | None:
    """Return the error that `train` would raise, or None; reads all of the data."""
    spec = TASKS[name]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            artifacts = spec.prepare(request, Path(scratch), NullReporter())
            dataset = spec.dataset(artifacts, Path(scratch))
            dataset.train_batches(1, spec.model_settings.get("context"), request.seed).at(0)
        except GlassError as error:
            return str(error)
    return None


def summarize_lengths(lengths: list[int], bins: int = 24) -> dict[str, Any]:
    """Return the minimum, median, 99th percentile and maximum, and a text histogram."""
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
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p99": top - 1,
        "max": ordered[-1],
        "histogram": bars,
    }
