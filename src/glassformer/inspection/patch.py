"""Which values carry the difference between two texts: each is put from one run into the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer import models
from glassformer.errors import GlassError
from glassformer.inspection.reading import asked_at, inputs_for
from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.shown import Shown
from glassformer.live import Bar, Live, Silent
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace
from glassformer.words import say

SMALL = 1e-6  # a change of a probability that explains nothing
AT_ONCE = 50_000_000  # scores that are computed at once: memory
LITTLE = 0.1  # nats, below which shares are mostly noise
PARTS = ("", ".attention", ".feedforward", ".attention.heads")  # of a block, and its layers


@dataclass(frozen=True, repr=False)
class Patched(Shown):
    """For each part of each block, how much of the difference each place brings back."""

    clean: list[str]
    corrupt: list[str]
    answers: tuple[str, str]  # the clean text speaks for the first, the corrupt one for the second
    chances: tuple[tuple[float, float], tuple[float, float]]  # of the two: clean, then corrupt
    gap: float  # by how many nats the first leads the second more after the clean text
    places: dict[str, Tensor]  # by the name of a value: t, 0 for nothing and 1 for all of it
    heads: dict[str, Tensor]  # the same for each head: h

    @property
    def tokens(self) -> list[str]:
        """Both texts in one: where they differ, clean/corrupt."""
        return [a if a == b else f"{a}/{b}" for a, b in zip(self.clean, self.corrupt, strict=True)]

    def steps(self) -> list[Step]:
        """A table of places and one of heads."""
        (a, b), (c, d) = self.chances
        says = say(
            "From the clean text to the corrupt one {first} goes from {a:.1%} to {c:.1%} and "
            "{second} from {b:.1%} to {d:.1%}: a change of {gap:.2f} nats between the two. Each "
            "number is the share of that which one value of the clean text brings back when it is "
            "put into the corrupt one.",
            first=repr(self.answers[0]), second=repr(self.answers[1]),
            a=a, b=b, c=c, d=d, gap=self.gap,
        )  # fmt: skip
        if self.gap < LITTLE:
            says += say(" That is so little that the shares say little.")
        tables = [shares(say("values at each token"), self.places, self.tokens)]
        if self.heads:
            many = max(map(len, self.heads.values()))
            tables.append(shares(say("each head"), self.heads, [*map(str, range(many))]))
        return [Step(say("Which values carry the difference"), "", says, tuple(tables))]


def shares(name: str, found: dict[str, Tensor], columns: list[str]) -> Table:
    values = torch.stack(
        [F.pad(row, (0, len(columns) - len(row)), value=nan) for row in found.values()]
    )
    return Table(name, values, list(found), columns, "given", 2, shaded=True, gaps=True, whole=True)


@dataclass(frozen=True)
class Question:
    """A network that is asked for one answer, about a text that may differ."""

    network: nn.Module
    name: str  # of the text among the inputs: that of a translator is its source
    rest: dict[str, Tensor]
    at: int  # the place whose answer counts, where each has one

    def answers(self, ids: Tensor) -> Tensor:
        """Scores for what follows the last token, what is hidden, or for the whole text: b v."""
        rest = {name: value.expand(len(ids), -1) for name, value in self.rest.items()}
        output = self.network(**rest, **{self.name: ids})
        output = output if output.ndim == 2 else output[:, self.at]
        return output.float().log_softmax(dim=-1)  # type: ignore[no-any-return]

    def with_each(self, ids: Tensor, name: str, clean: Tensor) -> Tensor:
        """The answers to as many copies of a text as a value has places, each with another place
        (or head) taken from a clean run: b v."""
        many, vocab = clean.shape[1], getattr(self.network.config, "vocab", 1)
        some = max(AT_ONCE // (ids.shape[1] * vocab), 1)  # a row has a score for every token
        answers = []
        for first in range(0, many, some):
            rows = range(first, min(first + some, many))
            with Trace(self.network, edit={name: partial(put, clean, rows)}):
                answers.append(self.answers(ids.expand(len(rows), -1)))
        return torch.cat(answers)


@torch.inference_mode()
def patch(
    network: nn.Module,
    tokenizer: Tokenizer,
    clean: str,
    corrupt: str,
    labels: Sequence[str] = (),
    tell: Live | None = None,
) -> Patched:
    """Run the corrupt text with one value at a time taken from the clean one.

    What counts is how far the clean text's answer leads the corrupt one's; where both have the same
    answer, the one that the clean text makes likelier over the one that it makes less likely.
    """
    first, second = (inputs_for(network, tokenizer, text, "") for text in (clean, corrupt))
    name = "source" if "source" in first else "ids"
    rest = {other: value for other, value in first.items() if other != name}
    texts = first[name], second[name]
    at = -1 if name == "source" else asked_at(tokenizer, texts[0][0])
    question = Question(network, name, rest, at)
    if (
        name == "ids"
        and not models.writes(network)
        and "[MASK]" in tokenizer.specials
        and not labels
    ):
        hidden = [(ids == tokenizer.specials["[MASK]"]).tolist() for ids in texts]
        if hidden[0] != hidden[1] or not any(hidden[0][0]):
            raise GlassError("write [MASK] where the answer is to be: at one place of both texts")
    if texts[0].shape != texts[1].shape:
        many = " and ".join(str(ids.shape[1]) for ids in texts)
        raise GlassError(f"the two texts must have as many tokens; they have {many}")
    with Trace(network) as kept:
        right = question.answers(texts[0])[0]
    wrong = question.answers(texts[1])[0]
    change = right.exp() - wrong.exp()
    if float(change.abs().max()) < SMALL:
        raise GlassError("both texts have the same answer: there is nothing to explain")
    best = int(right.argmax()), int(wrong.argmax())
    if best[0] == best[1]:  # the same answer: what it is that rises most, and what falls most
        best = int(change.argmax()), int(change.argmin())
    writes = len(right) == tokenizer.vocab
    said = [labels[i] if labels else tokenizer.token(i) if writes else str(i) for i in best]

    def lead(answers: Tensor) -> Tensor:
        return answers[..., best[0]] - answers[..., best[1]]

    def restored(answers: Tensor) -> Tensor:
        """The share of the difference that is back: b."""
        return (lead(answers) - lead(wrong)) / (lead(right) - lead(wrong))

    stack = "encoder." if name == "source" else ""
    blocks = [n for n in kept if n.rpartition(".")[2].isdigit() and n.startswith(stack)]
    values = [block + part for block in blocks for part in PARTS if block + part in kept]
    if not values:
        raise GlassError("this model has no blocks whose values could be put in")
    tell, each = tell or Silent(), {}
    bar = Bar(tell, "values", len(values))
    for value in values:
        each[value] = restored(question.with_each(texts[1], value, kept[value]))
        bar.add(1)
    tell.clear()
    tokens = [[tokenizer.token(int(i)) for i in ids[0]] for ids in texts]
    return Patched(
        clean=tokens[0],
        corrupt=tokens[1],
        answers=(said[0], said[1]),
        chances=tuple(tuple(float(x[i].exp()) for i in best) for x in (right, wrong)),  # type: ignore[arg-type]
        gap=float(lead(right) - lead(wrong)),
        places={n: shares for n, shares in each.items() if not n.endswith(".heads")},
        heads={n: shares for n, shares in each.items() if n.endswith(".heads")},
    )


def put(clean: Tensor, places: range, value: Tensor) -> Tensor:
    """Each row of a batch takes another place (or head) from the clean run: b t d, or b h t e."""
    value = value.clone()
    value[range(len(value)), places] = clean[0, list(places)]
    return value
