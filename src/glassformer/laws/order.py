"""Laws for networks in which only the position embedding encodes the order of tokens."""

import torch

from glassformer.laws.comparison import require_close, require_different
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import Network, Trait
from glassformer.trace import Trace


def without_positions(network: Network) -> Trace:
    """A trace that sets the position embedding to 0."""
    names = [name for name, _ in network.named_modules() if name.split(".")[-1] == "position"]
    shortest = min(names, key=len)  # the others are inside attention
    return Trace(network, edit={shortest: torch.zeros_like})


@law(Trait.ORDER_FREE)
@torch.no_grad()
def check_permuted_input_gives_permuted_output(subject: Subject) -> None:
    """The order matters; without positions, a permuted input gives the same outputs, permuted.

    If the output is computed from the first token, that token stays first.
    """
    ids = subject.ids()
    order = torch.randperm(subject.length, generator=subject.generator(3)).to(ids.device)
    if subject.has(Trait.FIRST_TOKEN):
        order = torch.cat((order[order == 0], order[order != 0]))

    def permute_input_and_output() -> tuple[torch.Tensor, torch.Tensor]:
        output = subject(ids)
        permuted_output = output if subject.has(Trait.CLASSIFIER) else output[:, order]
        return subject(ids[:, order]), permuted_output

    require_different(*permute_input_and_output(), subject.tolerance, "with positions")
    with without_positions(subject.network):
        actual, expected = permute_input_and_output()
    require_close(actual, expected, subject.tolerance, "without positions")


@law(Trait.SOURCE_ORDER_FREE)
@torch.no_grad()
def check_source_order_comes_from_its_positions(subject: Subject) -> None:
    """The order of the source matters; without positions, it does not."""
    ids, source = subject.ids(), subject.source()
    permuted = source[:, [3, 1, 6, 0, 5, 2, 4]]
    outputs = [subject(ids, source=x) for x in (permuted, source)]
    require_different(outputs[0], outputs[1], subject.tolerance, "with positions")
    with without_positions(subject.network):
        outputs = [subject(ids, source=x) for x in (permuted, source)]
    require_close(outputs[0], outputs[1], subject.tolerance, "without positions")
