"""Classify: predict the label of a text or a pair of texts. Shapes: b batch, c classes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.baselines.nb_svm import NBSVM
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
from glassformer.data.labeled import check_labels, make_labeled_reader
from glassformer.data.request import DataRequest
from glassformer.data.store import Store, read_array
from glassformer.models.network import Network, PriorConfig, TextClassifier
from glassformer.nn.label_prior import LabelPrior
from glassformer.tasks.table_rows import (
    open_writers,
    report_sizes,
    summarize_examples,
    write_stores,
)
from glassformer.tasks.task import (
    METRICS,
    Artifacts,
    Batch,
    FitFunction,
    Scores,
    TaskSpec,
    move_to_device,
)
from glassformer.text.tokenizer import CLS, SEP, SEPARATOR, SEPARATORS, Tokenizer

EVAL_BATCH_TOKENS = 16_384
UNLIMITED = 10**9  # tokens; stands for a context of None
PREVIEW_TOKENS = 12  # of each text in a preview
DEFAULT_SUBWORD_VOCAB, DEFAULT_WORD_VOCAB = 20_000, 40_000

Ids = NDArray[np.int64]


# --- files to examples ----------------------------------------------------------------------------


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns = make_labeled_reader(request, reporter)
    summary = summarize_examples(read(request.on_bad_row))
    labels = list(request.labels) or check_labels(summary.labels)
    unknown = [label for label in summary.labels if label not in labels]
    if unknown:
        raise GlassError(f"unknown label {unknown[0]!r}: the model was trained with {labels}")
    tokenizer = make_tokenizer(request, summary.sample, reporter)
    written = write_stores(
        read(IgnoreBadRows()),
        lambda example: [encode_pair(tokenizer, example.texts)],
        open_writers(folder, ("",), tokenizer.vocab),
        bar=ProgressBar(reporter, "encoding", summary.count),
    )
    for split, names in written.labels.items():
        indices = np.array([labels.index(str(label)) for label in names], dtype=np.int64)
        np.save(folder / f"{split}.labels.npy", indices)
        if not names and request.valid_fraction < 1:
            purpose = "training" if split == "train" else "validation"
            raise GlassError(f"{summary.count} texts are too few: none are left for {purpose}")
    common = ", ".join(f"{label} {n:,}" for label, n in summary.labels.most_common(5))
    reporter(f"{len(labels)} labels ({common}{' ...' if len(labels) > 5 else ''})")
    report_sizes(written, "texts", reporter, "texts")
    return Artifacts({**columns, "labels": labels}, tokenizer)


def read_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """Yield the rows of the data for `check-data`."""
    read, _ = make_labeled_reader(request, reporter)
    yield from read(on_bad_row)


def make_tokenizer(request: DataRequest, sample: list[str], reporter: Reporter) -> Tokenizer:
    """Reuse or train a tokenizer: by default words, or WordPiece for BERT.

    A new tokenizer has the special tokens that the model needs.
    """
    if request.base_tokenizer:
        return reuse_tokenizer(
            request.base_tokenizer, sample, extend=request.extend, reporter=reporter
        )
    is_bert = request.model == "bert_classifier"
    kind = request.tokenizer or ("wordpiece" if is_bert else "words")
    special_tokens = () if kind == "wordpiece" else (CLS, SEP) if is_bert else (SEPARATOR,)
    default = {"characters": None, "bytes": None, "words": DEFAULT_WORD_VOCAB}.get(
        kind, DEFAULT_SUBWORD_VOCAB
    )
    vocab = None if default is None else request.vocab or default
    return train_tokenizer(kind, sample, vocab=vocab, special_tokens=special_tokens)


# --- texts to ids ---------------------------------------------------------------------------------


def encode_pair(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[int]:
    """Return the ids of one or two texts: [CLS] A [SEP] B [SEP], or A <sep> B."""
    special, (first, *second) = tokenizer.special_tokens, map(tokenizer.encode, texts)
    if CLS in special:
        if SEP not in special:
            raise GlassError(f"the tokenizer has the special token {CLS} but not {SEP}")
        ids = [special[CLS], *first, special[SEP]]
        return ids + [i for rest in second for i in (*rest, special[SEP])]
    separator = find_separator(tokenizer)
    if second and separator < 0:
        names = ", ".join(SEPARATORS)
        raise GlassError(
            f"the tokenizer has no special token to separate two texts; it needs one of {names}"
        )
    return first + [i for rest in second for i in (separator, *rest)]


def find_separator(tokenizer: Tokenizer) -> int:
    """Return the id of the special token that separates two texts, or -1."""
    special = tokenizer.special_tokens
    return next((special[t] for t in SEPARATORS if t in special), -1)


def truncate(ids: Ids, limit: int, separator: int) -> Ids:
    """Truncate to `limit` ids: in a pair, the longer text is cut; a final separator stays."""
    if len(ids) <= limit:
        return ids
    closing = ids[-1:] if ids[-1] == separator else ids[:0]
    ids, limit = ids[: len(ids) - len(closing)], limit - len(closing)
    separators = np.flatnonzero(ids == separator)
    middle = int(separators[0]) if len(separators) else len(ids)
    second = min(len(ids) - middle, max(limit // 2, limit - middle))
    return np.concatenate((ids[:middle][: limit - second], ids[middle:][:second], closing))


def collate(tokenizer: Tokenizer, rows: Sequence[Ids], context: int | None) -> Batch:
    """Truncate rows of ids to the context and pad them into a batch; an empty text becomes id 0.

    If the tokenizer has [SEP], segments are 0 up to the first one and 1 after it. If a row was
    truncated, `untruncated_ids` are the rows before truncation, padded with -1.
    """
    separator, empty = find_separator(tokenizer), np.zeros(1, dtype=np.int64)
    truncated = [truncate(row, context or UNLIMITED, separator) for row in rows]
    ids, keep = pad_rows([row if len(row) else empty for row in truncated])
    batch = {"ids": ids, "keep": keep}
    if sum(map(len, truncated)) < sum(map(len, rows)):
        batch["untruncated_ids"], _ = pad_rows(list(rows), fill=-1)
    if SEP in tokenizer.special_tokens:
        ends = (ids == tokenizer.special_tokens[SEP]).long()
        batch["segments"] = (ends.cumsum(dim=1) - ends).clamp(max=1)
    return batch


# --- batches --------------------------------------------------------------------------------------


class TextBatches:
    """Batches of texts of similar length."""

    def __init__(
        self, dataset: "ClassifyDataset", batch_tokens: int, context: int | None, seed: int
    ) -> None:
        self.dataset, self.context = dataset, context
        lengths = dataset.texts["train"].lengths
        self.truncated = int((lengths > (context or UNLIMITED)).sum())
        lengths = np.minimum(lengths, context or UNLIMITED).clip(min=1)
        self.buckets = Buckets(lengths, batch_tokens, seed)
        self.per_epoch = len(self.buckets)

    def at(self, step: int) -> Batch:
        return self.dataset.gather("train", self.buckets.at(step), self.context)


class ClassifyDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts, self.labels = artifacts, list(artifacts.metadata["labels"])
        vocab = artifacts.text_tokenizer.vocab
        self.texts = {split: Store(folder / f"{split}.ids", vocab) for split in ("train", "valid")}
        self.targets = {split: self.read_targets(folder, split) for split in self.texts}
        self.eval_size = len(self.texts["valid"])
        self.size, self.n_targets = self.texts["train"].size, len(self.texts["train"])

    def read_targets(self, folder: Path, split: str) -> Ids:
        """Return the label indices of one split."""
        file = folder / f"{split}.labels.npy"
        targets = read_array(file)
        is_label = (targets >= 0) & (targets < len(self.labels))
        if len(targets) != len(self.texts[split]) or not is_label.all():
            raise GlassError(f"{file} is corrupted: expected one valid label for each text")
        return targets

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.artifacts.text_tokenizer.vocab, "classes": len(self.labels)}

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> TextBatches:
        return TextBatches(self, batch_size, context, seed)

    def gather(self, split: str, rows: Ids, context: int | None) -> Batch:
        texts = [self.texts[split][i] for i in rows]
        batch = collate(self.artifacts.text_tokenizer, texts, context)
        return {**batch, "targets": torch.from_numpy(self.targets[split][rows])}

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        context = network.context  # `context` only applies to running text; ignored here
        chosen = choose_examples(len(self.texts["valid"]), limit)
        lengths = np.minimum(self.texts["valid"].lengths[chosen], context or UNLIMITED).clip(min=1)
        for rows in group_by_tokens(np.argsort(lengths, kind="stable"), lengths, EVAL_BATCH_TOKENS):
            yield self.gather("valid", chosen[rows], context)

    def preview_batch(self, context: int | None) -> Batch:
        return self.gather("valid", np.arange(min(3, len(self.texts["valid"]))), context)

    def fit(self, network: Network, fraction: float) -> float:
        texts, targets = self.texts["train"], self.targets["train"]
        rows = choose_examples(len(texts), max(round(len(texts) * fraction), 1))
        network.fit(concatenate_texts(texts, rows), torch.from_numpy(targets[rows]))  # type: ignore[operator]
        return len(rows) / len(texts)

    def fit_prior(self, network: TextClassifier, fit: FitFunction) -> tuple[NBSVM, float]:
        """Fit an NB-SVM and make it the prior of the network; return it and the fraction used."""
        baseline = NBSVM(NBSVM.Config(**self.sizes()))
        fraction = fit(baseline)
        network.attach_prior(PriorConfig(baseline.config.order), LabelPrior(baseline.svm))
        return baseline, fraction

    @torch.no_grad()
    def fit_prior_weights(self, network: Network, limit: int | None) -> None:
        """On part of the validation split, fit the weights that mix the network with its prior."""
        if not isinstance(network, TextClassifier) or network.prior is None:
            return
        parts, targets = list[tuple[Tensor, Tensor]](), list[Tensor]()
        for cpu_batch in self.eval_batches(network, limit):
            batch = move_to_device(cpu_batch, network)
            parts.append(network.component_logits(**network.select_inputs(batch)))
            targets.append(batch["targets"])
        logits, ngram_logits = (torch.cat(part) for part in zip(*parts, strict=True))
        if logits.isfinite().all():
            network.prior.fit_weights(logits, ngram_logits, torch.cat(targets))


# --- losses and metrics ---------------------------------------------------------------------------


class ClassifyObjective:
    """Predict one label for each text."""

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
        cells = (targets * size + logits.argmax(dim=-1)).numpy()
        return Scores(
            {
                "nats": float(F.cross_entropy(logits, targets, reduction="sum")),
                "confusion": np.bincount(cells, minlength=size**2).reshape(size, size),
            }
        )

    def metrics(self, scores: Scores) -> dict[str, Any]:
        confusion = scores.sums["confusion"]  # true x predicted
        examples = int(confusion.sum())
        return {
            "loss": scores.sums["nats"] / examples,
            "accuracy": float(np.trace(confusion) / examples),
            "f1": macro_f1(confusion),
            "examples": examples,
        }


def macro_f1(confusion: NDArray[np.int64]) -> float:
    """Return the mean over labels of 2 correct / (predicted + true), without absent labels."""
    totals = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float((2 * np.diag(confusion)[totals > 0] / totals[totals > 0]).mean())


def plot_confusion(scores: Scores, artifacts: Artifacts, file: Path) -> None:
    """Draw the confusion matrix, as percentages of each true label."""
    counts, labels = scores.sums["confusion"], artifacts.metadata["labels"]
    fractions = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    side = min(max(3.5, 0.55 * len(labels) + 2), 20)
    chart, axes = subplots(figsize=(side, side))
    axes.tick_params(labelsize=min(10, 60 * side / len(labels)))
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    for true, row in enumerate(fractions):
        for predicted, value in enumerate(row):
            color = "white" if value > 0.5 else "black"
            if counts[true, predicted] and len(labels) <= 50:
                axes.text(predicted, true, f"{value:.0%}", ha="center", va="center", color=color)
    file.parent.mkdir(exist_ok=True)
    chart.savefig(file, dpi=110)


# --- prediction -----------------------------------------------------------------------------------


class ClassifyCodec:
    """From texts, or pairs of texts, to the probabilities of the labels, highest first."""

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
        """Return probabilities: b c."""
        logits: Tensor = network(**network.select_inputs(batch))
        return logits.float().softmax(dim=-1)

    def decode(self, output: Tensor) -> list[dict[str, float]]:
        labels = self.labels or [str(i) for i in range(output.shape[-1])]
        rows = (zip(labels, row, strict=True) for row in output.tolist())
        return [dict(sorted(row, key=lambda pair: -pair[1])) for row in rows]

    def preview(self, network: Network, batch: Batch) -> str:
        lines = []
        predictions = self.decode(self.run(network, batch))
        rows = [ids[keep] for ids, keep in zip(batch["ids"], batch["keep"], strict=True)]
        for ids, probs, target in zip(rows, predictions, batch["targets"], strict=True):
            best, prob = next(iter(probs.items()))
            text = self.tokenizer.decode(ids[:PREVIEW_TOKENS].tolist())
            ellipsis = " ..." if len(ids) > PREVIEW_TOKENS else ""
            prediction = f"{best} ({prob:.0%})"
            lines.append(f"{prediction:<24} true: {self.labels[int(target)]:<16} {text}{ellipsis}")
        return "\n".join(lines)


CLASSIFY = TaskSpec(
    name="classify",
    models=(
        *("text_cnn", "classifier", "bert_classifier", "gpt2_classifier"),
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
    examples=read_examples,
    dataset=ClassifyDataset,
    objective=ClassifyObjective,
    codec=ClassifyCodec,
    baseline_model="nb_svm",
    baseline_name="NB-SVM",
    fit_prior=ClassifyDataset.fit_prior,
    fit_prior_weights=ClassifyDataset.fit_prior_weights,
    plots={"confusion": plot_confusion},
)
