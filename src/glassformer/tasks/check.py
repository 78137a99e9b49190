"""A look at data before anything is trained: sizes, lengths, labels, duplicates, bad rows."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from glassformer.data import corpus
from glassformer.data.files import Bad
from glassformer.data.sample import documentation
from glassformer.data.split import held_out
from glassformer.tasks import TASKS, classify, translate
from glassformer.tasks.task import Given

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


@dataclass(frozen=True)
class Example:
    text: str
    label: str | None
    key: str  # what the split goes by


def check(name: str, given: Given) -> dict[str, Any]:
    """What is in the data, and what `train` would do with it."""
    bad, told = Noted(), list[str]()
    labels, lengths, parts = Counter[str](), list[int](), Counter[str]()
    seen: dict[bytes, str | None] = {}
    size = again = conflicts = 0
    for example in examples(name, given, bad, told):
        size += len(example.text.encode("utf-8", "replace"))
        lengths.append(len(example.text))
        parts["valid" if held_out(example.key, given.seed, given.valid) else "train"] += 1
        if example.label is not None:
            labels[example.label] += 1
        mark = hashlib.blake2b(example.text.encode("utf-8", "replace"), digest_size=12).digest()
        if mark in seen:
            again += 1
            conflicts += seen[mark] != example.label
        seen.setdefault(mark, example.label)
    report: dict[str, Any] = {
        "task": name,
        "examples": len(lengths),
        "bytes": size,
        "lengths": describe(lengths),
        "duplicates": again,
        "bad_rows": bad.count,
        "bad_reasons": bad.reasons,
        "first_bad": bad.first,
        "read_as": told,
        "model": TASKS[name].models[0],
    }
    if name in ("classify", "translate"):  # a text is split where it is, not by its lines
        report["split"] = dict(parts)
    if labels:
        report |= {"labels": dict(labels.most_common()), "same_text_other_label": conflicts}
    return report


def examples(name: str, given: Given, bad: Noted, told: list[str]) -> Iterator[Example]:
    """The texts of a task, one at a time; of a language model's text, its lines."""
    if name == "classify":
        read, _ = classify.reader(given, told.append)
        for _, texts, label, key in read(bad):
            yield Example(" ".join(texts), label, key)
    elif name == "translate":
        for _, source, target in translate.reader(given, told.append)(bad):
            yield Example(f"{source}\t{target}", None, source)
    else:
        files = given.files
        for piece in corpus.texts(files, bad, *given.text[:1]) if files else documentation():
            for line in piece.splitlines():
                if line.strip():
                    yield Example(line, None, line)


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
