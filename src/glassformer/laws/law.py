"""What a law is, and the error that says which one does not hold."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from glassformer.laws.comparison import BrokenLawError
from glassformer.laws.subject import Subject
from glassformer.models.network import Network, Trait


@dataclass(frozen=True)
class Law:
    """A check of one property, for the networks that have some traits and lack others.

    Calling it with a subject raises `BrokenLawError` where the property does not hold.
    """

    check: Callable[[Subject], None]
    needs: frozenset[Trait] = frozenset()
    without: frozenset[Trait] = frozenset()
    when: Callable[[Network], bool] | None = None  # what no trait says

    @property
    def name(self) -> str:
        return self.check.__name__.removeprefix("check_").replace("_", " ")

    @property
    def description(self) -> str:
        """What must hold, in a sentence."""
        return " ".join((self.check.__doc__ or "").partition("\n\n")[0].split())

    def applies_to(self, network: Network) -> bool:
        fits = self.needs <= network.traits and not self.without & network.traits
        return fits and (self.when is None or self.when(network))

    def __call__(self, subject: Subject) -> None:
        """Check it in eval mode; torch's random state and the network stay as they are."""
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
    """Make a law of a function: for networks with the traits `needs`, if they are not `without`."""
    excluded = frozenset() if without is None else frozenset({without})
    return lambda check: Law(check, frozenset(needs), excluded, when)
