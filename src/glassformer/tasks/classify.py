"""Classify: say which label a text, or a pair of texts, has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data.batches import Buckets, group, padded, some_of
from glassformer.data.corpus import LEARN, learn_tokenizer
from glassformer.data.files import Bad, Quiet
from glassformer.data.labelled import check_labels, first_rows, guess_columns, table_rows
from glassformer.data.sample import passages
from glassformer.data.split import held_out
from glassformer.data.store import Store, Writer
from glassformer.errors import GlassError
from glassformer.tasks.task import Batch, Given
from glassformer.text.tokenizer import Tokenizer

SEPARATOR = "<sep>"  # between the two texts of a pair

Example = tuple[str, tuple[str, ...], str, str]  # place, texts, label, what the split goes by


class Classify:
    name: ClassVar[str] = "classify"
    models: ClassVar[tuple[str, ...]] = ("classifier",)
    settings: ClassVar[dict[str, Any]] = {
        "context": 256,
        "dim": 128,
        "depth": 2,
        "heads": 4,
        "dropout": 0.1,
    }
    training: ClassVar[dict[str, Any]] = {"batch": 8, "rate": 5e-4, "decay": 0.05}
    figure: ClassVar[str] = "accuracy"
    peek: ClassVar[int] = 1_000
    whole: ClassVar[int | None] = None
    table: ClassVar[bool] = True
    unit: ClassVar[str] = "texts"
    higher: ClassVar[bool] = True

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        self.tokenizer, self.facts, self.labels = tokenizer, facts, list(facts["labels"])
        self.parts = {name: Store(folder / f"{name}.ids") for name in ("train", "valid")}
        self.answers = {name: np.load(folder / f"{name}.labels.npy") for name in self.parts}
        self.context = 10**9

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Callable[[str], None]) -> Self:
        examples, facts = reader(given, tell)
        sample: list[str] = []
        counts, size = Counter[str](), 0
        for _, texts, label, _ in examples(given.bad):
            counts[label] += 1
            size += sum(map(len, texts))
            if size < LEARN:
                sample.extend(texts)
        labels = list(given.labels) or check_labels(counts)
        unknown = [label for label in counts if label not in labels]
        if unknown:
            raise GlassError(f"the model does not know the label {unknown[0]!r}; it knows {labels}")
        tokenizer = given.ready or learn_tokenizer(
            given.tokenizer or "words", sample, vocab=given.vocab or 20_000, specials=(SEPARATOR,)
        )

        parts = {
            name: Writer(folder / f"{name}.ids", tokenizer.vocab) for name in ("train", "valid")
        }
        answers: dict[str, list[int]] = {"train": [], "valid": []}
        for _, texts, label, key in examples(Quiet()):
            part = "valid" if held_out(key, given.seed, given.valid) else "train"
            parts[part].add(encode_pair(tokenizer, texts))
            answers[part].append(labels.index(label))
        for name, writer in parts.items():
            writer.close()
            np.save(folder / f"{name}.labels.npy", np.array(answers[name], dtype=np.int64))
            if not answers[name] and given.ready is None:
                raise GlassError(
                    f"{sum(counts.values())} texts are too few: none is left to {name}"
                )
        common = ", ".join(f"{label} {n:,}" for label, n in counts.most_common(5))
        tell(f"{len(labels)} labels ({common}{' ...' if len(labels) > 5 else ''})")
        sizes = {name: f"{len(found):,}" for name, found in answers.items()}
        tell(f"{sizes['train']} texts to learn from, {sizes['valid']} to validate on")
        return cls(tokenizer, {**facts, "labels": labels}, folder)

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab, "classes": len(self.labels)}

    def start(self, batch: int, context: int, seed: int) -> None:
        self.context = context
        self.cut = int(sum((part.lengths > context).sum() for part in self.parts.values()))
        lengths = np.minimum(self.parts["train"].lengths, context).clip(min=1)
        self.buckets = Buckets(lengths, batch * 1024, seed)

    def batch(self, step: int) -> Batch:
        return self.gather("train", self.buckets.at(step))

    def gather(self, part: str, rows: np.ndarray[Any, Any]) -> Batch:
        unknown = np.zeros(1, dtype=np.int64)  # an empty text is one unknown token
        texts = [self.parts[part][i][: self.context] for i in rows]
        ids, keep = padded([text if len(text) else unknown for text in texts])
        return {"ids": ids, "keep": keep, "answers": torch.from_numpy(self.answers[part][rows])}

    def epoch(self) -> int:
        return len(self.buckets)

    def count(self, batch: Batch) -> int:
        return len(batch["answers"])

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        logits = network(batch["ids"], keep=batch["keep"]).float()
        return F.cross_entropy(logits, batch["answers"], reduction="sum", label_smoothing=smoothing)

    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, float]:
        device, part = next(network.parameters()).device, self.parts["valid"]
        chosen = some_of(len(part), most)
        lengths = np.minimum(part.lengths[chosen], self.context).clip(min=1)
        total, said = 0.0, np.zeros(len(chosen), dtype=np.int64)
        with torch.inference_mode():
            for rows in group(np.argsort(lengths, kind="stable"), lengths, 16_384):
                batch = self.gather("valid", chosen[rows])
                logits = network(batch["ids"].to(device), keep=batch["keep"].to(device))
                logits = logits.float().cpu()
                total += float(F.cross_entropy(logits, batch["answers"], reduction="sum"))
                said[rows] = logits.argmax(dim=-1).numpy()
        true = self.answers["valid"][chosen]
        return {
            "loss": total / len(chosen),
            "accuracy": float((said == true).mean()),
            "f1": macro_f1(true, said, len(self.labels)),
            "examples": len(chosen),
        }

    def baseline(self) -> dict[str, float]:
        """Naive Bayes: how often each token occurs under each label, and nothing else."""
        shape = (len(self.labels), self.tokenizer.vocab)
        counts = np.ones(shape)
        for i, label in enumerate(self.answers["train"]):
            np.add.at(counts[label], self.parts["train"][i], 1)
        log = np.log(counts / counts.sum(axis=1, keepdims=True))
        prior = np.log(np.bincount(self.answers["train"], minlength=shape[0]) + 1)
        valid = self.parts["valid"]
        said = [int((prior + log[:, valid[i]].sum(axis=1)).argmax()) for i in range(len(valid))]
        return {"accuracy": float((np.array(said) == self.answers["valid"]).mean())}

    def sample(self, network: nn.Module) -> str:
        batch = self.gather("valid", np.arange(min(3, len(self.parts["valid"]))))
        device = next(network.parameters()).device
        with torch.inference_mode():
            chances = network(batch["ids"].to(device), keep=batch["keep"].to(device)).softmax(
                dim=-1
            )
        rows = []
        for i, (chance, answer) in enumerate(zip(chances.cpu(), batch["answers"], strict=True)):
            best = int(chance.argmax())
            text = self.tokenizer.decode(self.parts["valid"][i][:12].tolist())
            said = f"{self.labels[best]} ({chance[best]:.0%})"
            rows.append(f"{said:<24} is {self.labels[int(answer)]:<16} {text} ...")
        return "\n".join(rows)


def encode_pair(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[int]:
    """The ids of a text, or of two with a separator between them."""
    first, *second = (tokenizer.encode(text) for text in texts)
    return first + [i for ids in second for i in (tokenizer.specials[SEPARATOR], *ids)]


def reader(
    given: Given, tell: Callable[[str], None]
) -> tuple[Callable[[Bad], Iterator[Example]], dict[str, Any]]:
    """The examples, readable again and again, and what is to be remembered of the columns."""
    if not given.files:
        tell("no data given: which package of Python's standard library do some lines come from?")
        return lambda _: (("", (text,), label, file) for text, label, file in passages()), {}
    columns = guess_columns(first_rows(given.files, given.separator), given.text, given.label)
    tell(f"text: {' and '.join(columns.text)}; label: {columns.label}")

    def examples(bad: Bad) -> Iterator[Example]:
        for row in table_rows(given.files, bad, given.separator):
            needed = (*columns.text, columns.label, *([given.group] if given.group else []))
            missing = [name for name in needed if name not in row.values]
            if missing:
                bad(row.place, f"there is no {missing[0]!r}", str(row.values))
            elif not row.values[columns.label].strip():
                bad(row.place, "the label is empty", str(row.values))
            else:
                texts = tuple(row.values[name] for name in columns.text)
                key = row.values[given.group] if given.group else "\0".join(texts)
                yield row.place, texts, row.values[columns.label].strip(), key

    return examples, {"text": list(columns.text), "label": columns.label}


def macro_f1(true: np.ndarray[Any, Any], said: np.ndarray[Any, Any], classes: int) -> float:
    """The mean over labels of 2 right / (said + true); a label that never occurs counts not."""
    scores = []
    for label in range(classes):
        right = int(((true == label) & (said == label)).sum())
        both = int((true == label).sum() + (said == label).sum())
        if both:
            scores.append(2 * right / both)
    return math.fsum(scores) / max(len(scores), 1)
