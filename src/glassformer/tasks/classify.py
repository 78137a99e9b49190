"""Classify: which label a text, or a pair of texts, has."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data.batches import (
    Buckets,
    choose_examples,
    concatenate_texts,
    group_by_tokens,
    pad_rows,
)
from glassformer.data.corpus import reuse_tokenizer, train_tokenizer
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.labeled import check_labels, guess_columns, peek_rows, read_table_rows
from glassformer.data.request import DataRequest
from glassformer.data.sample import passages
from glassformer.data.store import Store, read_array
from glassformer.models.network import Network
from glassformer.tasks.table_rows import Read, report_sizes, survey, write_stores, writers
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec
from glassformer.text.tokenizer import Tokenizer

SEPARATOR = "<sep>"  # between the two texts of a pair
FIRST, LAST = "[CLS]", "[SEP]"  # BERT's marks: before a text, and after each
EVAL_TOKENS = 16_384  # of an evaluation's batch
ANY = 10**9  # tokens: the context of a network that can read any number

Ids = NDArray[np.int64]


# --- files to examples ----------------------------------------------------------------------------


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns = reader(request, reporter)
    found = survey(read(request.on_bad_row))
    labels = list(request.labels) or check_labels(found.labels)
    unknown = [label for label in found.labels if label not in labels]
    if unknown:
        raise GlassError(f"the model does not know the label {unknown[0]!r}; it knows {labels}")
    tokenizer = make_tokenizer(request, found.sample, reporter)
    written = write_stores(
        read(IgnoreBadRows()),
        lambda example: [encode_pair(tokenizer, example.texts)],
        writers(folder, ("",), tokenizer.vocab),
        bar=ProgressBar(reporter, "encoding", found.count),
    )
    for part, those in written.labels.items():
        numbers = np.array([labels.index(str(label)) for label in those], dtype=np.int64)
        np.save(folder / f"{part}.labels.npy", numbers)
        if not those and request.valid_fraction < 1:
            raise GlassError(f"{found.count} texts are too few: none is left to {part}")
    common = ", ".join(f"{label} {n:,}" for label, n in found.labels.most_common(5))
    reporter(f"{len(labels)} labels ({common}{' ...' if len(labels) > 5 else ''})")
    report_sizes(written, "texts", reporter, "texts")
    return Artifacts({**columns, "labels": labels}, tokenizer)


def reader(request: DataRequest, reporter: Reporter) -> tuple[Read, dict[str, Any]]:
    """The examples, readable again and again, and what is to be remembered of the columns."""
    if not request.files:
        reporter(
            "no data given: which package of Python's standard library do some lines come from?"
        )
        return lambda _: (
            Example("", (text,), request.assign_part(file), label)
            for text, label, file in passages()
        ), {}
    columns = guess_columns(
        peek_rows(request.files, request.separator), request.text, request.label
    )
    reporter(f"text: {' and '.join(columns.text)}; label: {columns.label}")

    def rows(on_bad_row: BadRowPolicy) -> Iterator[Example]:
        needed = (*columns.text, columns.label, *([request.group] if request.group else []))
        for files, part in request.split_files():
            for row in read_table_rows(files, on_bad_row, request.separator):
                missing = [name for name in needed if name not in row.values]
                if missing:
                    on_bad_row(row.location, f"there is no {missing[0]!r}", str(row.values))
                elif not row.values[columns.label].strip():
                    on_bad_row(row.location, "the label is empty", str(row.values))
                elif not any(row.values[name].strip() for name in columns.text):
                    on_bad_row(row.location, "the text is empty", str(row.values))
                else:
                    texts = tuple(row.values[name] for name in columns.text)
                    key = row.values[request.group] if request.group else "\0".join(texts)
                    label = row.values[columns.label].strip()
                    yield Example(row.location, texts, part or request.assign_part(key), label)

    return rows, {"text": list(columns.text), "label": columns.label}


def examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """The rows of the data, for a look at them."""
    read, _ = reader(request, reporter)
    yield from read(on_bad_row)


def make_tokenizer(request: DataRequest, sample: list[str], reporter: Reporter) -> Tokenizer:
    """Words, or for BERT its word pieces; whatever it is, it has the marks that are needed."""
    if request.base_tokenizer:
        return reuse_tokenizer(
            request.base_tokenizer, sample, extend=request.extend, reporter=reporter
        )
    bert = request.model == "bert_classifier"
    kind = request.tokenizer or ("wordpiece" if bert else "words")
    marks = () if kind == "wordpiece" else (FIRST, LAST) if bert else (SEPARATOR,)
    vocab = None if kind in ("characters", "bytes") else request.vocab or 20_000
    return train_tokenizer(kind, sample, vocab=vocab, special_tokens=marks)


# --- texts to ids ---------------------------------------------------------------------------------


def encode_pair(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[int]:
    """The ids of a text, or of two: [CLS] one [SEP] two [SEP], or one <sep> two."""
    marks, (first, *second) = tokenizer.special_tokens, map(tokenizer.encode, texts)
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
    return next((tokenizer.special_tokens[m] for m in marks if m in tokenizer.special_tokens), -1)


def shortened(ids: Ids, limit: int, mark: int) -> Ids:
    """A text cut to so many ids; of a pair the longer one is cut, and a closing mark stays."""
    if len(ids) <= limit:
        return ids
    closing = ids[-1:] if ids[-1] == mark else ids[:0]
    ids, limit = ids[: len(ids) - len(closing)], limit - len(closing)
    between = np.flatnonzero(ids == mark)
    middle = int(between[0]) if len(between) else len(ids)
    second = min(len(ids) - middle, max(limit // 2, limit - middle))
    return np.concatenate((ids[:middle][: limit - second], ids[middle:][:second], closing))


def collate(tokenizer: Tokenizer, rows: Sequence[Ids], context: int | None) -> Batch:
    """Rows of ids, cut to a context, as one batch; an empty text is one unknown token.

    Where [SEP] ends the first of two texts, segments tell it from the second.
    """
    mark, empty = separator(tokenizer), np.zeros(1, dtype=np.int64)
    cut = [shortened(row, context or ANY, mark) for row in rows]
    ids, keep = pad_rows([row if len(row) else empty for row in cut])
    batch = {"ids": ids, "keep": keep}
    if LAST in tokenizer.special_tokens:
        ends = (ids == tokenizer.special_tokens[LAST]).long()
        batch["segments"] = (ends.cumsum(dim=1) - ends).clamp(max=1)
    return batch


# --- batches --------------------------------------------------------------------------------------


class TextBatches:
    """Texts of like length together."""

    def __init__(
        self, dataset: "ClassifyDataset", batch_tokens: int, context: int | None, seed: int
    ) -> None:
        self.dataset, self.context = dataset, context
        lengths = dataset.texts["train"].lengths
        self.truncated = int((lengths > (context or ANY)).sum())
        self.buckets = Buckets(np.minimum(lengths, context or ANY).clip(min=1), batch_tokens, seed)
        self.per_epoch = len(self.buckets)

    def at(self, step: int) -> Batch:
        return self.dataset.gather("train", self.buckets.at(step), self.context)


class ClassifyDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts, self.labels = artifacts, list(artifacts.metadata["labels"])
        vocab = artifacts.text_tokenizer.vocab
        self.texts = {part: Store(folder / f"{part}.ids", vocab) for part in ("train", "valid")}
        self.targets = {part: self.read_answers(folder, part) for part in self.texts}
        self.eval_size = len(self.texts["valid"])
        self.size, self.predictions = self.texts["train"].size, len(self.texts["train"])

    def read_answers(self, folder: Path, part: str) -> Ids:
        """The numbers of the labels of one part."""
        file = folder / f"{part}.labels.npy"
        targets = read_array(file)
        known = (targets >= 0) & (targets < len(self.labels))
        if len(targets) != len(self.texts[part]) or not known.all():
            raise GlassError(f"{file} is damaged: it does not hold a label for each text")
        return targets

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.artifacts.text_tokenizer.vocab, "classes": len(self.labels)}

    def train_batches(self, batch: int, context: int | None, seed: int) -> TextBatches:
        return TextBatches(self, batch, context, seed)

    def gather(self, part: str, rows: Ids, context: int | None) -> Batch:
        texts = [self.texts[part][i] for i in rows]
        batch = collate(self.artifacts.text_tokenizer, texts, context)
        return {**batch, "targets": torch.from_numpy(self.targets[part][rows])}

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        context = network.context  # a table's texts are read as far as a network can
        chosen = choose_examples(len(self.texts["valid"]), limit)
        lengths = np.minimum(self.texts["valid"].lengths[chosen], context or ANY).clip(min=1)
        for rows in group_by_tokens(np.argsort(lengths, kind="stable"), lengths, EVAL_TOKENS):
            yield self.gather("valid", chosen[rows], context)

    def preview_batch(self, context: int | None) -> Batch:
        return self.gather("valid", np.arange(min(3, len(self.texts["valid"]))), context)

    def fit(self, network: Network, share: float) -> float:
        texts, targets = self.texts["train"], self.targets["train"]
        rows = choose_examples(len(texts), max(round(len(texts) * share), 1))
        network.fit(concatenate_texts(texts, rows), torch.from_numpy(targets[rows]))  # type: ignore[operator]
        return len(rows) / len(texts)


# --- losses and metrics ---------------------------------------------------------------------------


class LabelOfText:
    """One label for each text."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        self.labels = artifacts.metadata["labels"]

    def count(self, batch: Batch) -> int:
        return len(batch["targets"])

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        logits = network(**network.select_inputs(batch)).float()
        yield F.cross_entropy(
            logits, batch["targets"], reduction="sum", label_smoothing=label_smoothing
        )

    def scores(self, network: Network, batch: Batch) -> Scores:
        logits = network(**network.select_inputs(batch)).float().cpu()
        targets, size = batch["targets"].cpu(), len(self.labels)
        pairs = (targets * size + logits.argmax(dim=-1)).numpy()
        return Scores(
            {
                "nats": float(F.cross_entropy(logits, targets, reduction="sum")),
                "confusion": np.bincount(pairs, minlength=size**2).reshape(size, size),
            }
        )

    def metrics(self, scores: Scores) -> dict[str, Any]:
        confusion = scores.sums["confusion"]  # true, predicted
        examples = int(confusion.sum())
        return {
            "loss": scores.sums["nats"] / examples,
            "accuracy": float(np.trace(confusion) / examples),
            "f1": macro_f1(confusion),
            "examples": examples,
        }


def macro_f1(confusion: NDArray[np.int64]) -> float:
    """The mean over labels of 2 right / (predicted + true), without labels that never occur."""
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float((2 * np.diag(confusion)[both > 0] / both[both > 0]).mean())


def plot_confusion(scores: Scores, artifacts: Artifacts, file: Path) -> None:
    """Which label was predicted for which, in percent of each true label."""
    counts, labels = scores.sums["confusion"], artifacts.metadata["labels"]
    share = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    side = min(max(3.5, 0.55 * len(labels) + 2), 20)
    chart, axes = subplots(figsize=(side, side))
    axes.tick_params(labelsize=min(10, 60 * side / len(labels)))
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("said")
    axes.set_ylabel("true")
    for true, row in enumerate(share):
        for predicted, value in enumerate(row):
            color = "white" if value > 0.5 else "black"
            if counts[true, predicted] and len(labels) <= 50:
                axes.text(predicted, true, f"{value:.0%}", ha="center", va="center", color=color)
    file.parent.mkdir(exist_ok=True)
    chart.savefig(file, dpi=110)


# --- in use ---------------------------------------------------------------------------------------


class ClassifyCodec:
    """A text, or a pair of texts, in; labels with their probabilities out, likeliest first."""

    batch_size = 32

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer
        self.labels: list[str] = list(artifacts.metadata.get("labels", ()))

    def encode(
        self, examples: Sequence[str | tuple[str, ...]], context: int | None = None
    ) -> Batch:
        pairs = [(text,) if isinstance(text, str) else text for text in examples]
        rows = [np.array(encode_pair(self.tokenizer, pair), dtype=np.int64) for pair in pairs]
        return collate(self.tokenizer, rows, context)

    @torch.inference_mode()
    def run(self, network: Network, batch: Batch) -> Tensor:
        """Probabilities, b c."""
        logits: Tensor = network(**network.select_inputs(batch))
        return logits.float().softmax(dim=-1)

    def decode(self, output: Tensor) -> list[dict[str, float]]:
        labels = self.labels or [str(i) for i in range(output.shape[-1])]
        rows = (zip(labels, row, strict=True) for row in output.tolist())
        return [dict(sorted(row, key=lambda pair: -pair[1])) for row in rows]

    def preview(self, network: Network, batch: Batch) -> str:
        lines = []
        targets = self.decode(self.run(network, batch))
        for ids, probs, answer in zip(batch["ids"], targets, batch["targets"], strict=True):
            best, prob = next(iter(probs.items()))
            text = self.tokenizer.decode(ids[:12].tolist())
            line = f"{best} ({prob:.0%})"
            lines.append(f"{line:<24} is {self.labels[int(answer)]:<16} {text} ...")
        return "\n".join(lines)


CLASSIFY = TaskSpec(
    name="classify",
    models=(
        *("classifier", "bert_classifier", "gpt2_classifier"),
        *("recurrent_classifier", "convolutional_classifier", "nb_svm"),
    ),
    task_variants={
        "gpt2": "gpt2_classifier",
        "bert": "bert_classifier",
        "bert_encoder": "bert_classifier",
    },
    model_settings={"context": 512, "dim": 64, "depth": 1, "heads": 2, "dropout": 0.3},
    train_settings={"batch_tokens": 8192, "lr": 1.5e-3, "weight_decay": 0.05},
    metric=METRICS["accuracy"],
    unit="texts",
    eval_limit=1_000,
    prepare=prepare,
    examples=examples,
    dataset=ClassifyDataset,
    objective=LabelOfText,
    codec=ClassifyCodec,
    baseline_model="nb_svm",
    baseline_name="weighing phrases (NB-SVM)",
    plots={"confusion": plot_confusion},
)
