"""Classify: say which label a text, or a pair of texts, has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.data.batches import Buckets, group, in_a_row, padded, some_of
from glassformer.data.corpus import LEARN, learn_tokenizer, ready_tokenizer
from glassformer.data.files import Bad, Quiet
from glassformer.data.labelled import check_labels, first_rows, guess_columns, table_rows
from glassformer.data.sample import passages
from glassformer.data.split import Overlap
from glassformer.data.store import Store, Writer, read_array
from glassformer.errors import GlassError
from glassformer.live import Bar, Live
from glassformer.tasks.task import Batch, Given
from glassformer.text.tokenizer import Tokenizer

SEPARATOR = "<sep>"  # between the two texts of a pair
FIRST, LAST = "[CLS]", "[SEP]"  # BERT's marks: before a text, and after each

ANY = 10**9  # tokens: the context of a model that can read any number

Example = tuple[str, tuple[str, ...], str, str]  # place, texts, label, part


class Classify:
    name: ClassVar[str] = "classify"
    models: ClassVar[tuple[str, ...]] = (
        *("classifier", "bert", "gpt2_classifier"),
        *("recurrent_classifier", "convolutional_classifier", "bag"),
    )
    built_on: ClassVar[dict[str, str]] = {"gpt2": "gpt2_classifier"}
    settings: ClassVar[dict[str, Any]] = {
        "context": 512,
        "dim": 64,
        "depth": 1,
        "heads": 2,
        "dropout": 0.3,
        "masked": False,
        "pooled": True,
    }
    training: ClassVar[dict[str, Any]] = {"batch": 8, "rate": 1.5e-3, "decay": 0.05}
    figure: ClassVar[str] = "accuracy"
    peek: ClassVar[int] = 1_000
    whole: ClassVar[int | None] = None
    table: ClassVar[bool] = True
    unit: ClassVar[str] = "texts"
    counted: ClassVar[str] = "bag"
    simple: ClassVar[str] = "weighing phrases (NB-SVM)"
    verdict: ClassVar[str] = "accuracy"

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        self.tokenizer, self.facts, self.labels = tokenizer, facts, list(facts["labels"])
        self.parts = {
            name: Store(folder / f"{name}.ids", tokenizer.vocab) for name in ("train", "valid")
        }
        self.answers = {name: self.read_answers(folder, name) for name in self.parts}
        self.confusion = np.zeros((len(self.labels),) * 2, dtype=np.int64)  # true, said

    def read_answers(self, folder: Path, name: str) -> NDArray[np.int64]:
        """The numbers of the labels of one part."""
        file = folder / f"{name}.labels.npy"
        answers = read_array(file)
        known = (answers >= 0) & (answers < len(self.labels))
        if len(answers) != len(self.parts[name]) or not known.all():
            raise GlassError(f"{file} is damaged: it does not hold a label for each text")
        return answers

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
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
        tokenizer = make_tokenizer(given, sample, tell)

        parts = {
            name: Writer(folder / f"{name}.ids", tokenizer.vocab) for name in ("train", "valid")
        }
        answers: dict[str, list[int]] = {"train": [], "valid": []}
        overlap, bar = Overlap(), Bar(tell, "encoding", sum(counts.values()))
        for _, texts, label, part in examples(Quiet()):
            parts[part].add(encode_pair(tokenizer, texts))
            answers[part].append(labels.index(label))
            overlap.add(part, "\0".join(texts))
            bar.add(1)
        for name, writer in parts.items():
            writer.close()
            np.save(folder / f"{name}.labels.npy", np.array(answers[name], dtype=np.int64))
            if not answers[name] and given.share < 1:
                raise GlassError(
                    f"{sum(counts.values())} texts are too few: none is left to {name}"
                )
        common = ", ".join(f"{label} {n:,}" for label, n in counts.most_common(5))
        tell(f"{len(labels)} labels ({common}{' ...' if len(labels) > 5 else ''})")
        sizes = {name: f"{len(found):,}" for name, found in answers.items()}
        tell(f"{sizes['train']} texts to learn from, {sizes['valid']} to validate on")
        if both := overlap.count():
            tell(f"{both:,} of the validation texts are among those to learn from: too easy")
        return cls(tokenizer, {**facts, "labels": labels}, folder)

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab, "classes": len(self.labels)}

    def start(self, batch: int, context: int, seed: int) -> None:
        self.context = context = context or ANY
        self.cut = int((self.parts["train"].lengths > context).sum())
        lengths = np.minimum(self.parts["train"].lengths, context).clip(min=1)
        self.buckets = Buckets(lengths, batch * 1024, seed)

    def batch(self, step: int) -> Batch:
        return self.gather("train", self.buckets.at(step), self.context)

    def gather(self, part: str, rows: np.ndarray[Any, Any], context: int) -> Batch:
        unknown = np.zeros(1, dtype=np.int64)  # an empty text is one unknown token
        mark = separator(self.tokenizer)
        texts = [shortened(self.parts[part][i], context, mark) for i in rows]
        ids, keep = padded([text if len(text) else unknown for text in texts])
        return {"ids": ids, "keep": keep, "answers": torch.from_numpy(self.answers[part][rows])}

    def epoch(self) -> int:
        return len(self.buckets)

    def count(self, batch: Batch) -> int:
        return len(batch["answers"])

    def scores(self, network: nn.Module, ids: Tensor, keep: Tensor) -> Tensor:
        return scores(network, self.tokenizer, ids, keep)

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        logits = self.scores(network, batch["ids"], batch["keep"])
        return F.cross_entropy(logits, batch["answers"], reduction="sum", label_smoothing=smoothing)

    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, float]:
        device, part = next(network.parameters()).device, self.parts["valid"]
        chosen = some_of(len(part), most)
        context = context_of(network)
        lengths = np.minimum(part.lengths[chosen], context).clip(min=1)
        total, said = 0.0, np.zeros(len(chosen), dtype=np.int64)
        with torch.inference_mode():
            for rows in group(np.argsort(lengths, kind="stable"), lengths, 16_384):
                batch = self.gather("valid", chosen[rows], context)
                logits = self.scores(network, batch["ids"].to(device), batch["keep"].to(device))
                logits = logits.cpu()
                total += float(F.cross_entropy(logits, batch["answers"], reduction="sum"))
                said[rows] = logits.argmax(dim=-1).numpy()
        true, size = self.answers["valid"][chosen], len(self.labels)
        self.confusion = np.bincount(true * size + said, minlength=size**2).reshape(size, size)
        return {
            "loss": total / len(chosen),
            "accuracy": float((said == true).mean()),
            "f1": macro_f1(self.confusion),
            "examples": len(chosen),
        }

    @property
    def size(self) -> int:
        return self.parts["train"].size

    @property
    def predictions(self) -> int:
        return len(self.parts["train"])

    def teach(self, network: Any, share: float) -> float:
        texts, answers = self.parts["train"], self.answers["train"]
        rows = some_of(len(texts), max(round(len(texts) * share), 1))
        network.learn(in_a_row(texts, rows), torch.from_numpy(answers[rows]))
        return len(rows) / len(texts)

    def sample(self, network: nn.Module) -> str:
        rows = np.arange(min(3, len(self.parts["valid"])))
        batch = self.gather("valid", rows, context_of(network))
        device = next(network.parameters()).device
        with torch.inference_mode():
            logits = self.scores(network, batch["ids"].to(device), batch["keep"].to(device))
            chances = logits.softmax(dim=-1)
        lines = []
        for i, (chance, answer) in enumerate(zip(chances.cpu(), batch["answers"], strict=True)):
            best = int(chance.argmax())
            text = self.tokenizer.decode(self.parts["valid"][i][:12].tolist())
            said = f"{self.labels[best]} ({chance[best]:.0%})"
            lines.append(f"{said:<24} is {self.labels[int(answer)]:<16} {text} ...")
        return "\n".join(lines)


def make_tokenizer(given: Given, sample: list[str], tell: Live) -> Tokenizer:
    """Words, or for BERT its word pieces; whatever it is, it has the marks that are needed."""
    if given.ready:
        return ready_tokenizer(given.ready, sample, extend=given.extend, tell=tell)
    bert = given.model == "bert"
    kind = given.tokenizer or ("wordpiece" if bert else "words")
    marks = () if kind == "wordpiece" else (FIRST, LAST) if bert else (SEPARATOR,)
    vocab = None if kind in ("characters", "bytes") else given.vocab or 20_000
    return learn_tokenizer(kind, sample, vocab=vocab, specials=marks)


def context_of(network: nn.Module) -> int:
    return getattr(network.config, "context", ANY)


def encode_pair(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[int]:
    """The ids of a text, or of two: [CLS] one [SEP] two [SEP], or one <sep> two."""
    marks, (first, *second) = tokenizer.specials, map(tokenizer.encode, texts)
    if FIRST in marks:
        ids = [marks[FIRST], *first, marks[LAST]]
        return ids + [i for rest in second for i in (*rest, marks[LAST])]
    mark = separator(tokenizer)
    if second and mark < 0:
        raise GlassError("the tokenizer has no mark to put between two texts")
    return first + [i for rest in second for i in (mark, *rest)]


def separator(tokenizer: Tokenizer) -> int:
    """The id of the mark between two texts."""
    marks = (LAST, SEPARATOR, "<|endoftext|>")
    return next((tokenizer.specials[m] for m in marks if m in tokenizer.specials), -1)


def shortened(ids: NDArray[np.int64], most: int, mark: int) -> NDArray[np.int64]:
    """A text cut to so many ids; of a pair the longer one is cut, and a closing mark stays."""
    if len(ids) <= most:
        return ids
    closing = ids[-1:] if ids[-1] == mark else ids[:0]
    ids, most = ids[: len(ids) - len(closing)], most - len(closing)
    between = np.flatnonzero(ids == mark)
    middle = int(between[0]) if len(between) else len(ids)
    second = min(len(ids) - middle, max(most // 2, most - middle))
    return np.concatenate((ids[:middle][: most - second], ids[middle:][:second], closing))


def scores(network: nn.Module, tokenizer: Tokenizer, ids: Tensor, keep: Tensor) -> Tensor:
    """The network's scores for the labels, b c; one with segments is told where the second is."""
    told = {}
    if hasattr(network.config, "segments"):
        ends = (ids == tokenizer.specials[LAST]).long()
        told = {"segments": (ends.cumsum(dim=1) - ends).clamp(max=1)}
    logits: Tensor = network(ids, keep=keep, **told)
    return logits.float()


def reader(given: Given, tell: Live) -> tuple[Callable[[Bad], Iterator[Example]], dict[str, Any]]:
    """The examples, readable again and again, and what is to be remembered of the columns."""
    if not given.files:
        tell("no data given: which package of Python's standard library do some lines come from?")
        sample = lambda _: (("", (t,), label, given.part_of(file)) for t, label, file in passages())
        return sample, {}
    columns = guess_columns(first_rows(given.files, given.separator), given.text, given.label)
    tell(f"text: {' and '.join(columns.text)}; label: {columns.label}")

    def examples(bad: Bad) -> Iterator[Example]:
        needed = (*columns.text, columns.label, *([given.group] if given.group else []))
        for files, part in given.sides():
            for row in table_rows(files, bad, given.separator):
                missing = [name for name in needed if name not in row.values]
                if missing:
                    bad(row.place, f"there is no {missing[0]!r}", str(row.values))
                elif not row.values[columns.label].strip():
                    bad(row.place, "the label is empty", str(row.values))
                elif not any(row.values[name].strip() for name in columns.text):
                    bad(row.place, "the text is empty", str(row.values))
                else:
                    texts = tuple(row.values[name] for name in columns.text)
                    key = row.values[given.group] if given.group else "\0".join(texts)
                    label = row.values[columns.label].strip()
                    yield row.place, texts, label, part or given.part_of(key)

    return examples, {"text": list(columns.text), "label": columns.label}


def macro_f1(confusion: NDArray[np.int64]) -> float:
    """The mean over labels of 2 right / (said + true); a label that never occurs counts not."""
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float((2 * np.diag(confusion)[both > 0] / both[both > 0]).mean())
