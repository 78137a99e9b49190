"""Metrics of predicted labels: accuracy, F1, per-class scores, calibration and their plots.

Shapes: n texts, c classes. Targets are class indices (n), or 0/1 for each class (n c) if a text can
have several labels.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.nn.labels import label_loss, label_probs
from glassformer.tasks.bootstrap import Sample, SampledMetric
from glassformer.tasks.task import METRICS, Artifacts, Scores, TaskSpec, read_calibration

CALIBRATION_BINS = 15
WORST_ERRORS = 5
MAX_TEMPERATURE = 20.0

Ints = NDArray[np.int64]


def fit_temperature(logits: Tensor, targets: Tensor, class_weights: Tensor | None) -> float:
    """The number to divide the logits by that minimizes the loss: Guo et al., 2017.

    Found by golden-section search over its logarithm, in which the loss has one minimum.
    """
    low = -np.log(MAX_TEMPERATURE)
    high = np.log(MAX_TEMPERATURE)
    ratio = (np.sqrt(5) - 1) / 2

    def loss(log_temperature: float) -> float:
        return float(label_loss(logits / np.exp(log_temperature), targets, class_weights))

    while high - low > 1e-3:
        left = high - ratio * (high - low)
        right = low + ratio * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))


class LabelScores:
    """The predictions of an evaluation, from its scores."""

    def __init__(self, scores: Scores, artifacts: Artifacts) -> None:
        self.labels: list[str] = list(artifacts.metadata["labels"])
        self.multi_label = bool(artifacts.metadata.get("multi_label"))
        self.index: Ints = scores.array("index")
        self.targets: Ints = scores.array("target")
        temperature = read_calibration(artifacts.metadata, "temperature")
        self.logits = torch.from_numpy(scores.array("logits")) / temperature
        self.probs = label_probs(self.logits, multi_label=self.multi_label).numpy()
        self.threshold = read_calibration(artifacts.metadata, "threshold")  # for several labels

    def one_hot(self, classes: Ints) -> NDArray[np.bool_]:
        matrix: NDArray[np.bool_] = np.arange(len(self.labels)) == classes[:, None]
        return matrix

    @property
    def is_true(self) -> NDArray[np.bool_]:
        """Whether a class is a label of a text: n c."""
        if self.multi_label:
            true: NDArray[np.bool_] = self.targets > 0
            return true
        return self.one_hot(self.targets)

    @property
    def is_predicted(self) -> NDArray[np.bool_]:
        """Whether a class is predicted: the most likely, or all that reach the threshold: n c."""
        if self.multi_label:
            predicted: NDArray[np.bool_] = self.probs >= self.threshold
            return predicted
        return self.one_hot(self.probs.argmax(axis=1))

    @property
    def is_correct(self) -> NDArray[np.bool_]:
        """Whether the predicted labels of a text are exactly the true ones: n."""
        correct: NDArray[np.bool_] = (self.is_true == self.is_predicted).all(axis=1)
        return correct

    def metrics(self) -> dict[str, Any]:
        loss = label_loss(self.logits.double(), torch.from_numpy(self.targets))
        return {
            "loss": float(loss) / max(len(self.index), 1),
            "accuracy": float(self.is_correct.mean()),
            "f1": float(f1_of_sums(self.outcomes().sum(axis=0, keepdims=True))[0]),
            "examples": len(self.index),
        }

    def outcomes(self) -> NDArray[np.float64]:
        """Whether each class is true and predicted, predicted, and true: n 3c."""
        true, predicted = self.is_true, self.is_predicted
        return np.concatenate((true & predicted, predicted, true), axis=1).astype(np.float64)

    def per_class(self) -> list[dict[str, Any]]:
        """Precision, recall and F1 of each class, and the number of texts with it.

        None if undefined: precision without predictions, recall without texts.
        """
        both, predicted, true = np.split(self.outcomes().sum(axis=0), 3)
        return [
            {
                "label": label,
                "precision": float(b / p) if p else None,
                "recall": float(b / t) if t else None,
                "f1": float(2 * b / (p + t)) if p + t else None,
                "examples": int(t),
            }
            for label, b, t, p in zip(self.labels, both, true, predicted, strict=True)
        ]

    def confusion(self) -> Ints:
        """Counts of true (rows) and predicted (columns) classes: c c."""
        size = len(self.labels)
        cells = self.targets * size + self.probs.argmax(axis=1)
        return np.bincount(cells, minlength=size**2).reshape(size, size)

    def calibration(self) -> tuple[NDArray[np.float64], NDArray[np.float64], Ints]:
        """For bins of equal width: mean probability of the prediction, accuracy, and count."""
        if self.multi_label:
            confidence = self.probs.ravel()
            correct = self.is_true.ravel()
        else:
            confidence = self.probs.max(axis=1)
            correct = self.is_correct
        bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
        counts = np.bincount(bins, minlength=CALIBRATION_BINS)
        sums = [np.bincount(bins, x, CALIBRATION_BINS) for x in (confidence, correct)]
        return sums[0] / counts.clip(min=1), sums[1] / counts.clip(min=1), counts

    def calibration_error(self) -> float:
        """The expected calibration error: mean |probability - accuracy|, weighted by count."""
        confidence, accuracy, counts = self.calibration()
        return float((np.abs(confidence - accuracy) * counts).sum() / max(counts.sum(), 1))

    def worst(self) -> list[dict[str, Any]]:
        """The wrong predictions that were most certain: their index, labels and probability."""
        wrongness = np.abs(self.is_true - self.probs).max(axis=1) * ~self.is_correct
        order = np.argsort(-wrongness, kind="stable")[: min(WORST_ERRORS, (~self.is_correct).sum())]
        errors = []
        for i in order:
            label, probs = self.prediction(i)
            true = join_labels(self.labels, self.is_true[i])
            row = {"index": int(self.index[i]), "label": label, "probabilities": probs}
            errors.append({**row, "true": true})
        return errors

    def prediction(self, i: int) -> tuple[str, dict[str, float]]:
        """The predicted labels of a text, joined by |, and the probability of each label."""
        probs = dict(zip(self.labels, self.probs[i].tolist(), strict=True))
        return join_labels(self.labels, self.is_predicted[i]), probs


def join_labels(labels: list[str], is_chosen: NDArray[np.bool_]) -> str:
    """The chosen labels, with | between them."""
    return "|".join(label for label, chosen in zip(labels, is_chosen, strict=True) if chosen)


def label_columns(prediction: str, probs: Mapping[str, float]) -> dict[str, Any]:
    """A prediction as the columns of a table, with the probability of each label."""
    columns = {f"p_{label}": prob for label, prob in probs.items()}
    return {"prediction": prediction, "probability": max(probs.values()), **columns}


def get_class_weights(artifacts: Artifacts, like: Tensor) -> Tensor | None:
    """The weights of the classes in the loss, if any, with the device and type of `like`: c."""
    weights = artifacts.metadata.get("class_weights")
    return None if weights is None else like.new_tensor(weights)


def calibrate(scores: Scores, artifacts: Artifacts) -> None:
    """Fit the temperature of a model to the scores of an evaluation, in the task's metadata."""
    logits, targets = (torch.from_numpy(scores.array(name)) for name in ("logits", "target"))
    if not len(logits) or not logits.isfinite().all():
        return
    logits = logits.double()
    temperature = fit_temperature(logits, targets, get_class_weights(artifacts, logits))
    artifacts.metadata["temperature"] = round(temperature, 3)
    if artifacts.metadata.get("multi_label"):
        labels = LabelScores(scores, artifacts)
        artifacts.metadata["threshold"] = fit_threshold(labels.probs, labels.is_true)


def fit_threshold(probs: NDArray[np.float32], is_true: NDArray[np.bool_]) -> float:
    """The probability from which labels are predicted that gives the best micro F1."""

    def f1(threshold: float) -> float:
        predicted = probs >= threshold
        return float(2 * (predicted & is_true).sum() / max(predicted.sum() + is_true.sum(), 1))

    return max((round(float(x), 2) for x in np.arange(0.1, 0.95, 0.05)), key=f1)


def label_details(scores: Scores, artifacts: Artifacts) -> dict[str, Any]:
    """What `evaluate` reports besides the metrics."""
    labels = LabelScores(scores, artifacts)
    return {
        "calibration_error": labels.calibration_error(),
        "classes": labels.per_class(),
        **({} if labels.multi_label else {"confusion": labels.confusion().tolist()}),
        "worst": labels.worst(),
    }


def label_predictions(scores: Scores, artifacts: Artifacts) -> dict[int, dict[str, Any]]:
    """The prediction for each example of an evaluation, as columns of a table, by its index."""
    labels = LabelScores(scores, artifacts)
    return {
        int(index): label_columns(*labels.prediction(i)) for i, index in enumerate(labels.index)
    }


def sample_accuracy(scores: Scores, artifacts: Artifacts) -> Sample:
    labels = LabelScores(scores, artifacts)
    ones = np.ones(len(labels.index))
    return Sample(labels.index, np.column_stack((labels.is_correct, ones)))


ACCURACY = SampledMetric(sample_accuracy, lambda sums: sums[:, 0] / sums[:, 1])


def sample_f1(scores: Scores, artifacts: Artifacts) -> Sample:
    labels = LabelScores(scores, artifacts)
    return Sample(labels.index, labels.outcomes())


def f1_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The macro F1 of the classes that are true or predicted at all: m 3c -> m."""
    both, predicted, true = np.split(sums, 3, axis=1)
    total = predicted + true
    f1 = np.where(total > 0, 2 * both / total.clip(min=1), 0)
    means: NDArray[np.float64] = f1.sum(axis=1) / (total > 0).sum(axis=1).clip(min=1)
    return means


MACRO_F1 = SampledMetric(sample_f1, f1_of_sums)


def compare_by_f1(spec: TaskSpec, artifacts: Artifacts) -> TaskSpec:
    """With several labels, models are compared by F1: accuracy counts only exact sets of labels."""
    if not artifacts.metadata.get("multi_label"):
        return spec
    return replace(spec, metric=METRICS["f1"], sampled_metric=MACRO_F1)


# --- plots ----------------------------------------------------------------------------------------


def plot_labels(scores: Scores, artifacts: Artifacts, file: Path) -> None:
    """Draw the confusion matrix (or the F1 of each class) and the calibration of a classifier."""
    labels = LabelScores(scores, artifacts)
    side = min(max(3.5, 0.55 * len(labels.labels) + 2), 20)
    figure, (left, right) = subplots(1, 2, figsize=(side + 4, max(side, 4)), width_ratios=(side, 4))
    if labels.multi_label:
        draw_f1(left, labels)
    else:
        draw_confusion(left, labels)
    draw_calibration(right, labels)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=110)


def draw_confusion(axes: Any, scores: LabelScores) -> None:
    """Draw the confusion matrix, as percentages of each true label."""
    counts = scores.confusion()
    labels = scores.labels
    fractions = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    axes.tick_params(labelsize=min(10, 600 / len(labels)))
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel(tr("predicted label"))
    axes.set_ylabel(tr("true label"))
    for true, row in enumerate(fractions):
        for predicted, value in enumerate(row):
            color = "white" if value > 0.5 else "black"
            if counts[true, predicted] and len(labels) <= 50:
                axes.text(predicted, true, f"{value:.0%}", ha="center", va="center", color=color)


def draw_f1(axes: Any, scores: LabelScores) -> None:
    """Draw the F1 of each class as a bar."""
    rows = scores.per_class()
    axes.barh([row["label"] for row in rows], [row["f1"] or 0 for row in rows], color="tab:blue")
    axes.set_xlim(0, 1)
    axes.set_xlabel("F1")
    axes.invert_yaxis()


def draw_calibration(axes: Any, scores: LabelScores) -> None:
    """Draw how often predictions are correct, against their probability."""
    confidence, accuracy, counts = scores.calibration()
    filled = counts > 0
    axes.plot([0, 1], [0, 1], color="gray", linewidth=1, linestyle="--")
    sizes = 20 + 180 * counts[filled] / counts.max()
    axes.scatter(confidence[filled], accuracy[filled], s=sizes, color="tab:blue", alpha=0.8)
    axes.set_xlabel(tr("probability of the prediction"))
    axes.set_ylabel(tr("fraction that is correct"))
    error = f"{scores.calibration_error():.3f}"
    axes.set_title(tr("calibration error {error}", error=error), fontsize=10)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_box_aspect(1)
