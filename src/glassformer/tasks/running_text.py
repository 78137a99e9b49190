"""Shared by the tasks on running text: one long sequence of tokens; its end is held out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from glassformer.core.reporter import NullReporter, ProgressBar, Reporter, format_count
from glassformer.data import corpus
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.request import DataRequest
from glassformer.data.sample import python_documentation
from glassformer.data.store import Store
from glassformer.data.tables import describe_formats
from glassformer.models.network import Network
from glassformer.tasks.task import Artifacts

EVAL_LIMIT, FINAL_EVAL_LIMIT = 20_000, 400_000  # tokens

TextReader = Callable[[tuple[Path, ...], BadRowPolicy], Iterator[str]]


class RunningText:
    """Base class for datasets of running text: holds the tokens."""

    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        tokenizer = artifacts.text_tokenizer
        self.train = Store(folder / "train.ids", tokenizer.vocab)
        self.valid = Store(folder / "valid.ids", tokenizer.vocab)
        self.size = self.n_targets = self.train.size
        self.eval_size = self.valid.size

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.artifacts.text_tokenizer.vocab}

    def fit(self, network: Network, fraction: float) -> float:
        ids = torch.from_numpy(self.train.read(0, round(self.size * fraction)))
        network.fit(ids[None])  # type: ignore[operator]
        return fraction


def prepare_corpus(
    request: DataRequest,
    folder: Path,
    reporter: Reporter,
    choose_tokenizer: Callable[[corpus.CorpusSummary], str],
) -> Artifacts:
    """Read the text twice: first to train or reuse a tokenizer, then to write the ids to `folder`.

    `choose_tokenizer` returns the kind of tokenizer if the request does not specify one.
    """
    read = make_reader(request, reporter)
    summary = corpus.summarize_corpus(read(request.files, request.on_bad_row))
    if request.is_evaluation:
        reporter = NullReporter()
    reporter(f"{summary.bytes:,} bytes of text")
    if request.base_tokenizer is not None:
        tokenizer = corpus.reuse_tokenizer(
            request.base_tokenizer, summary.sample, extend=request.extend, reporter=reporter
        )
    else:
        kind = request.tokenizer or choose_tokenizer(summary)
        vocab = request.vocab or corpus.default_vocab(kind, summary.bytes, summary.sample)
        tokenizer = corpus.train_tokenizer(kind, summary.sample, vocab=vocab)
    chunks = split_text(
        request, read, summary.bytes, request.on_bad_row if request.valid else IgnoreBadRows()
    )
    bar = ProgressBar(reporter, "encoding", summary.bytes)
    metadata: dict[str, Any] = corpus.encode_corpus(chunks, tokenizer, folder, bar)
    origin = "from other files" if request.valid else f"the last {request.valid_fraction:.0%}"
    reporter(
        f"vocabulary of {format_count(tokenizer.vocab, 'token')}; "
        f"{format_count(metadata['train_tokens'], 'token')} for training, "
        f"{metadata['valid_tokens']:,} for validation ({origin})"
    )
    return Artifacts(metadata, tokenizer)


def make_reader(request: DataRequest, reporter: Reporter) -> TextReader:
    """Return a function that yields the text of files in chunks; without files, a sample text."""
    if not request.files:
        reporter("no data given: using the documentation that comes with Python")
        return lambda _files, _bad: python_documentation()
    for line in describe_formats((*request.files, *request.valid), request.format):
        reporter(line)
    format = request.format
    column = request.text[0] if request.text else corpus.guess_column(request.files, format)
    if column is not None:
        reporter(f'column: text = "{column}"')
    return lambda files, on_bad_row: corpus.read_texts(files, on_bad_row, column, format)


def read_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """Yield the lines of the text for `check-data`."""
    read = make_reader(request, reporter)
    total = sum(len(chunk.encode("utf-8", "replace")) for chunk in read(request.files, on_bad_row))
    position = 0  # in bytes
    for files, split in request.split_files():
        for chunk in read(files, on_bad_row if split == "valid" else IgnoreBadRows()):
            for line in chunk.splitlines(keepends=True):
                default = "train" if position < total * (1 - request.valid_fraction) else "valid"
                position += len(line.encode("utf-8", "replace"))
                yield Example("", (line,), split or default)


def split_text(
    request: DataRequest, read: TextReader, total: int, on_bad_row: BadRowPolicy
) -> Iterator[tuple[str, str]]:
    """Yield (split, chunk); without validation files, the end of the text is held out."""
    for files, split in request.split_files():
        if split is None:
            yield from corpus.split_at_byte(
                read(files, on_bad_row), round(total * (1 - request.valid_fraction))
            )
        else:
            # Bad rows in the training files were already reported.
            policy = IgnoreBadRows() if split == "train" else on_bad_row
            yield from ((split, chunk) for chunk in read(files, policy))
