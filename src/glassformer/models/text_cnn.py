"""A one-layer convolutional classifier: detects which phrases occur in a text, and how often.

The convolution scores every phrase of a few words (Kim, 2014). Each score is pooled over the text
twice: its maximum shows whether such a phrase occurs, and its sum how often. In training, word
dropout leaves out words at random, so that the prediction does not depend on a few of them.

Shapes: b batch, t tokens, d features, c classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models.network import ModelConfig, TextClassifier, Trait
from glassformer.nn.dropout import Dropout
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Tap, tap

EMBEDDING_STD = 0.1  # of the initial word embeddings


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 50_000
    classes: int = 2
    context: int = 1024  # sequences are truncated to it; longer ones would work
    dim: int = 96
    kernel_size: int = 3  # tokens in a phrase
    dropout: float = 0.5
    word_dropout: float = 0.3  # probability of leaving out a word


class TextCNN(TextClassifier):
    Config: TypeAlias = Config
    traits = frozenset({Trait.CLASSIFIER, Trait.ENCODER, Trait.PADDING_INVARIANT, Trait.COMPILABLE})
    embeddings = ("token",)
    taps: ClassVar[dict[str, Tap]] = {
        "features": Tap("b t d", "ReLU([…, X₋₁, X₀, X₊₁, …] W + b)"),
        "pooled": Tap("b 2d", "[max over the tokens, sum over the tokens / √t]"),
    }
    output_heads = ("head",)
    train_settings: ClassVar[Mapping[str, Any]] = {
        "max_epochs": 8.0,  # after that it only memorizes the texts
        "lr": 3e-3,
        "weight_decay": 0.01,
        "schedule": "linear",
        "warmup": 0.02,
    }

    @classmethod
    def suggest_sizes(cls, minutes: float, tokens: int) -> dict[str, Any]:
        """This model's own defaults for every budget, instead of the task's."""
        return {name: getattr(cls.Config, name) for name in ("context", "dim", "dropout")}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocab, c.dim)
        self.word_dropout = Dropout(c.word_dropout)
        # a linear layer on the words of each phrase: torch's convolutions build a kernel for
        # every new batch shape, which takes time and memory
        self.convolution = nn.Linear(c.kernel_size * c.dim, c.dim)
        self.dropout = Dropout(c.dropout)
        self.head = nn.Linear(2 * c.dim, c.classes)
        nn.init.normal_(self.token.weight, std=EMBEDDING_STD)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Class logits of each sequence: b t -> b c."""
        keep = torch.ones_like(ids) if keep is None else keep.long()
        x = self.features(ids, keep) * keep[..., None]  # b t d
        scale = keep.sum(dim=1, keepdim=True).clamp(min=1) ** -0.5
        pooled = torch.cat((x.amax(dim=1), x.sum(dim=1) * scale.to(x.dtype)), dim=1)
        logits: Tensor = self.head(self.dropout(tap("pooled", pooled)))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """The scores of the phrase around each token: b t -> b t d."""
        layout = SequenceLayout.from_ids(ids, keep)
        keep = torch.ones_like(ids) if layout.keep is None else layout.keep
        x = self.token(ids)  # b t d
        x = x * self.word_dropout(keep[..., None].to(x.dtype))
        size = self.config.kernel_size
        padded = F.pad(x, (0, 0, (size - 1) // 2, size // 2))
        words = [padded[:, i : i + ids.shape[1]] for i in range(size)]  # i-th words: b t d
        return tap("features", self.convolution(torch.cat(words, dim=2)).relu())
