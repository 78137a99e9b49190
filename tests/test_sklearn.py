"""`GlassClassifier` passes scikit-learn's estimator checks, given numeric inputs as text."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted, validate_data

from glassformer.sklearn import GlassClassifier

GOOD = [f"what a lovely film number {i}, great" for i in range(30)]
BAD = [f"an awful boring thing number {i}, bad" for i in range(30)]
TEXTS, LABELS = GOOD + BAD, ["pos"] * 30 + ["neg"] * 30


def to_texts(rows):
    return [" ".join(f"x{j}is{round(2 * float(v))}" for j, v in enumerate(row)) for row in rows]


class NumbersAsTexts(GlassClassifier):
    """A classifier of numbers, which are what scikit-learn's checks work with."""

    def fit(self, X, y):  # noqa: N803
        rows, labels = validate_data(self, X, y)
        return super().fit(to_texts(rows), labels)

    def predict_proba(self, X):  # noqa: N803
        check_is_fitted(self)
        return super().predict_proba(to_texts(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        tags.no_validation = tags.non_deterministic = False
        return tags


EXCLUDED = {
    "check_array_api_input": "needs SciPy's array API, which is off",
    "check_estimators_pickle": "a saved model is a folder; nothing of ours is pickled",
}
CHECKS = [
    (check.func.__name__, check)
    for _, check in estimator_checks_generator(NumbersAsTexts(model="nb_svm"))
    if check.func.__name__ not in EXCLUDED
]


@pytest.mark.slow
@pytest.mark.parametrize("check", [c for _, c in CHECKS], ids=[name for name, _ in CHECKS])
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_pass(check):
    check(NumbersAsTexts(model="nb_svm"))


def test_most_checks_apply():
    assert len(CHECKS) > 45


def test_texts_are_classified_with_labels_of_any_type():
    for labels in (LABELS, [int(label == "pos") for label in LABELS], np.array(LABELS)):
        classifier = GlassClassifier(model="nb_svm").fit(TEXTS, labels)
        assert classifier.classes_.tolist() == sorted(set(np.asarray(labels).tolist()))
        assert (classifier.predict(TEXTS) == np.asarray(labels)).mean() > 0.95
        probs = classifier.predict_proba(TEXTS[:3])
        assert probs.shape == (3, 2)
        assert probs.sum(axis=1) == pytest.approx(1)
        assert classifier.predict(TEXTS[:1]).dtype == np.asarray(labels).dtype


def test_series_tables_and_pairs_are_read():
    for texts in (pd.Series(TEXTS), pl.Series(TEXTS), np.array(TEXTS), np.array(TEXTS)[:, None]):
        classifier = GlassClassifier(model="nb_svm").fit(texts, LABELS)
        assert classifier.score(texts, LABELS) > 0.95
    pairs = pd.DataFrame({"a": TEXTS, "b": TEXTS[::-1]})
    classifier = GlassClassifier(model="nb_svm").fit(pairs, LABELS)
    assert classifier.score(pairs, LABELS) > 0.95
    with pytest.raises(ValueError, match="expected 2 texts in each row"):
        classifier.predict(TEXTS)


def test_it_works_in_pipelines_and_cross_validation():
    pipeline = make_pipeline(
        FunctionTransformer(lambda texts: [text.upper() for text in texts]),
        clone(GlassClassifier(model="nb_svm")),
    )
    order = np.random.default_rng(0).permutation(60)
    texts, labels = np.array(TEXTS)[order], np.array(LABELS)[order]
    assert cross_val_score(pipeline, texts, labels, cv=3).mean() > 0.9


def test_a_network_is_trained_with_the_given_settings():
    classifier = GlassClassifier(steps=3, settings=["model.dim=8"], class_weights=True)
    model = classifier.fit(TEXTS, LABELS).model_
    assert (model.name, model.config.dim, model.metrics["steps"]) == ("text_cnn", 8, 3)
    assert model.task["class_weights"] == pytest.approx([1.0, 1.0], rel=0.3)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("one text", ["a"], "got one text"),
        ([1, 2], ["a", "b"], "row 0 is not a text"),
        (["x", None], ["a", "b"], "row 1 is not a text"),
        (["x", "y"], ["a", "a"], "two classes"),
        (["x", "y"], ["a"], "X has 2 texts, but y has 1 labels"),
        ([], [], "expected a list of texts"),
    ],
)
def test_other_inputs_are_rejected(texts, labels, message):
    with pytest.raises(ValueError, match=message):
        GlassClassifier(model="nb_svm").fit(texts, labels)
