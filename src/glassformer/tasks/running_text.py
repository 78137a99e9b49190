"""What tasks on running text share: one long row of tokens, whose end validates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch

from glassformer.data import corpus
from glassformer.data.files import Bad, Quiet
from glassformer.data.sample import documentation
from glassformer.data.store import Store
from glassformer.live import Bar, Live
from glassformer.tasks.task import Given
from glassformer.text.tokenizer import Tokenizer

Read = Callable[[tuple[Path, ...], Bad], Iterator[str]]


class RunningText:
    """The part of a task that only knows its tokens."""

    built_on: ClassVar[dict[str, str]] = {}
    peek: ClassVar[int] = 20_000
    whole: ClassVar[int | None] = 400_000
    table: ClassVar[bool] = False

    rows: int
    context: int

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        self.tokenizer, self.facts = tokenizer, facts
        self.train = Store(folder / "train.ids", tokenizer.vocab)
        self.valid = Store(folder / "valid.ids", tokenizer.vocab)

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab}

    def epoch(self) -> int:
        return max(self.train.size // (self.rows * self.context), 1)

    @property
    def size(self) -> int:
        return self.train.size

    @property
    def predictions(self) -> int:
        return self.train.size

    def teach(self, network: Any, share: float) -> float:
        network.learn(torch.from_numpy(self.train.read(0, round(self.size * share)))[None])
        return share


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
