"""Summarize: continue a document with its summary. Shapes: b batch, t tokens."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter, ProgressBar, Reporter, format_count
from glassformer.data.batches import BucketBatches, group_by_length, pad_rows
from glassformer.data.corpus import default_vocab, reuse_tokenizer, train_tokenizer
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.pairs import SUMMARY, make_pair_reader
from glassformer.data.request import DataRequest
from glassformer.data.store import Store, StoreWriter
from glassformer.generate.beam import beam_search
from glassformer.generate.decode import generate_until
from glassformer.generate.sampling import GREEDY
from glassformer.models.network import Network
from glassformer.tasks.extract import MAX_RANK, Extract, encode_sentences, extract, shorten
from glassformer.tasks.generate import IGNORE_INDEX, token_loss
from glassformer.tasks.rouge import ROUGE_L, list_summaries, mean_rouge, summary_details
from glassformer.tasks.table_rows import (
    SPLITS,
    hold_out_some,
    report_sizes,
    summarize_examples,
    write_stores,
)
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec
from glassformer.text.sentences import IDEOGRAPHS
from glassformer.text.tokenizer import SEPARATOR, Tokenizer

EOS = "<end>"
MAX_SUMMARY = 256  # tokens; pairs with a longer summary are left out
EVAL_BATCH_TOKENS = 8192
NO_REPEAT_NGRAM_SIZE = 3  # n-grams of this size may not repeat in a summary
BEAM_SIZE = 1  # greedy: larger beams prefer summaries of one word
LENGTH_PENALTY = 0.6  # above 0, it favors longer summaries
UNLIMITED = 10**9  # tokens; stands for a context of None
PARTS = (".document", ".rank", ".summary")  # rank: of the sentence that a token is in

Ids = NDArray[np.int64]


# --- files to examples ----------------------------------------------------------------------------


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns = make_pair_reader(request, reporter, SUMMARY)
    summary = summarize_examples(read(request.on_bad_row))
    if not summary.sample:
        raise GlassError("the data has no valid pairs of document and summary")
    if request.is_evaluation:
        reporter = NullReporter()
    elif (new_request := hold_out_some(request, summary)) is not request:
        read, _ = make_pair_reader(new_request, NullReporter(), SUMMARY)
    tokenizer = make_tokenizer(request, summary.sample, reporter)

    def encode(example: Example) -> list[list[int]] | None:
        document, target = example.texts
        ids = tokenizer.encode(to_continuation(target))
        if len(ids) > MAX_SUMMARY:
            return None
        return [*encode_sentences(tokenizer, document), ids]

    sizes = (tokenizer.vocab, MAX_RANK + 1, tokenizer.vocab)
    stores = {
        split: [
            StoreWriter(folder / f"{split}{part}.ids", size)
            for part, size in zip(PARTS, sizes, strict=True)
        ]
        for split in SPLITS
    }
    bar = ProgressBar(reporter, "encoding", summary.count)
    written = write_stores(read(IgnoreBadRows()), encode, stores, folder, bar=bar)
    if not written.counts["valid"] or not (written.counts["train"] or request.is_evaluation):
        raise GlassError(f"too few pairs for training and validation: {summary.count}")
    report_sizes(written, "pair", reporter, "documents")
    if written.left_out:
        pairs = format_count(written.left_out, "pair")
        reporter(f"left out {pairs} with more than {MAX_SUMMARY} tokens in the summary")
    return Artifacts(columns, tokenizer)


def make_tokenizer(request: DataRequest, sample: list[str], reporter: Reporter) -> Tokenizer:
    """Reuse or train a tokenizer for documents and summaries.

    WordPiece reads lower case, so that a word of a title can be copied from a sentence.
    """
    if request.base_tokenizer:
        return reuse_tokenizer(
            request.base_tokenizer, sample, extend=request.extend, reporter=reporter
        )
    kind = request.tokenizer or "wordpiece"
    size = sum(len(text.encode("utf-8", "replace")) for text in sample)
    vocab = (
        None if kind == "characters" else request.vocab or default_vocab(kind, size // 3, sample)
    )
    return train_tokenizer(kind, sample, vocab=vocab, special_tokens=(SEPARATOR, EOS))


def read_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """Yield the pairs of the data for `check-data`."""
    read, _ = make_pair_reader(request, reporter, SUMMARY)
    yield from read(on_bad_row)


def to_continuation(summary: str) -> str:
    """The summary as if words came before it, so that its first token may be one of a document."""
    return summary if re.match(f"[{IDEOGRAPHS}]", summary) else f" {summary}"


def find_special_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids of the special tokens before and after a summary."""
    if not {SEPARATOR, EOS} <= tokenizer.special_tokens.keys():
        raise GlassError(
            f"summarize needs a tokenizer with the special tokens {SEPARATOR} and {EOS}"
        )
    return tokenizer.special_tokens[SEPARATOR], tokenizer.special_tokens[EOS]


# --- batches --------------------------------------------------------------------------------------


class SummarizeDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        tokenizer = artifacts.text_tokenizer
        self.sep, self.eos = find_special_tokens(tokenizer)
        sizes = (tokenizer.vocab, MAX_RANK + 1, tokenizer.vocab)
        self.stores = {
            split: [
                Store(folder / f"{split}{part}.ids", size)
                for part, size in zip(PARTS, sizes, strict=True)
            ]
            for split in SPLITS
        }
        document, _, summary = self.stores["train"]
        self.size = document.size + summary.size
        self.eval_size = len(self.stores["valid"][0])
        self.n_targets = summary.size + len(summary)  # including the end token of each summary

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.artifacts.text_tokenizer.vocab, "sep": self.sep, "eos": self.eos}

    def lengths(self, split: str, context: int | None) -> Ids:
        """Return the token count of each pair as the network reads it."""
        document, _, summary = self.stores[split]
        return np.minimum(document.lengths, document_limit(context)) + summary.lengths + 1

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> BucketBatches:
        document, _, _ = self.stores["train"]
        truncated = int((document.lengths > document_limit(context)).sum())
        gather = partial(self.gather, "train", context=context)
        return BucketBatches(gather, self.lengths("train", context), batch_size, seed, truncated)

    def gather(self, split: str, rows: Ids, context: int | None) -> Batch:
        """Return documents with their summaries, and the positions and ids of the targets.

        The padding on the right needs no mask, because no token attends to later ones.
        """
        documents, ranks, summaries = self.stores[split]
        limit = document_limit(context)
        sep = np.array([self.sep])
        end = np.array([self.eos])
        read = [shorten(documents[i], ranks[i], limit) for i in rows]
        targets = [np.append(summaries[i], end) for i in rows]
        pairs = list(zip(read, targets, strict=True))
        ids, _ = pad_rows([np.concatenate((a, sep, b[:-1])) for a, b in pairs])
        positions, _ = pad_rows([len(a) + np.arange(len(b)) for a, b in pairs])
        padded_targets, _ = pad_rows(targets, fill=IGNORE_INDEX)
        return {"ids": ids, "positions": positions, "targets": padded_targets}

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        context = network.context or context  # a baseline reads what its network reads
        for rows in group_by_length(self.lengths("valid", context), limit, EVAL_BATCH_TOKENS):
            yield {**self.gather("valid", rows, context), "index": torch.from_numpy(rows)}

    def preview_batch(self, context: int | None) -> Batch:
        return self.gather("valid", np.arange(min(4, self.eval_size)), context)

    def fit(self, network: Network, fraction: float) -> float:
        """Tell the lead sentence which tokens end a sentence and which start a word."""
        tokenizer = self.artifacts.text_tokenizer
        texts = [tokenizer.decode([i]) for i in range(tokenizer.vocab)]
        starts = torch.tensor([text[:1].isspace() for text in texts])
        network.fit(  # type: ignore[operator]
            torch.tensor([text.endswith((".", "!", "?")) for text in texts]),
            starts if starts.any() else ~starts,
            torch.tensor([text.endswith(("。", "！", "？", "\n")) for text in texts]),
        )
        return 1.0


def document_limit(context: int | None) -> int:
    """Return the number of tokens of a document that are read, without the separator."""
    return max((context or UNLIMITED) - 1, 1)


# --- losses and metrics ---------------------------------------------------------------------------


class SummarizeObjective:
    """Predict each token of a summary from the document and the tokens before it."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        self.codec = SummarizeCodec(artifacts)

    def count(self, batch: Batch) -> int:
        return int((batch["targets"] != IGNORE_INDEX).sum())

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        yield token_loss(network, batch, label_smoothing)

    def scores(self, network: Network, batch: Batch) -> Scores:
        """Return the teacher-forced loss, and rows with the generated summaries."""
        (nats,) = self.losses(network, batch)
        generated = self.codec.run(network, pad_documents(split_documents(batch)), beam_size=0)
        targets = [row[row >= 0][:-1].tolist() for row in batch["targets"]]
        texts = zip(self.codec.decode(generated), self.codec.decode(targets), strict=True)
        return Scores(
            {"nats": float(nats), "tokens": self.count(batch)},
            [{"prediction": prediction, "target": target} for prediction, target in texts],
            {"index": [batch["index"].cpu().numpy()]},
        )

    def metrics(self, scores: Scores) -> dict[str, Any]:
        return {
            "loss": scores.sums["nats"] / scores.sums["tokens"],
            **mean_rouge(scores.rows),
            "examples": len(scores.rows),
            "tokens": scores.sums["tokens"],
        }


def split_documents(batch: Batch) -> list[Ids]:
    """Return the documents of a batch of pairs, each with its separator."""
    rows = zip(batch["ids"].cpu().numpy(), batch["positions"][:, 0].tolist(), strict=True)
    return [row[: position + 1] for row, position in rows]


def pad_documents(documents: Sequence[Ids]) -> Batch:
    """Return documents as one batch with padding on the left; no mask if there is none."""
    reversed_rows = [document[::-1].copy() for document in documents]
    ids, keep = (value.flip(1) for value in pad_rows(reversed_rows))
    return {"ids": ids} if bool(keep.all()) else {"ids": ids, "keep": keep}


# --- prediction -----------------------------------------------------------------------------------


class SummarizeCodec:
    """Encodes documents, runs the network, and decodes its output ids to summaries."""

    batch_size = 16

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer
        self.sep, self.eos = find_special_tokens(self.tokenizer)

    def extract(self, text: str, context: int | None = None, title: str | None = None) -> Extract:
        """Return what a network with this context reads of a document."""
        read = extract(self.tokenizer, text, document_limit(context), title)
        if not len(read.ids):
            raise GlassError("the document is empty: expected a text to summarize")
        return read

    def encode(self, examples: Sequence[str | Extract], context: int | None = None) -> Batch:
        """Return documents, each followed by the separator."""
        extracts = [self.extract(x, context) if isinstance(x, str) else x for x in examples]
        return pad_documents([np.append(x.ids, self.sep) for x in extracts])

    def run(
        self,
        network: Network,
        batch: Batch,
        *,
        beam_size: int = BEAM_SIZE,
        length_penalty: float = LENGTH_PENALTY,
    ) -> list[list[int]]:
        """Return the ids of the best summary of each document; `beam_size=0` decodes greedily."""
        inputs = {name: value.to(network.device) for name, value in batch.items()}
        ids = inputs.pop("ids")
        lengths = inputs.get("keep", torch.ones_like(ids)).sum(dim=1).tolist()
        limits = [min(MAX_SUMMARY, length // 4 + 16) for length in lengths]
        inputs["positions"] = torch.full_like(ids[:, :1], ids.shape[1] - 1)  # only the last logits
        options: dict[str, Any] = {
            "eos": self.eos,
            "no_repeat_ngram_size": NO_REPEAT_NGRAM_SIZE,
            **inputs,
        }
        if not beam_size:
            return generate_until(network, ids, limits, sampling=GREEDY, **options)
        beams = beam_search(
            network, ids, limits, beam_size=beam_size, length_penalty=length_penalty, **options
        )
        return [candidates[0][1] for candidates in beams]

    def decode(self, output: list[list[int]]) -> list[str]:
        """Return each summary as one line."""
        return [" ".join(self.tokenizer.decode(ids).split()) for ids in output]

    def with_summary(self, network: Network, batch: Batch, summary: str | None = None) -> Tensor:
        """Return a document with a summary, by default the network's own: 1 t."""
        if summary is None:
            ids = self.run(network, batch)[0]
        else:
            ids = self.tokenizer.encode(to_continuation(summary))
        return torch.cat((batch["ids"], batch["ids"].new_tensor([ids])), dim=1)

    def preview(self, network: Network, batch: Batch) -> str:
        documents = split_documents(batch)
        summaries = self.decode(self.run(network, pad_documents(documents), beam_size=0))
        texts = [" ".join(self.tokenizer.decode(d[:-1].tolist()).split()) for d in documents]
        return "\n".join(f"{a[:80]} ...  ->  {b}" for a, b in zip(texts, summaries, strict=True))


SUMMARIZE = TaskSpec(
    name="summarize",
    models=("summarizer", "lead"),
    model_settings={"context": 512, "dim": 128, "depth": 2, "heads": 2, "dropout": 0.1},
    train_settings={"batch_tokens": 4096, "lr": 1e-3, "weight_decay": 0.01},
    metric=METRICS["rouge_l"],
    unit="tokens",
    eval_limit=256,
    prepare=prepare,
    examples=read_examples,
    dataset=SummarizeDataset,
    objective=SummarizeObjective,
    codec=SummarizeCodec,
    example_input="document.txt",
    shortening="shortened to their most central sentences",
    baseline_model="lead",
    baseline_name="lead sentence",
    sampled_metric=ROUGE_L,
    details=summary_details,
    predictions=list_summaries,
)
