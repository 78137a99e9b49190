"""What each head does: where it looks, and what it costs to switch it off."""

from dataclasses import asdict, dataclass
from math import nan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.core.reporter import NullReporter, ProgressBar, Reporter
from glassformer.inspection.displayable import Displayable
from glassformer.inspection.sheet import Step, Table
from glassformer.models.network import Network, Trait
from glassformer.trace import Trace, Zero

ATTENTION_TARGETS = ("previous", "first", "same", "duplicate", "induction", "distance")
LENGTH = 24  # tokens of a text by chance, which is then said twice


@dataclass(frozen=True)
class HeadStats:
    """How much of its attention a head gives to whom, and what is lost without it.

    None where there is no such token: in attention to a source, or in a text without repetition.
    """

    name: str  # of the layer
    head: int
    previous: float | None  # the token before
    first: float | None
    same: float | None  # the token itself
    duplicate: float | None  # the same token where it stood before
    induction: float | None  # what followed the same token before
    distance: float | None  # how far away it looks, in tokens
    cost: float  # nats: what its silence adds to the loss, or how far it moves the answer

    @property
    def title(self) -> str:
        return f"{self.name.removesuffix('.attention')} {self.head}"

    def row(self) -> dict[str, Any]:
        return asdict(self)


class HeadReport(Displayable, list[HeadStats]):
    """What every head of a model does."""

    even: dict[str, dict[str, float | None]]  # a head that looks at all alike, by kind of layer
    writes: bool  # whether a cost is what is added to the loss, or how far the answer moves

    def steps(self) -> list[Step]:
        """One table: a row for each head, and one for a head that looks at all alike."""
        columns = (*ATTENTION_TARGETS, "cost")
        found = [role.row() for role in self] + list(self.even.values())
        values = [[nan if (v := row.get(name)) is None else v for name in columns] for row in found]
        alike = [f"{tr('all alike')} {kind}".strip() for kind in self.even]
        rows = [*(role.title for role in self), *alike]
        says = tr(
            "Shares of attention: to the token before, the first, itself, the same token earlier, "
            "and what followed that (induction); how far it looks, in tokens. “All alike” is a "
            "head that looks at all it may alike."
        )
        says += (
            tr(" The cost of switching a head off: nats added to the loss of the text.")
            if self.writes
            else tr(" The cost of switching a head off: how far the answer moves, in nats (KL).")
        )
        names = [*map(tr, columns)]
        grid = torch.tensor(values)
        table = Table(tr("heads"), grid, rows, names, "given", 3, gaps=True, whole=True)
        return [Step(tr("Where each head looks, and what it is worth"), "", says, (table,))]


def repeated(vocab: int, context: int | None, seed: int = 0) -> Tensor:
    """Tokens by chance, said twice: whoever copies them must look back. 1 t"""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (1, min(LENGTH, (context or 2 * LENGTH) // 2)), generator=random)
    return torch.cat((ids, ids), dim=1)


def attention_shares(pattern: Tensor, ids: Tensor) -> dict[str, float | None]:
    """Shares of a head's attention, t t, over the tokens of one text, t; the mean over its rows."""
    place = torch.arange(len(ids), device=pattern.device)
    back = place[:, None] - place  # how far behind each row its column is
    same = (ids[:, None] == ids) & (back > 0)
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1] & (back[:, 1:] > 0)
    found: dict[str, float | None] = {}
    for name, where in (
        ("previous", back == 1),
        ("first", (place == 0)[None] & (back > 0)),
        ("same", (back == 0) & (place > 0)),
        ("duplicate", same),
        ("induction", after),
    ):
        rows = where.any(dim=1)
        share = (pattern * where).sum(dim=1)[rows]
        found[name] = float(share.mean()) if rows.any() else None
    return found | {"distance": float((pattern * back.abs()).sum(dim=1).mean())}


@torch.inference_mode()
def measure_heads(
    network: Network, inputs: dict[str, Tensor], reporter: Reporter | None = None
) -> HeadReport:
    """Measure every head of a network on one text."""
    reporter = reporter or NullReporter()
    with Trace(network, "*pattern", "*scores", allow_missing=True) as trace:
        whole = network(**inputs)
    if not trace:
        raise GlassError("this model has no attention, so that there are no heads to look at")
    found = HeadReport()
    found.even = {}
    layers = [name.removesuffix(".pattern") for name in trace if name.endswith("pattern")]
    found.writes = network.has(Trait.CACHED) and whole.ndim == 3 and whole.shape[1] > 1
    bar = ProgressBar(reporter, "heads", sum(len(trace[f"{layer}.pattern"][0]) for layer in layers))
    for layer in layers:
        pattern = trace[f"{layer}.pattern"][0].float()  # h t s
        ids = inputs["source" if layer.startswith("encoder") and "source" in inputs else "ids"][0]
        kind = layer.split(".")[0] if "source" in inputs else ""
        if "cross" not in layer and kind not in found.even:
            seen = trace[f"{layer}.scores"][0, 0].isfinite().float()
            found.even[kind] = attention_shares(seen / seen.sum(dim=1, keepdim=True), ids)
        for head, one in enumerate(pattern):
            shares = (
                dict.fromkeys(ATTENTION_TARGETS) if "cross" in layer else attention_shares(one, ids)
            )
            said = f"{layer}.head_outputs" if f"{layer}.head_outputs" in trace.names else layer
            lost = cost(network, inputs, whole, said, head, writes=found.writes)
            found.append(HeadStats(layer, head, **shares, cost=lost))
            bar.add(1)
    reporter.clear()
    return found


def cost(
    network: Network,
    inputs: dict[str, Tensor],
    whole: Tensor,
    name: str,
    head: int,
    *,
    writes: bool,
) -> float:
    """What is lost when a head, in the value of this name, says nothing.

    Of a model that writes, what is added to the loss of the text's own tokens; of others, and of a
    single token, how far the answer moves (the Kullback-Leibler divergence).
    """
    silent = Zero(
        head if name.endswith(".head_outputs") else None
    )  # or all of a layer with one head
    with Trace(network, edit={name: silent}):
        without = network(**inputs)
    if writes:
        answers = inputs["ids"][0, 1:]
        loss = [F.cross_entropy(out[0, :-1].float(), answers) for out in (without, whole)]
        return float(loss[0] - loss[1])
    old, new = (out.float().log_softmax(dim=-1).flatten(0, -2) for out in (whole, without))
    return float(F.kl_div(new, old, log_target=True, reduction="batchmean"))
