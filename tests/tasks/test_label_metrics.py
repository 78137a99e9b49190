"""Metrics of labels against scikit-learn, calibration, several labels, and their plots."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.nn.labels import label_loss, label_probs
from glassformer.nn.ngram_classifier import NGramClassifier, weigh_texts
from glassformer.tasks import TASKS
from glassformer.tasks.classify import ClassifyCodec, balance_classes, encode_labels
from glassformer.tasks.label_metrics import (
    MACRO_F1,
    LabelScores,
    calibrate,
    compare_by_f1,
    draw_confusion,
    fit_temperature,
    fit_threshold,
    label_columns,
    label_details,
    label_predictions,
    plot_labels,
    sample_accuracy,
)
from glassformer.tasks.task import Artifacts, Scores, read_calibration
from glassformer.text.plain import Characters

LABELS = ["a", "b", "c"]


def make_scores(n=200, multi_label=False, sharpness=2.0, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)).astype(np.float32)
    probs = torch.from_numpy(logits)
    if multi_label:
        target = (rng.random((n, 3)) < probs.sigmoid().numpy()).astype(np.int64)
    else:
        cumulative = probs.softmax(-1).cumsum(-1).numpy()
        target = (rng.random((n, 1)) > cumulative).sum(axis=1).clip(max=2).astype(np.int64)
    arrays = {"index": [np.arange(n)], "target": [target], "logits": [sharpness * logits]}
    metadata = {"labels": LABELS, **({"multi_label": True} if multi_label else {})}
    return Scores(arrays=arrays), Artifacts(metadata)


def test_metrics_are_those_of_scikit_learn():
    scores, artifacts = make_scores()
    labels = LabelScores(scores, artifacts)
    true, predicted = labels.targets, labels.probs.argmax(axis=1)
    found = labels.metrics()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(true, predicted))
    assert found["f1"] == pytest.approx(sk.f1_score(true, predicted, average="macro"))
    assert found["loss"] == pytest.approx(sk.log_loss(true, labels.probs), rel=1e-5)
    assert labels.confusion().tolist() == sk.confusion_matrix(true, predicted).tolist()
    precision, recall, f1, support = sk.precision_recall_fscore_support(true, predicted)
    for row, *expected in zip(labels.per_class(), precision, recall, f1, support, strict=True):
        names = ("precision", "recall", "f1", "examples")
        assert [row[name] for name in names] == pytest.approx(expected)


def test_scores_of_labels_without_texts_or_predictions_are_undefined():
    logits = np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 0.0]], dtype=np.float32)
    arrays = {"index": [np.arange(2)], "target": [np.array([0, 1])], "logits": [logits]}
    artifacts = Artifacts({"labels": ["a", "b", "c"]})
    first, second, third = LabelScores(Scores(arrays=arrays), artifacts).per_class()
    assert (first["precision"], first["recall"]) == (0.5, 1.0)
    assert (second["precision"], second["recall"], second["f1"]) == (None, 0.0, 0.0)
    assert (third["precision"], third["recall"], third["f1"]) == (None, None, None)


def test_metrics_of_several_labels_are_those_of_scikit_learn():
    scores, artifacts = make_scores(multi_label=True)
    labels = LabelScores(scores, artifacts)
    found = labels.metrics()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(labels.targets, labels.probs > 0.5))
    assert found["f1"] == pytest.approx(
        sk.f1_score(labels.targets, labels.probs > 0.5, average="macro")
    )
    assert "confusion" not in label_details(scores, artifacts)
    chosen = label_predictions(scores, artifacts)[0]["prediction"].split("|")
    assert [name for name in LABELS if labels.probs[0][LABELS.index(name)] >= 0.5] == [
        name for name in chosen if name
    ]


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_temperature_minimizes_the_loss_and_calibrates(multi_label):
    scores, artifacts = make_scores(4000, multi_label, sharpness=3.0)
    before = LabelScores(scores, artifacts)
    calibrate(scores, artifacts)
    assert artifacts.metadata["temperature"] == pytest.approx(3.0, rel=0.1)
    after = LabelScores(scores, artifacts)
    assert after.metrics()["loss"] < before.metrics()["loss"]
    if multi_label:  # the threshold is fitted too
        assert after.metrics()["f1"] > before.metrics()["f1"]
    else:
        assert after.metrics()["accuracy"] == before.metrics()["accuracy"]
    assert after.calibration_error() < 0.03 < before.calibration_error()
    logits, targets = torch.from_numpy(before.logits.numpy()).double(), torch.tensor(after.targets)
    best = fit_temperature(logits, targets, None)
    for other in (best * 0.9, best * 1.1):
        assert label_loss(logits / best, targets) < label_loss(logits / other, targets)


def test_the_temperature_minimizes_the_loss_with_the_weights_of_the_classes():
    scores, artifacts = make_scores(1000)
    logits, targets = (torch.from_numpy(scores.array(n)) for n in ("logits", "target"))
    weights = torch.tensor([9.0, 1.0, 0.1], dtype=torch.float64)
    shifted = logits.double() + torch.tensor([0.0, 4.0, -2.0])  # wrong most often about a class
    scores.arrays["logits"] = [shifted.numpy()]
    artifacts.metadata["class_weights"] = weights.tolist()
    calibrate(scores, artifacts)
    found = artifacts.metadata["temperature"]
    assert found == pytest.approx(fit_temperature(shifted, targets, weights), abs=1e-3)
    assert found != pytest.approx(fit_temperature(shifted, targets, None), rel=0.1)


def test_the_threshold_is_the_one_with_the_best_micro_f1():
    probs = np.array([[0.18, 0.9], [0.3, 0.12], [0.22, 0.05], [0.11, 0.6]], dtype=np.float32)
    is_true = np.array([[False, True], [True, False], [True, False], [False, True]])
    assert fit_threshold(probs, is_true) == 0.2  # 0.2 separates them
    assert fit_threshold(probs, probs > 0.5) == 0.35  # the lowest of those that do
    assert fit_threshold(probs, np.ones((4, 2), dtype=bool)) == 0.1


def test_a_class_that_is_neither_true_nor_predicted_does_not_lower_f1():
    target = np.array([0, 1, 0, 1])
    logits = np.array([[2, 0, 0], [2, 0, 0], [2, 0, 0], [0, 2, 0]], dtype=np.float32)
    arrays = {"index": [np.arange(4)], "target": [target], "logits": [logits]}
    labels = LabelScores(Scores(arrays=arrays), Artifacts({"labels": LABELS}))
    assert labels.metrics()["f1"] == pytest.approx((2 * 2 / 5 + 2 * 1 / 3) / 2)


def test_with_several_labels_models_are_compared_by_f1_with_its_interval():
    spec = TASKS["classify"]
    assert compare_by_f1(spec, Artifacts({"labels": LABELS})) is spec
    several = compare_by_f1(spec, Artifacts({"labels": LABELS, "multi_label": True}))
    assert (several.metric.name, several.sampled_metric) == ("f1", MACRO_F1)
    scores, artifacts = make_scores(multi_label=True)
    sums = several.sampled_metric.sample(scores, artifacts).statistics.sum(axis=0, keepdims=True)
    expected = LabelScores(scores, artifacts).metrics()["f1"]
    assert several.sampled_metric.value(sums)[0] == pytest.approx(expected)


def test_with_several_labels_calibration_counts_every_label():
    logits = np.log(np.array([[9, 1 / 9], [9, 1 / 9]], dtype=np.float32))  # 0.9 and 0.1
    arrays = {"index": [np.arange(2)], "target": [np.array([[1, 1], [0, 0]])], "logits": [logits]}
    labels = LabelScores(
        Scores(arrays=arrays), Artifacts({"labels": ["x", "y"], "multi_label": True})
    )
    confidence, accuracy, counts = labels.calibration()
    filled = counts > 0
    np.testing.assert_allclose(confidence[filled], [0.1, 0.9], rtol=1e-5)
    assert accuracy[filled].tolist() == [0.5, 0.5]
    assert counts[filled].tolist() == [2, 2]
    assert labels.calibration_error() == pytest.approx(0.4, rel=1e-5)


def test_a_prediction_is_shown_with_its_probability():
    found = label_columns("b", {"a": 0.2, "b": 0.7, "c": 0.1})
    assert found == {"prediction": "b", "probability": 0.7, "p_a": 0.2, "p_b": 0.7, "p_c": 0.1}


def test_the_calibration_error_is_the_weighted_gap_of_the_bins():
    logits = np.log(np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], dtype=np.float32))
    arrays = {"index": [np.arange(4)], "target": [np.array([0, 0, 1, 1])], "logits": [logits]}
    labels = LabelScores(Scores(arrays=arrays), Artifacts({"labels": ["x", "y"]}))
    expected = 3 / 4 * abs(0.9 - 2 / 3) + 1 / 4 * abs(0.6 - 1)
    assert labels.calibration_error() == pytest.approx(expected, abs=1e-6)


def test_the_worst_errors_are_the_most_certain_ones():
    scores, artifacts = make_scores()
    labels = LabelScores(scores, artifacts)
    wrong = np.flatnonzero(~labels.is_correct)
    lowest = min(wrong, key=lambda i: labels.probs[i, labels.targets[i]])
    first = label_details(scores, artifacts)["worst"][0]
    assert first["index"] == lowest
    assert first["true"] == LABELS[labels.targets[lowest]] != first["label"]


def test_with_several_labels_the_worst_error_is_the_most_certain_single_label():
    probs = np.array([[0.95, 0.1, 0.1], [0.6, 0.6, 0.6], [0.9, 0.1, 0.1]], dtype=np.float32)
    target = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]])  # the last one is right
    logits = np.log(probs / (1 - probs))
    arrays = {"index": [np.arange(3) + 5], "target": [target], "logits": [logits]}
    scores, artifacts = Scores(arrays=arrays), Artifacts({"labels": LABELS, "multi_label": True})
    worst = label_details(scores, artifacts)["worst"]
    assert [(row["index"], row["label"], row["true"]) for row in worst] == [
        (5, "a", ""), (6, "a|b|c", "")
    ]  # fmt: skip


def test_a_perfect_model_has_no_worst_errors(tmp_path):
    target = np.array([0, 1, 2] * 10)
    logits = 9.0 * np.eye(3, dtype=np.float32)[target]
    arrays = {"index": [np.arange(30)], "target": [target], "logits": [logits]}
    scores, artifacts = Scores(arrays=arrays), Artifacts({"labels": LABELS})
    assert label_details(scores, artifacts)["worst"] == []
    sample = sample_accuracy(scores, artifacts)
    assert sample.statistics.tolist() == [[1.0, 1.0]] * 30


def test_the_confusion_matrix_is_drawn_as_percentages_of_each_true_label():
    target, predicted = np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 1])
    logits = 5.0 * np.eye(3, dtype=np.float32)[predicted]
    arrays = {"index": [np.arange(5)], "target": [target], "logits": [logits]}
    scores = LabelScores(Scores(arrays=arrays), Artifacts({"labels": LABELS}))
    _, axes = subplots(figsize=(3, 3))
    draw_confusion(axes, scores)
    texts = {text.get_position(): text.get_text() for text in axes.texts}  # predicted, true
    assert texts == {(0, 0): "75%", (1, 0): "25%", (1, 1): "100%"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted label", "true label")


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_plot_has_two_panels(tmp_path, multi_label):
    scores, artifacts = make_scores(multi_label=multi_label)
    plot_labels(scores, artifacts, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_not_finite_logits_are_not_calibrated():
    arrays = {
        "index": [np.arange(2)], "target": [np.array([0, 1])],
        "logits": [np.full((2, 2), np.nan, dtype=np.float32)],
    }  # fmt: skip
    artifacts = Artifacts({"labels": ["x", "y"]})
    calibrate(Scores(arrays=arrays), artifacts)
    assert "temperature" not in artifacts.metadata


# --- targets, weights and losses ------------------------------------------------------------------


def test_labels_become_indices_or_zeros_and_ones():
    assert encode_labels(["b", "a"], LABELS, multi_label=False).tolist() == [1, 0]
    several = encode_labels(["a|c", "b", " c | a "], LABELS, multi_label=True)
    assert several.tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_balanced_weights_give_each_class_the_same_total():
    targets = np.array([0] * 90 + [1] * 10)
    weights = balance_classes(targets, 2)
    assert [90 * weights[0], 10 * weights[1]] == pytest.approx([50, 50], rel=1e-3)
    several = np.array([[1, 0]] * 20 + [[0, 1]] * 80)
    assert balance_classes(several, 2) == pytest.approx([4.0, 0.25])


def test_the_loss_of_several_labels_is_a_sum_of_binary_losses():
    logits, targets = torch.randn(5, 3), torch.randint(0, 2, (5, 3))
    probs = label_probs(logits, multi_label=True)
    expected = -(targets * probs.log() + (1 - targets) * (1 - probs).log()).sum()
    assert float(label_loss(logits, targets)) == pytest.approx(float(expected), rel=1e-5)
    weights = torch.tensor([2.0, 1.0, 3.0])
    expected = -(weights * targets * probs.log() + (1 - targets) * (1 - probs).log()).sum()
    assert float(label_loss(logits, targets, weights)) == pytest.approx(float(expected), rel=1e-5)


def test_texts_are_weighed_by_their_class():
    is_class = torch.tensor([[True, False], [False, True]])
    weights = torch.tensor([2.0, 3.0])
    assert weigh_texts(is_class, False, weights).tolist() == [[2.0, 2.0], [3.0, 3.0]]
    assert weigh_texts(is_class, True, weights).tolist() == [[2.0, 1.0], [1.0, 3.0]]
    assert weigh_texts(is_class, True, None).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_nb_svm_learns_several_labels_and_leans_to_weighted_classes():
    texts = [[1, 2], [1, 3], [2, 3], [1, 2, 3], [4, 2], [4, 3]] * 10
    ids = torch.tensor([i for text in texts for i in (*text, -1)][:-1])
    targets = torch.tensor([[int(1 in t), int(2 in t)] for t in texts])
    classifier = NGramClassifier(5, 2)
    classifier.fit(ids, targets)
    rows = torch.tensor([[1, 2, -1], [1, 3, -1], [4, 2, -1], [4, 3, -1]])
    assert (classifier(rows) > 0).tolist() == [
        [True, True], [True, False], [False, True], [False, False]
    ]  # fmt: skip
    noisy = torch.tensor([0] * 54 + [1] * 6)
    same = torch.tensor([i for _ in noisy for i in (1, 2, -1)][:-1])
    plain, weighted = NGramClassifier(5, 2), NGramClassifier(5, 2)
    plain.fit(same, noisy)
    weighted.fit(same, noisy, torch.tensor(balance_classes(noisy.numpy(), 2)))
    text = torch.tensor([[1, 2]])
    assert plain(text).argmax() == 0
    assert weighted(text)[0, 1] > plain(text)[0, 1]


@pytest.mark.parametrize("value", ["", "a", [[]], True, 0, -1.0, math.inf, math.nan])
def test_calibration_is_a_positive_number(value):
    for name in ("temperature", "threshold"):
        with pytest.raises(GlassError, match=f"the model's {name} must be a positive number"):
            read_calibration({name: value}, name)
    with pytest.raises(GlassError, match="the model's temperature"):
        ClassifyCodec(Artifacts({"labels": ["x", "y"], "temperature": value}, Characters("ab")))


def test_a_model_without_calibration_keeps_its_probabilities():
    assert read_calibration({}, "temperature") == 1.0
    assert read_calibration({}, "threshold") == 0.5
    assert read_calibration({"temperature": 2}, "temperature") == 2.0
