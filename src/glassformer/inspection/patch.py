"""Which values carry the difference between two texts: each is put from one run into the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.core.reporter import NullReporter, ProgressBar, Reporter
from glassformer.inspection.displayable import Displayable
from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.traced_text import answer_position
from glassformer.models.network import Network, Trait
from glassformer.predict import inputs_for
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

SMALL = 1e-6  # a change of a probability that explains nothing
AT_ONCE = 50_000_000  # scores that are computed at once: memory
LITTLE = 0.1  # nats, below which shares are mostly noise
PARTS = ("", ".attention", ".feedforward", ".attention.head_outputs")  # of a block, and its layers


@dataclass(frozen=True, repr=False)
class PatchResult(Displayable):
    """For each part of each block, how much of the difference each place brings back."""

    clean: list[str]
    corrupt: list[str]
    answers: tuple[str, str]  # the clean text speaks for the first, the corrupt one for the second
    probs: tuple[tuple[float, float], tuple[float, float]]  # of the two: clean, then corrupt
    gap: float  # by how many nats the first leads the second more after the clean text
    positions: dict[str, Tensor]  # by the name of a value: t, 0 for nothing and 1 for all of it
    heads: dict[str, Tensor]  # the same for each head: h

    @property
    def tokens(self) -> list[str]:
        """Both texts in one: where they differ, clean/corrupt."""
        return [a if a == b else f"{a}/{b}" for a, b in zip(self.clean, self.corrupt, strict=True)]

    def steps(self) -> list[Step]:
        """A table of places and one of heads."""
        (a, b), (c, d) = self.probs
        says = tr(
            "From the clean text to the corrupt one {first} goes from {a:.1%} to {c:.1%} and "
            "{second} from {b:.1%} to {d:.1%}: a change of {gap:.2f} nats between the two. Each "
            "number is the share of that which one value of the clean text brings back when it is "
            "put into the corrupt one.",
            first=repr(self.answers[0]), second=repr(self.answers[1]),
            a=a, b=b, c=c, d=d, gap=self.gap,
        )  # fmt: skip
        if self.gap < LITTLE:
            says += tr(" That is so little that the shares say little.")
        tables = [shares(tr("values at each token"), self.positions, self.tokens)]
        if self.heads:
            many = max(map(len, self.heads.values()))
            tables.append(shares(tr("each head"), self.heads, [*map(str, range(many))]))
        return [Step(tr("Which values carry the difference"), "", says, tuple(tables))]


def shares(name: str, found: dict[str, Tensor], columns: list[str]) -> Table:
    values = torch.stack(
        [F.pad(row, (0, len(columns) - len(row)), value=nan) for row in found.values()]
    )
    return Table(name, values, list(found), columns, "given", 2, shaded=True, gaps=True, whole=True)


@dataclass(frozen=True)
class Question:
    """A network that is asked for one answer, about a text that may differ."""

    network: Network
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
        many, vocab = clean.shape[1], self.network.vocab
        some = max(AT_ONCE // (ids.shape[1] * vocab), 1)  # a row has a score for every token
        answers = []
        for first in range(0, many, some):
            rows = range(first, min(first + some, many))
            with Trace(self.network, edit={name: partial(put, clean, rows)}):
                answers.append(self.answers(ids.expand(len(rows), -1)))
        return torch.cat(answers)


@dataclass(frozen=True)
class Contrast:
    """The answers to two texts, as logarithms of chances, v, and the two of them that count: how
    far the clean text's answer leads the corrupt one's; where both have the same answer, the one
    that the clean text makes likelier over the one that it makes less likely."""

    right: Tensor
    wrong: Tensor

    @property
    def best(self) -> tuple[int, int]:
        first, second = int(self.right.argmax()), int(self.wrong.argmax())
        change = self.right.exp() - self.wrong.exp()
        return (first, second) if first != second else (int(change.argmax()), int(change.argmin()))

    @property
    def differs(self) -> bool:
        return float((self.right.exp() - self.wrong.exp()).abs().max()) >= SMALL

    @property
    def probs(self) -> tuple[tuple[float, float], tuple[float, float]]:
        (a, b), (c, d) = (x.exp()[list(self.best)].tolist() for x in (self.right, self.wrong))
        return (a, b), (c, d)

    def lead(self, answers: Tensor) -> Tensor:
        return answers[..., self.best[0]] - answers[..., self.best[1]]

    @property
    def gap(self) -> float:
        return float(self.lead(self.right) - self.lead(self.wrong))

    def restored(self, answers: Tensor) -> Tensor:
        """The share of the difference that is back: b v -> b."""
        return (self.lead(answers) - self.lead(self.wrong)) / self.gap


@torch.inference_mode()
def patch(
    network: Network,
    tokenizer: Tokenizer,
    clean: str,
    corrupt: str,
    labels: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> PatchResult:
    """Run the corrupt text with one value at a time taken from the clean one."""
    question, texts = make_question(network, tokenizer, clean, corrupt, masked=not labels)
    with Trace(network) as kept:
        right = question.answers(texts[0])[0]
    contrast = Contrast(right, question.answers(texts[1])[0])
    if not contrast.differs:
        raise GlassError("both texts have the same answer: there is nothing to explain")
    stack = "encoder." if question.name == "source" else ""
    blocks = [n for n in kept if n.rpartition(".")[2].isdigit() and n.startswith(stack)]
    values = [block + part for block in blocks for part in PARTS if block + part in kept]
    if not values:
        raise GlassError("this model has no blocks whose values could be put in")
    reporter, each = reporter or NullReporter(), {}
    bar = ProgressBar(reporter, "values", len(values))
    for value in values:
        each[value] = contrast.restored(question.with_each(texts[1], value, kept[value]))
        bar.add(1)
    reporter.clear()
    called = tokenizer.token if len(right) == tokenizer.vocab else str
    first, second = (labels[i] if labels else called(i) for i in contrast.best)
    tokens = [[tokenizer.token(int(i)) for i in ids[0]] for ids in texts]
    return PatchResult(
        clean=tokens[0],
        corrupt=tokens[1],
        answers=(first, second),
        probs=contrast.probs,
        gap=contrast.gap,
        positions={n: shares for n, shares in each.items() if not n.endswith(".head_outputs")},
        heads={n: shares for n, shares in each.items() if n.endswith(".head_outputs")},
    )


def make_question(
    network: Network, tokenizer: Tokenizer, clean: str, corrupt: str, *, masked: bool
) -> tuple[Question, tuple[Tensor, Tensor]]:
    """What is asked about both texts, and their ids; a masked model is asked about [MASK]."""
    first, second = (inputs_for(network, tokenizer, text, "") for text in (clean, corrupt))
    name = "source" if "source" in first else "ids"
    texts = first[name], second[name]
    if texts[0].shape != texts[1].shape:
        many = " and ".join(str(ids.shape[1]) for ids in texts)
        raise GlassError(f"the two texts must have as many tokens; they have {many}")
    mask = tokenizer.special_tokens.get("[MASK]")
    if masked and name == "ids" and mask is not None and not network.has(Trait.CACHED):
        hidden = [(ids == mask) for ids in texts]
        if not torch.equal(*hidden) or not hidden[0].any():
            raise GlassError("write [MASK] where the answer is to be: at one place of both texts")
    rest = {other: value for other, value in first.items() if other != name}
    at = -1 if name == "source" else answer_position(tokenizer, texts[0][0])
    return Question(network, name, rest, at), texts


def put(clean: Tensor, positions: range, value: Tensor) -> Tensor:
    """Each row of a batch takes another place (or head) from the clean run: b t d, or b h t e."""
    value = value.clone()
    value[range(len(value)), positions] = clean[0, list(positions)]
    return value
