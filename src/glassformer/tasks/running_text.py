"""What tasks on running text share: one long row of tokens, whose end validates."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from glassformer.core.reporter import ProgressBar, Reporter
from glassformer.data import corpus
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.request import DataRequest
from glassformer.data.sample import documentation
from glassformer.data.store import Store
from glassformer.models.network import Network
from glassformer.tasks.task import Artifacts

EVAL_LIMIT, FINAL_EVAL_LIMIT = 20_000, 400_000  # tokens

Read = Callable[[tuple[Path, ...], BadRowPolicy], Iterator[str]]


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
    choose_kind: Callable[[corpus.CorpusSummary], str],
) -> Artifacts:
    """Read the text twice: to train a tokenizer, and to write its ids."""
    read = reader(request, reporter)
    extent = corpus.summarize_corpus(read(request.files, request.on_bad_row))
    reporter(f"{extent.bytes:,} bytes of text")
    if request.base_tokenizer is not None:
        tokenizer = corpus.reuse_tokenizer(
            request.base_tokenizer, extent.sample, extend=request.extend, reporter=reporter
        )
    else:
        name = request.tokenizer or choose_kind(extent)
        vocab = request.vocab or corpus.default_vocab(name, extent.bytes)
        tokenizer = corpus.train_tokenizer(name, extent.sample, vocab=vocab)
    pieces = split_text(
        request, read, extent.bytes, request.on_bad_row if request.valid else IgnoreBadRows()
    )
    bar = ProgressBar(reporter, "encoding", extent.bytes)
    metadata: dict[str, Any] = corpus.encode_corpus(pieces, tokenizer, folder, bar)
    what = "from other files" if request.valid else f"the last {request.valid_fraction:.0%}"
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
    return lambda files, on_bad_row: corpus.texts(files, on_bad_row, column)


def examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """The lines of the text, for a look at them."""
    content = reader(request, reporter)
    total = sum(
        len(piece.encode("utf-8", "replace")) for piece in content(request.files, on_bad_row)
    )
    read = 0
    for files, fixed in request.split_files():
        for piece in content(files, on_bad_row if fixed == "valid" else IgnoreBadRows()):
            for line in piece.splitlines(keepends=True):
                side = "train" if read < total * (1 - request.valid_fraction) else "valid"
                read += len(line.encode("utf-8", "replace"))
                yield Example("", (line,), fixed or side)


def split_text(
    request: DataRequest, read: Read, total: int, on_bad_row: BadRowPolicy
) -> Iterator[tuple[str, str]]:
    """Pieces of text with the part that they are for: of one text, its end validates."""
    for files, part in request.split_files():
        if part is None:
            yield from corpus.split_at_byte(
                read(files, on_bad_row), round(total * (1 - request.valid_fraction))
            )
        else:
            again = IgnoreBadRows() if part == "train" else on_bad_row
            yield from ((part, piece) for piece in read(files, again))
