"""What each head attends to, and the effect of ablating it.

Shapes: h heads, t tokens, s source tokens.
"""

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

ATTENTION_STATS = ("previous", "first", "self", "duplicate", "induction", "distance")
PREDICTS_NEXT_TOKEN = frozenset({Trait.CAUSAL_LM, Trait.SEQ2SEQ})
LENGTH = 24  # number of random tokens before the copy


@dataclass(frozen=True)
class HeadStats:
    """The mean attention weight of a head on each kind of token, and the effect of ablating it.

    A value is None if there is no such token: in cross-attention, or if no token is repeated.
    """

    name: str  # layer name
    head: int
    previous: float | None  # the token before the query
    first: float | None
    own_token: float | None  # the query's own token
    duplicate: float | None  # an earlier occurrence of the query's token
    induction: float | None  # the token after an earlier occurrence
    distance: float | None  # mean distance between query and key, in tokens
    cost: float  # of ablating it, in nats: the increase in loss, or the KL divergence

    @property
    def title(self) -> str:
        return f"{self.name.removesuffix('.attention')} {self.head}"

    def row(self) -> dict[str, Any]:
        """The values by the names of the table and of JSON, where `own_token` is `self`."""
        return {"self" if k == "own_token" else k: value for k, value in asdict(self).items()}


class HeadReport(Displayable, list[HeadStats]):
    """The statistics of every head of a model."""

    uniform: dict[str, dict[str, float | None]]  # for uniform attention, by stack
    cost_is_loss: bool  # True: increase in loss; False: KL divergence

    def steps(self) -> list[Step]:
        """One table: a row for each head, and one for a head with equal weights."""
        columns = (*ATTENTION_STATS, "cost")
        stats = [head.row() for head in self] + list(self.uniform.values())
        values = [[nan if (v := row.get(name)) is None else v for name in columns] for row in stats]
        uniform = [f"{tr('uniform')} {layer}".strip() for layer in self.uniform]
        rows = [*(head.title for head in self), *uniform]
        text = tr(
            "Mean attention weight on the previous token, the first token, the token itself, an "
            "earlier occurrence of the same token, and the token after that occurrence "
            "(induction); mean distance in tokens. “uniform” is a head with equal weights on all "
            "tokens that it can attend to."
        )
        text += (
            tr(" Cost: the increase in loss on this text when the head is ablated, in nats.")
            if self.cost_is_loss
            else tr(
                " Cost: the KL divergence of the output distribution when the head is ablated, in "
                "nats."
            )
        )
        names = [*map(tr, columns)]
        grid = torch.tensor(values)
        table = Table(
            tr("heads"),
            grid,
            rows=rows,
            columns=names,
            kind="given",
            decimals=3,
            dash_for_nan=True,
            show_all=True,
        )
        title = tr("What each head attends to, and the effect of ablating it")
        return [Step(title, "", text, (table,))]


def make_repeated_ids(vocab: int, context: int | None, seed: int = 0) -> Tensor:
    """Random tokens followed by a copy of them (1 t): only induction can predict the copy."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (1, min(LENGTH, (context or 2 * LENGTH) // 2)), generator=random)
    return torch.cat((ids, ids), dim=1)


def attention_fractions(pattern: Tensor, ids: Tensor) -> dict[str, float | None]:
    """The weight of a head (t t) on each kind of token in ids (t).

    It is averaged over the queries that have such a token.
    """
    position = torch.arange(len(ids), device=pattern.device)
    offset = position[:, None] - position  # from key (column) to query (row)
    duplicate = (ids[:, None] == ids) & (offset > 0)
    induction = torch.zeros_like(duplicate)
    induction[:, 1:] = duplicate[:, :-1] & (offset[:, 1:] > 0)
    fractions: dict[str, float | None] = {}
    for name, targets in (
        ("previous", offset == 1),
        ("first", (position == 0)[None] & (offset > 0)),
        ("self", (offset == 0) & (position > 0)),
        ("duplicate", duplicate),
        ("induction", induction),
    ):
        rows = targets.any(dim=1)
        weight = (pattern * targets).sum(dim=1)[rows]
        fractions[name] = float(weight.mean()) if rows.any() else None
    return fractions | {"distance": float((pattern * offset.abs()).sum(dim=1).mean())}


@torch.inference_mode()
def measure_heads(
    network: Network, inputs: dict[str, Tensor], reporter: Reporter | None = None
) -> HeadReport:
    """Measure every head of a network on one text."""
    reporter = reporter or NullReporter()
    with Trace(network, "*pattern", "*scores", allow_missing=True) as trace:
        output = network(**inputs)
    if not trace:
        raise GlassError("this model has no attention, so it has no heads to measure")
    report = HeadReport()
    report.uniform = {}
    layers = [name.removesuffix(".pattern") for name in trace if name.endswith("pattern")]
    report.cost_is_loss = bool(PREDICTS_NEXT_TOKEN & network.traits) and output.shape[1] > 1
    bar = ProgressBar(reporter, "heads", sum(len(trace[f"{layer}.pattern"][0]) for layer in layers))
    for layer in layers:
        pattern = trace[f"{layer}.pattern"][0].float()  # h t s
        ids = inputs["source" if layer.startswith("encoder") and "source" in inputs else "ids"][0]
        stack = layer.split(".")[0] if "source" in inputs else ""
        if "cross" not in layer and stack not in report.uniform:
            visible = trace[f"{layer}.scores"][0, 0].isfinite().float()
            uniform = visible / visible.sum(dim=1, keepdim=True)
            report.uniform[stack] = attention_fractions(uniform, ids)
        value = f"{layer}.head_outputs" if f"{layer}.head_outputs" in trace.names else layer
        for head, weights in enumerate(pattern):
            fractions = (
                dict.fromkeys(ATTENTION_STATS)
                if "cross" in layer
                else attention_fractions(weights, ids)
            )
            own_token = fractions.pop("self")
            cost = ablation_cost(
                network, inputs, output, value, head, cost_is_loss=report.cost_is_loss
            )
            report.append(HeadStats(layer, head, own_token=own_token, **fractions, cost=cost))
            bar.add(1)
    reporter.clear()
    return report


def ablation_cost(
    network: Network,
    inputs: dict[str, Tensor],
    output: Tensor,
    name: str,
    head: int,
    *,
    cost_is_loss: bool,
) -> float:
    """The effect of zeroing one head of the named activation, in nats.

    For a language model or a translator, the increase in loss on the decoder input; for others, and
    for a single token, the Kullback-Leibler divergence from the original output distribution.
    """
    has_heads = name.endswith(".head_outputs")  # otherwise the layer counts as one head
    with Trace(network, edit={name: Zero(head if has_heads else None)}):
        ablated = network(**inputs)
    if cost_is_loss:
        targets = inputs["ids"][0, 1:]
        losses = [F.cross_entropy(out[0, :-1].float(), targets) for out in (ablated, output)]
        return float(losses[0] - losses[1])
    old, new = (out.float().log_softmax(dim=-1).flatten(0, -2) for out in (output, ablated))
    return float(F.kl_div(new, old, log_target=True, reduction="batchmean"))
