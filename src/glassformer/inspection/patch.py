"""Activation patching: which activations account for the difference between two outputs.

Each value of the clean text's forward pass is copied into the forward pass of the corrupt text.
Shapes: b batch, t tokens, v vocabulary or classes, d features, h heads, e features of a head.
"""

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
from glassformer.inspection.traced_text import prediction_position
from glassformer.models.network import Network, Trait
from glassformer.predict import inputs_for
from glassformer.text.bilingual import source_tokenizer
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

MIN_PROB_CHANGE = 1e-6  # a smaller change in the output does not count as a difference
MAX_LOGITS = 50_000_000  # per batch, to limit memory
MIN_GAP = 0.1  # nats; the fractions of a smaller gap are mostly noise
PARTS = ("", ".attention", ".feedforward", ".attention.head_outputs")  # patched in each block


@dataclass(frozen=True, repr=False)
class PatchResult(Displayable):
    """For each part of each block, the fraction of the gap that patching each position recovers."""

    clean: list[str]
    corrupt: list[str]
    answers: tuple[str, str]  # the tokens or labels that the clean and the corrupt text favor
    # probabilities of the two answers: for the clean text, for the corrupt text
    probs: tuple[tuple[float, float], tuple[float, float]]
    # nats: log-probability difference of the answers, clean text minus corrupt text
    gap: float
    # by value name: fraction recovered at each token (t); below 0 if the gap widens
    positions: dict[str, Tensor]
    heads: dict[str, Tensor]  # the same for each head (h)

    @property
    def tokens(self) -> list[str]:
        """The tokens of both texts; where they differ, clean/corrupt."""
        return [a if a == b else f"{a}/{b}" for a, b in zip(self.clean, self.corrupt, strict=True)]

    def steps(self) -> list[Step]:
        """One step with a table of positions and a table of heads."""
        (a, b), (c, d) = self.probs
        text = tr(
            "From the clean to the corrupt text, the probability of {first} changes from {a:.1%} "
            "to {c:.1%} and that of {second} from {b:.1%} to {d:.1%}: their log-probability "
            "difference changes by {gap:.2f} nats. Each number is the fraction of that change "
            "that is recovered when one value of the clean text is copied into the corrupt text.",
            first=repr(self.answers[0]), second=repr(self.answers[1]),
            a=a, b=b, c=c, d=d, gap=self.gap,
        )  # fmt: skip
        if self.gap < MIN_GAP:
            text += tr(" The change is so small that the fractions are mostly noise.")
        tables = [fractions_table(tr("values at each token"), self.positions, self.tokens)]
        if self.heads:
            n_heads = max(map(len, self.heads.values()))
            columns = [*map(str, range(n_heads))]
            tables.append(fractions_table(tr("each head"), self.heads, columns))
        return [Step(tr("Which activations account for the difference"), "", text, tuple(tables))]


def fractions_table(name: str, fractions: dict[str, Tensor], columns: list[str]) -> Table:
    values = torch.stack(
        [F.pad(row, (0, len(columns) - len(row)), value=nan) for row in fractions.values()]
    )
    return Table(
        name, values, list(fractions), columns, "given", 2,
        shaded=True, dash_for_nan=True, show_all=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Predictor:
    """A network that predicts at one position, for texts of the same length."""

    network: Network
    name: str  # name of the network input that takes the text: "source" in a translation model
    rest: dict[str, Tensor]  # the other inputs
    position: int  # where to predict, if the output has positions

    def log_probs(self, ids: Tensor) -> Tensor:
        """Log-probabilities at the position, or of the text's classes: b t -> b v."""
        rest = {name: value.expand(len(ids), -1) for name, value in self.rest.items()}
        output = self.network(**rest, **{self.name: ids})
        output = output if output.ndim == 2 else output[:, self.position]
        return output.float().log_softmax(dim=-1)  # type: ignore[no-any-return]

    def patched_log_probs(self, ids: Tensor, name: str, clean: Tensor) -> Tensor:
        """Log-probabilities with each position (or head) of a value in turn replaced by the
        clean one (b v, a row for each position)."""
        count, vocab = clean.shape[1], self.network.vocab
        batch_size = max(MAX_LOGITS // (ids.shape[1] * vocab), 1)
        log_probs = []
        for first in range(0, count, batch_size):
            rows = range(first, min(first + batch_size, count))
            with Trace(self.network, edit={name: partial(copy_clean, clean, rows)}):
                log_probs.append(self.log_probs(ids.expand(len(rows), -1)))
        return torch.cat(log_probs)


@dataclass(frozen=True)
class Contrast:
    """The log-probabilities (v) for two texts, and the two outcomes that are compared.

    These are the most likely outcomes of the clean and of the corrupt text; if they are the same,
    the outcomes whose probabilities the clean text raises and lowers most.
    """

    clean: Tensor
    corrupt: Tensor

    @property
    def outcomes(self) -> tuple[int, int]:
        first = int(self.clean.argmax())
        second = int(self.corrupt.argmax())
        change = self.clean.exp() - self.corrupt.exp()
        return (first, second) if first != second else (int(change.argmax()), int(change.argmin()))

    @property
    def differs(self) -> bool:
        return float((self.clean.exp() - self.corrupt.exp()).abs().max()) >= MIN_PROB_CHANGE

    @property
    def probs(self) -> tuple[tuple[float, float], tuple[float, float]]:
        (a, b), (c, d) = (x.exp()[list(self.outcomes)].tolist() for x in (self.clean, self.corrupt))
        return (a, b), (c, d)

    def difference(self, log_probs: Tensor) -> Tensor:
        """The log-probability of the first outcome minus that of the second: b v -> b."""
        return log_probs[..., self.outcomes[0]] - log_probs[..., self.outcomes[1]]

    @property
    def gap(self) -> float:
        return float(self.difference(self.clean) - self.difference(self.corrupt))

    def recovered_fraction(self, log_probs: Tensor) -> Tensor:
        """The fraction of the gap that patched outputs recover: b v -> b."""
        return (self.difference(log_probs) - self.difference(self.corrupt)) / self.gap


@torch.inference_mode()
def patch(
    network: Network,
    tokenizer: Tokenizer,
    clean: str,
    corrupt: str,
    labels: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> PatchResult:
    """Run the corrupt text with one value at a time replaced by its clean value."""
    predictor, texts = make_predictor(network, tokenizer, clean, corrupt, masked=not labels)
    with Trace(network) as trace:
        clean_log_probs = predictor.log_probs(texts[0])[0]
    contrast = Contrast(clean_log_probs, predictor.log_probs(texts[1])[0])
    if not contrast.differs:
        raise GlassError("both texts have the same output: there is no difference to explain")
    stack = "encoder." if predictor.name == "source" else ""
    blocks = [n for n in trace if n.rpartition(".")[2].isdigit() and n.startswith(stack)]
    values = [block + part for block in blocks for part in PARTS if block + part in trace]
    if not values:
        raise GlassError("this model has no blocks whose values could be patched")
    reporter = reporter or NullReporter()
    fractions = {}
    bar = ProgressBar(reporter, "values", len(values))
    for value in values:
        log_probs = predictor.patched_log_probs(texts[1], value, trace[value])
        fractions[value] = contrast.recovered_fraction(log_probs)
        bar.add(1)
    reporter.clear()
    name_outcome = tokenizer.token if len(clean_log_probs) == tokenizer.vocab else str
    first, second = (labels[i] if labels else name_outcome(i) for i in contrast.outcomes)
    language = source_tokenizer(tokenizer) if predictor.name == "source" else tokenizer
    tokens = [[language.token(int(i)) for i in ids[0]] for ids in texts]
    return PatchResult(
        clean=tokens[0],
        corrupt=tokens[1],
        answers=(first, second),
        probs=contrast.probs,
        gap=contrast.gap,
        positions={n: row for n, row in fractions.items() if not n.endswith(".head_outputs")},
        heads={n: row for n, row in fractions.items() if n.endswith(".head_outputs")},
    )


def make_predictor(
    network: Network, tokenizer: Tokenizer, clean: str, corrupt: str, *, masked: bool
) -> tuple[Predictor, tuple[Tensor, Tensor]]:
    """Return a predictor for both texts, and their ids.

    A masked language model predicts the token at [MASK].
    """
    first, second = (inputs_for(network, tokenizer, text, "") for text in (clean, corrupt))
    name = "source" if "source" in first else "ids"
    texts = first[name], second[name]
    if texts[0].shape != texts[1].shape:
        one, two = (ids.shape[1] for ids in texts)
        raise GlassError(f"the two texts must have the same number of tokens, got {one} and {two}")
    mask = tokenizer.special_tokens.get("[MASK]")
    if masked and name == "ids" and mask is not None and not network.has(Trait.CACHED):
        is_mask = [(ids == mask) for ids in texts]
        if not torch.equal(*is_mask) or not is_mask[0].any():
            raise GlassError(
                "both texts need a [MASK] at the same position, for the model to fill in"
            )
    rest = {other: value for other, value in first.items() if other != name}
    position = -1 if name == "source" else prediction_position(tokenizer, texts[0][0])
    return Predictor(network, name, rest, position), texts


def copy_clean(clean: Tensor, positions: range, value: Tensor) -> Tensor:
    """Copy one position (or head) of the clean value into each row: b t d, or b h t e."""
    value = value.clone()
    value[range(len(value)), positions] = clean[0, list(positions)]
    return value
