"""A text classifier with the interface of scikit-learn.

    from glassformer.sklearn import GlassClassifier

    classifier = GlassClassifier(minutes=2).fit(texts, labels)
    classifier.predict(["a lovely film"])

Needs scikit-learn: pip install 'glassformer[sklearn]'.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.api import train
from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter, Reporter

try:
    from sklearn.base import (  # type: ignore[import-untyped,unused-ignore]
        BaseEstimator,
        ClassifierMixin,
    )
    from sklearn.utils.multiclass import (  # type: ignore[import-untyped,unused-ignore]
        check_classification_targets,
    )
    from sklearn.utils.validation import (  # type: ignore[import-untyped,unused-ignore]
        check_is_fitted,
        column_or_1d,
    )
except ImportError:
    raise GlassError(
        "GlassClassifier needs scikit-learn: pip install 'glassformer[sklearn]'"
    ) from None


class GlassClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a text classifier; the parameters are those of `glass train classify`.

    Texts are a list, an array or a Series of strings; a table or array with two columns has pairs
    of texts. Labels can be strings or numbers. Without `minutes` or `steps`, training takes up to
    5 minutes. `settings` are as for `--set`; with `verbose`, progress is shown. The trained model
    is `model_`, a `glassformer.Model`.
    """

    def __init__(
        self,
        model: str | None = None,
        minutes: float | None = None,
        steps: int | None = None,
        settings: Sequence[str] = (),
        class_weights: bool = False,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.minutes = minutes
        self.steps = steps
        self.settings = settings
        self.class_weights = class_weights
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "GlassClassifier":  # noqa: N803
        """Train on texts X with labels y; a tenth of them is held out to choose the weights."""
        rows = to_rows(X)
        if y is None:
            raise ValueError("GlassClassifier requires y to be passed, but the target y is None")
        if np.ndim(y) > 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, targets = np.unique(np.asarray(y), return_inverse=True)
        if len(rows) != len(targets):
            raise ValueError(f"X has {len(rows)} texts, but y has {len(targets)} labels")
        if len(self.classes_) < 2:
            raise ValueError(
                "the classifier needs at least two classes, but the data has one class"
            )
        data = [(*row, f"{target:06}") for row, target in zip(rows, targets, strict=True)]
        budget = {"minutes": self.minutes, "steps": self.steps}
        with TemporaryDirectory() as folder:
            self.model_ = train(
                "classify",
                data,
                run=Path(folder) / "run",
                model=self.model,
                settings=list(self.settings),
                class_weights=self.class_weights,
                seed=self.seed,
                reporter=Reporter() if self.verbose else NullReporter(),
                **{name: value for name, value in budget.items() if value is not None},
            )
        self.n_texts_ = len(rows[0])
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The probability of each class in `classes_`, texts x classes."""
        check_is_fitted(self)
        rows = to_rows(X)
        if any(len(row) != self.n_texts_ for row in rows):
            raise ValueError(f"expected {self.n_texts_} texts in each row, as in training")
        probs = self.model_.predict_proba(rows)
        columns = [int(label) for label in self.model_.labels]
        result = np.zeros((len(rows), len(self.classes_)))
        result[:, columns] = probs
        return result

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most likely class of each text."""
        probs = self.predict_proba(X)
        return np.asarray(self.classes_[probs.argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        tags.non_deterministic = True  # the number of steps depends on the speed of the machine
        return tags


def to_rows(X: Any) -> list[tuple[str, ...]]:  # noqa: N803
    """The texts of each row."""
    if isinstance(X, str | bytes):
        raise ValueError("expected a list of texts, got one text; put it into a list")
    if hasattr(X, "to_numpy"):  # pandas and polars
        X = X.to_numpy()  # noqa: N806
    array = np.asarray(X, dtype=object)
    if array.ndim not in (1, 2) or not len(array):
        raise ValueError(f"expected a list of texts or of pairs of texts, got shape {array.shape}")
    rows = [tuple(row) if array.ndim == 2 else (row,) for row in array]
    for number, row in enumerate(rows):
        if not 1 <= len(row) <= 2 or not all(isinstance(text, str) for text in row):
            raise ValueError(f"row {number} is not a text or a pair of texts: {str(row)[:80]}")
        if not any(text.strip() for text in row):
            raise ValueError(f"row {number} is an empty text")
    return rows
