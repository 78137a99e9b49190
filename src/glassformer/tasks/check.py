"""Check data before training: sizes, lengths, labels, duplicates, leaks, bad rows."""

import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.files import CountBadRows, IgnoreBadRows, save_streams
from glassformer.data.labeled import describe_unvalidated_labels, split_labels
from glassformer.data.near_duplicates import NearDuplicateCounter
from glassformer.data.request import DataRequest
from glassformer.data.split import LeakCounter, hash_text
from glassformer.tasks import find_task
from glassformer.tasks.table_rows import ExampleSummary, describe_small_split, hold_out_some
from glassformer.tasks.task import TaskSpec
from glassformer.text.bilingual import source_tokenizer

MAX_SAMPLES = 3  # examples that are shown
MAX_SHOWN_TOKENS = 24  # of each text
MAX_COMPARED_TEXTS = 50_000  # to find near-duplicates
MIN_LABEL_EXAMPLES = 20
MAX_SHARE = 0.9  # of the most frequent label
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
    on_bad_row = CountBadRows()
    reporter = RecordingReporter()
    leaks = LeakCounter()
    spec = find_task(name, request.files)
    near_duplicates = NearDuplicateCounter()
    labels = Counter[str]()
    lengths = list[int]()
    summary = ExampleSummary()
    validated = set[str]()  # labels of validation examples
    label_by_text: dict[int, str | None] = {}
    size = duplicates = conflicts = empty = 0
    samples: list[dict[str, Any]] = []
    for example in spec.examples(request, on_bad_row, reporter):
        text = ("\t" if example.group else " ").join(example.texts)
        size += len(text.encode("utf-8", "replace"))
        lengths.append(len(text.rstrip("\n")))
        summary.add_to_split(example)
        if len(samples) < MAX_SAMPLES and text.strip():
            samples.append({"texts": example.texts, "label": example.label})
        if not text.strip():
            empty += 1
            continue
        leaks.add(example.split, example.key)
        if spec.is_table and spec.reads_text and len(lengths) <= MAX_COMPARED_TEXTS:
            near_duplicates.add(example.split, example.texts[0])
        if example.label is not None:
            names = split_labels(example.label) if request.multi_label else [example.label]
            labels.update(names)
            if example.split == "valid":
                validated.update(names)
        key = hash_text(text)
        if key in label_by_text:
            duplicates += 1
            conflicts += label_by_text[key] != example.label
        label_by_text.setdefault(key, example.label)
    if spec.is_table and (new_request := hold_out_some(request, summary)) is not request:
        return check_files(name, new_request)  # with the split that `train` would use
    result: dict[str, Any] = {
        "task": spec.name,
        "examples": len(lengths),
        "bytes": size,
        "lengths": summarize_lengths(lengths) if spec.reads_text else {},
        "empty": empty,
        "duplicates": duplicates,
        "split": dict(summary.splits),
        "leaks": leaks.count(),
        "near_duplicates": near_duplicates.find()[:MAX_SAMPLES],
        "bad_rows": on_bad_row.count,
        "bad_reasons": on_bad_row.reasons,
        "first_bad": on_bad_row.first,
        "read_as": reporter.lines,
        "model": spec.models[0],
        "samples": samples,
        "error": None,
    }
    if labels:
        result |= {
            "labels": dict(labels.most_common()),
            "labels_without_validation": sorted(labels.keys() - validated),
            "same_text_other_label": conflicts,
        }
    if size < MAX_TRIAL_BYTES:
        result |= try_training(spec, replace(request, on_bad_row=IgnoreBadRows()), samples)
    result["warnings"] = list(find_warnings(result))
    small = describe_small_split(summary.splits["train"], summary.splits["valid"])
    if spec.is_table and small:
        result["warnings"].append(small)
    return result


def try_training(
    spec: TaskSpec, request: DataRequest, samples: list[dict[str, Any]]
) -> dict[str, Any]:
    """Prepare the data as `train` would, and add the tokens that the model reads to the samples.

    Returns the error that `train` would raise, or None.
    """
    with tempfile.TemporaryDirectory() as scratch:
        try:
            artifacts = spec.prepare(request, Path(scratch), NullReporter())
            dataset = spec.dataset(artifacts, Path(scratch))
            dataset.train_batches(1, spec.model_settings.get("context"), request.seed).at(0)
        except GlassError as error:
            return {"error": str(error)}
        tokenizer = artifacts.tokenizer
    if tokenizer is not None:
        for sample in samples:
            first, *rest = sample["texts"]
            pairs = [(source_tokenizer(tokenizer), first), *((tokenizer, text) for text in rest)]
            sample["tokens"] = [
                [language.token(i) for i in language.encode(text)[:MAX_SHOWN_TOKENS]]
                for language, text in pairs
            ]
    return {"error": None}


def find_warnings(report: dict[str, Any]) -> Iterator[str]:
    """Yield what a user may regret: few or unbalanced examples, labels that may be the same."""
    labels = report.get("labels", {})
    if labels:
        examples = report["examples"]
        rarest = min(labels, key=labels.__getitem__)
        most = max(labels.values())
        if labels[rarest] < MIN_LABEL_EXAMPLES:
            yield (
                f"few examples: the label {rarest!r} has only {labels[rarest]}; a model needs "
                f"about {MIN_LABEL_EXAMPLES} or more of each label"
            )
        if unvalidated := report["labels_without_validation"]:
            yield describe_unvalidated_labels(unvalidated, len(labels))
        if len(labels) > 1 and most > MAX_SHARE * examples:
            yield (
                f"unbalanced: {most / examples:.0%} of the texts have the same label, so "
                "accuracy is not informative; compare macro F1, and try --class-weights"
            )
        by_key: dict[str, str] = {}
        for label in labels:
            key = "".join(label.casefold().split())
            if key in by_key:
                yield (f"the labels {by_key[key]!r} and {label!r} differ only in case or spaces")
            by_key.setdefault(key, label)
    if report["leaks"]:
        yield (
            "data leak: examples for validation are also in the training data; the score will be "
            "optimistic: remove them from one of the two"
        )
    elif report["near_duplicates"]:
        yield (
            "some validation texts are almost equal to training texts; the score will be "
            "optimistic: --group keeps rows that belong together on one side of the split"
        )


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
