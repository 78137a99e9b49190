"""The base class of priors, which add the predictions of n-grams to a network's logits."""

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
        """Initialize the trained part from `base`, the prior of the pretrained network, if any."""
