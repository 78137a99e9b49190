"""The class of laws, and the decorator that makes a law from a function."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from glassformer.laws.comparison import BrokenLawError
from glassformer.laws.subject import Subject
from glassformer.models.network import Network, Trait


@dataclass(frozen=True)
class Law:
    """A check of one property, for networks that have some traits and lack others.

    Calling it with a subject raises `BrokenLawError` if the property does not hold.
    """

    check: Callable[[Subject], None]
    needs: frozenset[Trait] = frozenset()
    without: frozenset[Trait] = frozenset()
    when: Callable[[Network], bool] | None = None  # a further condition

    @property
    def name(self) -> str:
        return self.check.__name__.removeprefix("check_").replace("_", " ")

    @property
    def description(self) -> str:
        """The property in one sentence."""
        return " ".join((self.check.__doc__ or "").partition("\n\n")[0].split())

    def applies_to(self, network: Network) -> bool:
        traits_match = self.needs <= network.traits and not self.without & network.traits
        return traits_match and (self.when is None or self.when(network))

    def __call__(self, subject: Subject) -> None:
        """Check the property in eval mode; the network and torch's random state do not change."""
        if any(module.training for module in subject.network.modules()):
            subject = subject.copy()
            subject.network.eval()
        device = subject.network.device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            torch.manual_seed(subject.seed)
            try:
                self.check(subject)
            except BrokenLawError as error:
                error.law = self.name
                error.network = subject.name or type(subject.network).__name__
                raise


def law(
    *needs: Trait, without: Trait | None = None, when: Callable[[Network], bool] | None = None
) -> Callable[[Callable[[Subject], None]], Law]:
    """Make a law from a function, for networks with all traits in `needs` but not `without`."""
    excluded = frozenset() if without is None else frozenset({without})
    return lambda check: Law(check, frozenset(needs), excluded, when)
