"""What tasks on running text share: one long row of tokens, whose end validates."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from glassformer.core.reporter import Bar, Reporter
from glassformer.data import corpus
from glassformer.data.examples import Example
from glassformer.data.files import Bad, Quiet
from glassformer.data.request import DataRequest
from glassformer.data.sample import documentation
from glassformer.data.store import Store
from glassformer.models.network import Network
from glassformer.tasks.task import Artifacts

EVAL_LIMIT, FINAL_EVAL_LIMIT = 20_000, 400_000  # tokens

Read = Callable[[tuple[Path, ...], Bad], Iterator[str]]


class RunningText:
    """The part of a dataset that only knows its tokens."""

    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts, tokenizer = artifacts, artifacts.text_tokenizer
        self.train = Store(folder / "train.ids", tokenizer.vocab)
        self.valid = Store(folder / "valid.ids", tokenizer.vocab)
        self.size = self.predictions = self.train.size
        self.eval_size = self.valid.size

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.artifacts.text_tokenizer.vocab}

    def fit(self, network: Network, share: float) -> float:
        ids = torch.from_numpy(self.train.read(0, round(self.size * share)))
        network.fit(ids[None])  # type: ignore[operator]
        return share


def prepare_corpus(
    request: DataRequest,
    folder: Path,
    reporter: Reporter,
    choose_kind: Callable[[corpus.Extent], str],
) -> Artifacts:
    """Read the text twice: to train a tokenizer, and to write its ids."""
    read = reader(request, reporter)
    extent = corpus.measure(read(request.files, request.bad))
    reporter(f"{extent.bytes:,} bytes of text")
    if request.ready is not None:
        tokenizer = corpus.ready_tokenizer(
            request.ready, extent.sample, extend=request.extend, tell=reporter
        )
    else:
        name = request.tokenizer or choose_kind(extent)
        vocab = request.vocab or corpus.default_vocab(name, extent.bytes)
        tokenizer = corpus.learn_tokenizer(name, extent.sample, vocab=vocab)
    pieces = split_text(request, read, extent.bytes, request.bad if request.valid else Quiet())
    bar = Bar(reporter, "encoding", extent.bytes)
    metadata: dict[str, Any] = corpus.encode_corpus(pieces, tokenizer, folder, bar)
    what = "from other files" if request.valid else f"the last {request.share:.0%}"
    reporter(
        f"{tokenizer.vocab:,} kinds of token; {metadata['train_tokens']:,} tokens to learn from, "
        f"{metadata['valid_tokens']:,} ({what}) to validate on"
    )
    return Artifacts(metadata, tokenizer)


def reader(request: DataRequest, reporter: Reporter) -> Read:
    """The text of files, in pieces, readable again and again; without files, that of a sample."""
    if not request.files:
        reporter("no data given: the documentation that Python carries")
        return lambda _files, _bad: documentation()
    column = request.text[0] if request.text else corpus.guess_column(request.files)
    if column is not None:
        reporter(f"text: {column}")
    return lambda files, bad: corpus.texts(files, bad, column)


def examples(request: DataRequest, bad: Bad, reporter: Reporter) -> Iterator[Example]:
    """The lines of the text, for a look at them."""
    content = reader(request, reporter)
    total = sum(len(piece.encode("utf-8", "replace")) for piece in content(request.files, bad))
    read = 0
    for files, fixed in request.sides():
        for piece in content(files, bad if fixed == "valid" else Quiet()):
            for line in piece.splitlines(keepends=True):
                side = "train" if read < total * (1 - request.share) else "valid"
                read += len(line.encode("utf-8", "replace"))
                yield Example("", (line,), fixed or side)


def split_text(request: DataRequest, read: Read, total: int, bad: Bad) -> Iterator[tuple[str, str]]:
    """Pieces of text with the part that they are for: of one text, its end validates."""
    for files, part in request.sides():
        if part is None:
            yield from corpus.cut_at(read(files, bad), round(total * (1 - request.share)))
        else:
            again = Quiet() if part == "train" else bad
            yield from ((part, piece) for piece in read(files, again))
