"""Classify: predict the label, or several labels, of a text or a pair of texts.

Shapes: b batch, c classes.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.baselines.nb_svm import NBSVM
from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter, ProgressBar, Reporter
from glassformer.data.batches import (
    BucketBatches,
    choose_examples,
    concatenate_texts,
    group_by_length,
)
from glassformer.data.corpus import reuse_tokenizer, train_tokenizer
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.labeled import (
    check_labels,
    describe_unvalidated_labels,
    make_labeled_reader,
    split_labels,
)
from glassformer.data.request import DataRequest
from glassformer.data.store import Store, read_array
from glassformer.models.network import Network, PriorConfig, TextClassifier
from glassformer.nn.label_prior import LabelPrior
from glassformer.nn.labels import label_loss, label_probs
from glassformer.tasks.label_metrics import (
    ACCURACY,
    LabelScores,
    calibrate,
    compare_by_f1,
    get_class_weights,
    label_details,
    label_predictions,
    plot_labels,
)
from glassformer.tasks.table_rows import (
    hold_out_some,
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
    read_calibration,
)
from glassformer.tasks.text_pairs import UNLIMITED, collate, encode_pair
from glassformer.text.tokenizer import CLS, SEP, SEPARATOR, Tokenizer

EVAL_BATCH_TOKENS = 16_384
MAX_LABEL_SHARE = 0.2  # distinct labels / texts; with more, the column probably has ids or texts,
MIN_SUSPICIOUS_LABELS = 20  # unless it has fewer distinct labels than this
PREVIEW_TOKENS = 12  # of each text in a preview
DEFAULT_SUBWORD_VOCAB, DEFAULT_WORD_VOCAB = 20_000, 40_000

Ids = NDArray[np.int64]


# --- files to examples ----------------------------------------------------------------------------


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns = make_labeled_reader(request, reporter)
    summary = summarize_examples(read(request.on_bad_row), multi_label=request.multi_label)
    if request.is_evaluation:
        reporter = NullReporter()
    elif (new_request := hold_out_some(request, summary)) is not request:
        read, columns = make_labeled_reader(new_request, NullReporter())
    labels = list(request.labels) or check_labels(summary.labels)
    tokenizer = make_tokenizer(request, summary.sample, reporter)
    written = write_stores(
        read(IgnoreBadRows()),
        lambda example: [encode_pair(tokenizer, example.texts)],
        open_writers(folder, {"": tokenizer.vocab}),
        folder,
        bar=ProgressBar(reporter, "encoding", summary.count),
    )
    if not request.multi_label and sum("|" in label for label in labels) > len(labels) / 4:
        reporter("many labels contain |: if a text can have several labels, add --multi-label")
    if len(labels) > max(MAX_LABEL_SHARE * summary.count, MIN_SUSPICIOUS_LABELS):
        reporter(
            f"{len(labels):,} labels for {summary.count:,} texts: is {columns.get('label')!r} the "
            "right column? --label chooses another one"
        )
    metadata: dict[str, Any] = {**columns, "labels": labels}
    if request.multi_label:
        metadata["multi_label"] = True
    size = len(labels)
    for split, cells in written.labels.items():
        targets = encode_labels(cells, labels, multi_label=request.multi_label)
        np.save(folder / f"{split}.labels.npy", targets)
        if not cells and not request.is_evaluation:
            purpose = "training" if split == "train" else "validation"
            raise GlassError(
                f"too few texts ({summary.count}): none are left for {purpose}; add texts, or give "
                "validation data with --valid"
            )
        missing = [
            label for label, n in zip(labels, count_labels(targets, size), strict=True) if not n
        ]
        if split == "train" and missing and not request.is_evaluation:
            reporter(
                f"no training text has the label {missing[0]!r}, so it cannot be learned: add "
                "texts with this label, or use --valid for the validation data"
            )
        if split == "valid" and missing:
            reporter(describe_unvalidated_labels(missing, size))
        if split == "train" and request.class_weights:
            metadata["class_weights"] = balance_classes(targets, len(labels))
    common = ", ".join(f"{label} {n:,}" for label, n in summary.labels.most_common(5))
    reporter(f"{len(labels)} labels ({common}{' ...' if len(labels) > 5 else ''})")
    report_sizes(written, "text", reporter, "texts")
    return Artifacts(metadata, tokenizer)


def encode_labels(cells: list[str | None], labels: list[str], *, multi_label: bool) -> Ids:
    """The index of the label in each cell (n), or 0/1 for each label in a cell like `a|b` (n c)."""
    index = {label: i for i, label in enumerate(labels)}
    if not multi_label:
        return np.array([index[str(cell)] for cell in cells], dtype=np.int64)
    targets = np.zeros((len(cells), len(labels)), dtype=np.int64)
    for row, cell in zip(targets, cells, strict=True):
        row[[index[label] for label in split_labels(str(cell))]] = 1
    return targets


def count_labels(targets: Ids, n_classes: int) -> Ids:
    """The number of texts with each label: c."""
    if targets.ndim == 2:
        return np.asarray(targets.sum(axis=0))
    return np.bincount(targets, minlength=n_classes)


def balance_classes(targets: Ids, n_classes: int) -> list[float]:
    """A weight for each class that makes rare ones count as much as frequent ones.

    With one label per text, the total weight of each class is the same; with several, positive and
    negative examples of each class have the same total weight.
    """
    counts = count_labels(targets, n_classes).clip(min=1)
    if targets.ndim == 1:
        weights = len(targets) / (n_classes * counts)
    else:
        weights = (len(targets) - counts).clip(min=1) / counts
    return [round(float(weight), 4) for weight in weights]


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


# --- batches --------------------------------------------------------------------------------------


class ClassifyDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        self.labels = list(artifacts.metadata["labels"])
        vocab = artifacts.text_tokenizer.vocab
        self.texts = {split: Store(folder / f"{split}.ids", vocab) for split in ("train", "valid")}
        self.targets = {split: self.read_targets(folder, split) for split in self.texts}
        self.eval_size = len(self.texts["valid"])
        self.size, self.n_targets = self.texts["train"].size, len(self.texts["train"])

    def read_targets(self, folder: Path, split: str) -> Ids:
        """Return the label indices of one split."""
        file = folder / f"{split}.labels.npy"
        size = len(self.labels)
        multi_label = bool(self.artifacts.metadata.get("multi_label"))
        targets = read_array(file, ndim=2 if multi_label else 1)
        shape = (len(self.texts[split]), *([size] if multi_label else []))
        is_valid = (targets >= 0) & (targets < (2 if multi_label else size))
        if targets.shape != shape or not is_valid.all():
            raise GlassError(f"{file} is corrupted: expected one valid label for each text")
        return targets

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.artifacts.text_tokenizer.vocab, "classes": len(self.labels)}

    def lengths(self, split: str, context: int | None) -> Ids:
        """Return the token count of each text as the network reads it; at least 1."""
        return np.minimum(self.texts[split].lengths, context or UNLIMITED).clip(min=1)

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> BucketBatches:
        truncated = int((self.texts["train"].lengths > (context or UNLIMITED)).sum())
        gather = partial(self.gather, "train", context=context)
        return BucketBatches(gather, self.lengths("train", context), batch_size, seed, truncated)

    def gather(self, split: str, rows: Ids, context: int | None) -> Batch:
        texts = [self.texts[split][i] for i in rows]
        batch = collate(self.artifacts.text_tokenizer, texts, context)
        return {**batch, "targets": torch.from_numpy(self.targets[split][rows])}

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        context = network.context  # `context` only applies to running text; ignored here
        for rows in group_by_length(self.lengths("valid", context), limit, EVAL_BATCH_TOKENS):
            yield {**self.gather("valid", rows, context), "index": torch.from_numpy(rows)}

    def preview_batch(self, context: int | None) -> Batch:
        return self.gather("valid", np.arange(min(3, len(self.texts["valid"]))), context)

    def fit(self, network: Network, fraction: float) -> float:
        texts, targets = self.texts["train"], self.targets["train"]
        rows = choose_examples(len(texts), max(round(len(texts) * fraction), 1))
        class_weights = get_class_weights(self.artifacts, torch.ones(()))
        network.fit(  # type: ignore[operator]
            concatenate_texts(texts, rows), torch.from_numpy(targets[rows]), class_weights
        )
        return len(rows) / len(texts)

    def fit_prior(self, network: TextClassifier, fit: FitFunction) -> tuple[NBSVM, float]:
        """Fit an NB-SVM and make it the prior of the network; return it and the fraction used."""
        baseline = NBSVM(NBSVM.Config(**self.sizes()))
        fraction = fit(baseline)
        network.attach_prior(PriorConfig(baseline.config.order), LabelPrior(baseline.svm))
        return baseline, fraction

    @torch.no_grad()
    def fit_mixture_weights(self, network: Network, limit: int | None) -> None:
        """On part of the validation split, fit the weights that mix the network with its prior."""
        if not isinstance(network, TextClassifier) or network.prior is None:
            return
        parts = list[tuple[Tensor, Tensor]]()
        targets = list[Tensor]()
        for cpu_batch in self.eval_batches(network, limit):
            batch = move_to_device(cpu_batch, network)
            parts.append(network.component_logits(**network.select_inputs(batch)))
            targets.append(batch["targets"])
        logits, ngram_logits = (torch.cat(part) for part in zip(*parts, strict=True))
        if logits.isfinite().all():
            class_weights = get_class_weights(self.artifacts, logits)
            network.prior.fit_weights(logits, ngram_logits, torch.cat(targets), class_weights)


# --- losses and metrics ---------------------------------------------------------------------------


class ClassifyObjective:
    """Cross-entropy of one label per text, or of several (binary cross-entropy), and metrics."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        self.artifacts = artifacts

    def count(self, batch: Batch) -> int:
        return len(batch["targets"])

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        logits = network(**network.select_inputs(batch)).float()
        class_weights = get_class_weights(self.artifacts, logits)
        yield label_loss(logits, batch["targets"], class_weights, label_smoothing)

    def scores(self, network: Network, batch: Batch) -> Scores:
        logits = network(**network.select_inputs(batch)).float()
        return Scores(
            arrays={
                "index": [batch["index"].cpu().numpy()],
                "target": [batch["targets"].cpu().numpy()],
                "logits": [logits.cpu().numpy()],
            }
        )

    def metrics(self, scores: Scores) -> dict[str, Any]:
        return LabelScores(scores, self.artifacts).metrics()


# --- prediction -----------------------------------------------------------------------------------


class ClassifyCodec:
    """Encodes texts or pairs, runs the network, and decodes its output to label probabilities.

    The probabilities are calibrated; the highest comes first.
    """

    batch_size = 32

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer
        self.labels: list[str] = list(artifacts.metadata.get("labels", ()))
        self.multi_label = bool(artifacts.metadata.get("multi_label"))
        self.temperature = read_calibration(artifacts.metadata, "temperature")

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
        return label_probs(logits / self.temperature, multi_label=self.multi_label)

    def decode(self, output: Tensor) -> list[dict[str, float]]:
        return rank_labels(self.labels or [str(i) for i in range(output.shape[-1])], output)

    def preview(self, network: Network, batch: Batch) -> str:
        lines = []
        predictions = self.decode(self.run(network, batch))
        rows = [ids[keep] for ids, keep in zip(batch["ids"], batch["keep"], strict=True)]
        for ids, probs, target in zip(rows, predictions, batch["targets"], strict=True):
            best, prob = next(iter(probs.items()))
            text = self.tokenizer.decode(ids[:PREVIEW_TOKENS].tolist())
            ellipsis = " ..." if len(ids) > PREVIEW_TOKENS else ""
            prediction = f"{best} ({prob:.0%})"
            true = "|".join(self.labels[i] for i in target_indices(target))
            lines.append(f"{prediction:<24} true: {true:<16} {text}{ellipsis}")
        return "\n".join(lines)


def rank_labels(labels: list[str], probs: Tensor) -> list[dict[str, float]]:
    """The probabilities (b c) of each example by label, highest first."""
    rows = (zip(labels, row, strict=True) for row in probs.tolist())
    return [dict(sorted(row, key=lambda pair: -pair[1])) for row in rows]


def target_indices(target: Tensor) -> list[int]:
    """The indices of the labels of one text, from its row of targets."""
    return [int(target)] if target.dim() == 0 else target.nonzero()[:, 0].tolist()


CLASSIFY = TaskSpec(
    name="classify",
    models=(
        *("text_cnn", "classifier", "bert_classifier", "gpt2_classifier"),
        *("universal_classifier", "recurrent_classifier", "convolutional_classifier", "nb_svm"),
    ),
    task_variants={
        "gpt2": "gpt2_classifier",
        "universal": "universal_classifier",
        "bert": "bert_classifier",
        "bert_encoder": "bert_classifier",
    },
    data_variants=("bert_classifier",),
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
    fit_mixture_weights=ClassifyDataset.fit_mixture_weights,
    variant=compare_by_f1,
    calibrate=calibrate,
    sampled_metric=ACCURACY,
    details=label_details,
    predictions=label_predictions,
    plots={"confusion": plot_labels},
)
