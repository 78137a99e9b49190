"""The base class of priors, which add count-based predictions to the logits of a network."""

from typing import ClassVar

from torch import nn

from glassformer.core.i18n import tr


class Prior(nn.Module):
    """Part of a network: fitted directly to the training data, before the first step."""

    # Whether training leaves out the fold of each example. What that needs is not saved, so the
    # prior of a resumed run is fitted again.
    is_cross_fitted: ClassVar[bool] = False

    def describe(self) -> str:
        """What it stores of the training data, such as "4,000 n-grams of up to 7 tokens"."""
        raise NotImplementedError

    def start_from(self, base: "Prior | None") -> None:
        """Initialize the trained part from `base`, the prior of the base model, if it had one."""


def describe_ngrams(count: int, max_length: int) -> str:
    return tr("{count} n-grams of up to {length} tokens", count=f"{count:,}", length=max_length)
