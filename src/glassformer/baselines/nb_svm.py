"""NB-SVM: a linear classifier over the n-grams that a text contains.

It ignores word order beyond an n-gram, and is hard to beat. Shapes: b batch, t tokens, c classes.
"""

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.layout import SequenceLayout, mark_padding
from glassformer.nn.ngram_classifier import NGramClassifier


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_000
    classes: int = 2
    order: int = 3  # max n-gram length
    min_count: int = 2  # min number of occurrences of an n-gram
    svm_c: float = 0.1  # weight of the squared hinge loss relative to the L2 penalty


class NBSVM(Network):
    """A bag-of-n-grams classifier; its weights are fitted directly, without training steps."""

    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.FITTED, Trait.PADDING_INVARIANT})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.svm = NGramClassifier(
            c.vocab, c.classes, order=c.order, min_count=c.min_count, svm_c=c.svm_c
        )

    def forward(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Class logits of each sequence: b t -> b c."""
        logits: Tensor = self.svm(mark_padding(ids, SequenceLayout.from_ids(ids, keep).keep))
        return logits

    def fit(self, ids: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> None:
        """Fit to texts, which are concatenated with -1 between them; see `NGramClassifier.fit`."""
        self.svm.fit(ids, labels, class_weights)
