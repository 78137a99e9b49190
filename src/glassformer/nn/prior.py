"""The base class of priors, which add to the logits of a network what n-grams predict."""

from torch import nn


class Prior(nn.Module):
    """Part of a network: fitted to the training data in one pass, before the first step."""

    @property
    def order(self) -> int:
        """The max context length; for a classifier, the max n-gram length."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of n-grams that it stores."""
        raise NotImplementedError

    @property
    def max_length(self) -> int:
        """The number of tokens in the longest n-grams."""
        raise NotImplementedError

    def start_from(self, base: "Prior | None") -> None:
        """Set the trained part for a network that was trained before, with the prior `base`."""
