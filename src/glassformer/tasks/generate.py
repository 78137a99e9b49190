"""Generate: predict the next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.data import corpus
from glassformer.data.batches import windows
from glassformer.data.files import Bad, Quiet
from glassformer.data.sample import documentation
from glassformer.data.store import Store
from glassformer.errors import GlassError
from glassformer.generate.decode import stream
from glassformer.generate.sampling import Sampling
from glassformer.live import Bar, Live
from glassformer.tasks.task import Batch, Given
from glassformer.text.plain import UNKNOWN
from glassformer.text.tokenizer import Tokenizer


def prepare_corpus(
    given: Given, folder: Path, tell: Live, kind: Callable[[corpus.Extent], str]
) -> tuple[Tokenizer, dict[str, Any]]:
    """Read the text twice: to learn a tokenizer, and to write its ids."""
    read = reader(given, tell)
    extent = corpus.measure(read(given.files, given.bad))
    tell(f"{extent.bytes:,} bytes of text")
    if given.ready is not None:
        tokenizer = corpus.ready_tokenizer(
            given.ready, extent.sample, extend=given.extend, tell=tell
        )
    else:
        name = given.tokenizer or kind(extent)
        vocab = given.vocab or corpus.default_vocab(name, extent.bytes)
        tokenizer = corpus.learn_tokenizer(name, extent.sample, vocab=vocab)
    pieces = parted(given, read, extent.bytes, given.bad if given.valid else Quiet())
    facts: dict[str, Any] = corpus.encode_corpus(
        pieces, tokenizer, folder, Bar(tell, "encoding", extent.bytes)
    )
    what = "from other files" if given.valid else f"the last {given.share:.0%}"
    tell(
        f"{tokenizer.vocab:,} kinds of token; {facts['train_tokens']:,} tokens to learn from, "
        f"{facts['valid_tokens']:,} ({what}) to validate on"
    )
    return tokenizer, facts


LONG = 1024  # tokens of a stretch, for a model that can read any number
AT_ONCE = 2048  # tokens, of several stretches
STRETCH, BEFORE = 200_000, 100  # tokens whose chances are looked up together; and before them

Read = Callable[[tuple[Path, ...], Bad], Iterator[str]]


def reader(given: Given, tell: Live) -> Read:
    """The text of files, in pieces, readable again and again; without files, that of a sample."""
    if not given.files:
        tell("no data given: the documentation that Python carries")
        return lambda _files, _bad: documentation()
    column = given.text[0] if given.text else corpus.guess_column(given.files)
    if column is not None:
        tell(f"text: {column}")
    return lambda files, bad: corpus.texts(files, bad, column)


def parted(given: Given, read: Read, total: int, bad: Bad) -> Iterator[tuple[str, str]]:
    """Pieces of text with the part that they are for: of one text, its end validates."""
    for files, part in given.sides():
        if part is None:
            yield from corpus.cut_at(read(files, bad), round(total * (1 - given.share)))
        else:
            again = Quiet() if part == "train" else bad
            yield from ((part, piece) for piece in read(files, again))


class Generate:
    name: ClassVar[str] = "generate"
    models: ClassVar[tuple[str, ...]] = (
        *("gpt2", "generator", "llama", "decoder"),
        *("recurrent", "convolutional", "markov"),
    )
    built_on: ClassVar[dict[str, str]] = {}
    settings: ClassVar[dict[str, Any]] = {
        "context": 128,
        "dim": 192,
        "depth": 4,
        "heads": 6,
        "dropout": 0.0,
    }
    training: ClassVar[dict[str, Any]] = {"batch": 16, "rate": 1.5e-3}
    figure: ClassVar[str] = "bits_per_byte"
    peek: ClassVar[int] = 20_000
    whole: ClassVar[int | None] = 400_000
    table: ClassVar[bool] = False
    unit: ClassVar[str] = "tokens"
    counted: ClassVar[str] = "markov"
    simple: ClassVar[str] = "counting n-grams"
    verdict: ClassVar[str] = "bits_per_byte"

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        self.tokenizer, self.facts = tokenizer, facts
        self.train, self.valid = Store(folder / "train.ids"), Store(folder / "valid.ids")

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
        def kind(extent: corpus.Extent) -> str:
            alphabet = len(set().union(*map(set, extent.sample)))
            return "characters" if alphabet <= 256 and extent.bytes < 5_000_000 else "bpe"

        if given.tokenizer in ("words", "wordpiece"):
            raise GlassError(f"{given.tokenizer} lose the spaces of a text: take bpe to write with")
        return cls(*prepare_corpus(given, folder, tell, kind), folder)

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab}

    def start(self, batch: int, context: int, seed: int) -> None:
        self.rows, self.context, self.seed = batch, context, seed
        if not self.valid.size:
            raise GlassError("there is no text to validate on")

    def batch(self, step: int) -> Batch:
        return {"ids": windows(self.train, self.seed, step, self.rows, self.context + 1)}

    def epoch(self) -> int:
        return max(self.train.size // (self.rows * self.context), 1)

    def count(self, batch: Batch) -> int:
        return batch["ids"][:, 1:].numel()

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        ids = batch["ids"]
        logits = network(ids[:, :-1])
        return F.cross_entropy(
            logits.flatten(0, 1).float(),
            ids[:, 1:].flatten(),
            reduction="sum",
            label_smoothing=smoothing,
        )

    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, float]:
        """Bits for each byte of the text, read in stretches of a context one after the other."""
        flat = self.valid.flat if most is None else self.valid.flat[: most + 1]
        share = len(flat) / max(len(self.valid.flat), 1)
        nats = text_loss(network, flat) + self.spelling(flat)
        return text_figures(nats, len(flat), self.facts["valid_bytes"] * share)

    def spelling(self, flat: NDArray[Any]) -> float:
        """What it costs to say which character each unknown one is: a guess among all there are."""
        unknown = self.tokenizer.specials.get(UNKNOWN)
        return 0.0 if unknown is None else float((flat == unknown).sum() * math.log(0x110000))

    @property
    def size(self) -> int:
        return self.train.size

    def teach(self, network: Any, share: float) -> float:
        network.learn(torch.from_numpy(self.train.read(0, round(self.size * share)))[None])
        return share

    def sample(self, network: nn.Module) -> str:
        device = next(network.parameters()).device
        start = torch.from_numpy(self.valid.read(0, 8))[None].to(device)
        ids = [*start[0].tolist()]
        ids += [int(t) for t in stream(network, start, 80, sampling=Sampling(0.8), seed=0)]
        return self.tokenizer.decode(ids)


@torch.inference_mode()
def text_loss(network: Any, flat: NDArray[Any]) -> float:
    """Nats for a whole text, read in stretches of a context.

    Nothing predicts the first token: it counts as a guess among all.
    """
    device = next(network.parameters()).device
    total = math.log(network.config.vocab)
    if hasattr(network, "likelihood"):
        for start in range(1, len(flat), STRETCH):  # each with what stands before it
            first = max(start - BEFORE, 0)
            ids = torch.from_numpy(flat[first : start + STRETCH].astype(np.int64)).to(device)
            total -= float(network.likelihood(ids)[start - first - 1 :].double().log().sum())
        return total
    context = getattr(network.config, "context", LONG)
    rows = max(AT_ONCE // context, 1)
    for start in range(0, len(flat) - 1, rows * context):
        part = torch.from_numpy(flat[start : start + rows * context + 1].astype(np.int64)).to(
            device
        )
        inputs, answers = part[:-1], part[1:]
        whole = len(inputs) // context * context
        for read, said in (
            (inputs[:whole].reshape(-1, context), answers[:whole]),
            (inputs[None, whole:], answers[whole:]),
        ):
            if read.numel():
                logits = network(read).flatten(0, 1).float()
                total += float(F.cross_entropy(logits, said, reduction="sum"))
    return total


def text_figures(nats: float, tokens: int, size: float) -> dict[str, float]:
    loss = nats / max(tokens, 1)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 50.0)),
        "bits_per_byte": nats / math.log(2) / max(size, 1),
        "tokens": tokens,
        "bytes": round(size),
    }
