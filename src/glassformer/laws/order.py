"""Laws of networks that know the order of tokens from their positions alone."""

import torch

from glassformer.laws.comparison import require_close, require_different
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Network, Trait
from glassformer.trace import Trace


def without_positions(network: Network) -> Trace:
    """A trace in which the embedding of every position is 0."""
    names = [name for name, _ in network.named_modules() if name.split(".")[-1] == "position"]
    shortest = min(names, key=len)  # the others are inside attention
    return Trace(network, edit={shortest: torch.zeros_like})


@law(Trait.POSITIONLESS)
@torch.no_grad()
def check_permuted_text_gives_permuted_output(subject: Subject) -> None:
    """Order matters; without positions, a permuted text gives the same outputs, permuted.

    Where the first token stands for the whole text, it stays the first.
    """
    ids = subject.ids()
    order = torch.randperm(subject.length, generator=subject.generator(3)).to(ids.device)
    if subject.has(Trait.FIRST_TOKEN):
        order = torch.cat((order[order == 0], order[order != 0]))

    def permute_after_and_before() -> tuple[torch.Tensor, torch.Tensor]:
        output = subject(ids)
        expected = output if subject.has(Trait.CLASSIFIER) else output[:, order]
        return subject(ids[:, order]), expected

    require_different(*permute_after_and_before(), subject.tolerance, "with positions")
    with without_positions(subject.network):
        actual, expected = permute_after_and_before()
    require_close(actual, expected, subject.tolerance, "without positions")


@law(Trait.SEQ2SEQ, Trait.ATTENTION)
@torch.no_grad()
def check_order_of_the_source_is_in_its_positions(subject: Subject) -> None:
    """The order of the source matters; without positions, it does not."""
    ids, source = subject.ids(), subject.source()
    permuted = source[:, [3, 1, 6, 0, 5, 2, 4]]
    outputs = [subject(ids, source=given) for given in (permuted, source)]
    require_different(outputs[0], outputs[1], subject.tolerance, "with positions")
    with without_positions(subject.network):
        outputs = [subject(ids, source=given) for given in (permuted, source)]
    require_close(outputs[0], outputs[1], subject.tolerance, "without positions")
