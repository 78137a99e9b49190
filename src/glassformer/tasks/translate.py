"""Translate: generate a target text from a source text. Shapes: b batch, s source tokens."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter, ProgressBar, Reporter, format_count
from glassformer.data.batches import (
    BucketBatches,
    choose_examples,
    concatenate_texts,
    group_by_length,
    pad_rows,
)
from glassformer.data.corpus import default_vocab, reuse_tokenizer, train_tokenizer
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, IgnoreBadRows
from glassformer.data.pairs import make_pair_reader
from glassformer.data.request import DataRequest
from glassformer.data.store import Store
from glassformer.generate.beam import beam_search
from glassformer.generate.decode import generate_until
from glassformer.generate.sampling import GREEDY, Sampling
from glassformer.models.encoder_decoder import EncoderDecoder, LexicalPriorConfig
from glassformer.models.network import Network
from glassformer.tasks.generate import target_logits, token_loss
from glassformer.tasks.table_rows import (
    hold_out_some,
    open_writers,
    report_sizes,
    summarize_examples,
    write_stores,
)
from glassformer.tasks.task import METRICS, Artifacts, Batch, FitFunction, Scores, TaskSpec
from glassformer.tasks.translation_metrics import (
    CHRF,
    compute_bleu,
    list_translations,
    translation_details,
)
from glassformer.text.bilingual import Bilingual, shared_characters, source_tokenizer
from glassformer.text.tokenizer import Tokenizer

BOS, EOS = "<start>", "<end>"
SUBWORD_TOKENIZERS = ("bpe", "wordpiece")
MIN_SHARED_CHARACTERS = 0.5  # two languages share a vocabulary by default above this fraction
MAX_TOKEN_PAIRS = 8_000_000  # (source, target) pairs to align, to limit memory
FOLDS = 8  # parts of the training pairs, each of which the prior predicts from the others
MAX_TOKENS = 256  # in a source or target; longer pairs are left out
EVAL_BATCH_TOKENS = 8192
BEAM_SIZE, LENGTH_PENALTY = 4, 0.6  # a penalty above 0 favors longer translations

Ids = NDArray[np.int64]


# --- files to examples ----------------------------------------------------------------------------


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    read, columns = make_pair_reader(request, reporter)
    summary = summarize_examples(read(request.on_bad_row))
    if not summary.sample:
        raise GlassError("the data has no valid pairs of source and target")
    if request.is_evaluation:
        reporter = NullReporter()
    elif (new_request := hold_out_some(request, summary)) is not request:
        read, _ = make_pair_reader(new_request, NullReporter())
    tokenizer = make_tokenizer(request, summary.sample, reporter)
    languages = source_tokenizer(tokenizer), tokenizer

    def encode(example: Example) -> list[list[int]] | None:
        pairs = zip(languages, example.texts, strict=True)
        ids = [language.encode(text) for language, text in pairs]
        return ids if max(map(len, ids)) <= MAX_TOKENS else None

    written = write_stores(
        read(IgnoreBadRows()),
        encode,
        open_writers(folder, {".source": languages[0].vocab, ".target": languages[1].vocab}),
        folder,
        bar=ProgressBar(reporter, "encoding", summary.count),
    )
    if not written.counts["valid"] or not (written.counts["train"] or request.is_evaluation):
        raise GlassError(f"too few pairs for training and validation: {summary.count}")
    report_sizes(written, "pair", reporter, "sources")
    if written.left_out:
        pairs = format_count(written.left_out, "pair")
        reporter(
            f"left out {pairs} with more than {MAX_TOKENS} tokens in the source or the target; "
            "to use them, split them into sentences"
        )
    return Artifacts(columns, tokenizer)


def make_tokenizer(request: DataRequest, sample: list[str], reporter: Reporter) -> Tokenizer:
    """Reuse or train a tokenizer for both languages, or one for each of them.

    The default is BPE, or characters for the built-in sample. By default, subword tokenizers of
    languages with few characters in common have two vocabularies: the head then predicts no tokens
    of the source language. `sample` has sources and targets in turn.
    """
    if request.base_tokenizer:
        return reuse_tokenizer(
            request.base_tokenizer, sample, extend=request.extend, reporter=reporter
        )
    kind = request.tokenizer or ("bpe" if request.files else "characters")
    sources, targets = sample[0::2], sample[1::2]
    is_shared = not request.has_source_vocab
    if is_shared and not request.vocab and kind in SUBWORD_TOKENIZERS:
        is_shared = shared_characters(sources, targets) >= MIN_SHARED_CHARACTERS
    if is_shared:
        # fewer tokens than for running text, because words repeat in both languages
        return train_on_texts(kind, sample, request.vocab, divisor=3)
    source = train_on_texts(request.source_tokenizer or kind, sources, request.source_vocab)
    target = train_on_texts(kind, targets, request.vocab)
    reporter(f"vocabularies of {source.vocab:,} source tokens and {target.vocab:,} target tokens")
    return Bilingual(source, target)


def train_on_texts(kind: str, texts: list[str], vocab: int | None, divisor: int = 1) -> Tokenizer:
    """Train a tokenizer, by default with a vocabulary size chosen from the size of the texts
    divided by `divisor`.
    """
    size = sum(len(text.encode("utf-8", "replace")) for text in texts) // divisor
    vocab = None if kind == "characters" else vocab or default_vocab(kind, size, texts)
    return train_tokenizer(kind, texts, vocab=vocab, special_tokens=(BOS, EOS))


def read_examples(
    request: DataRequest, on_bad_row: BadRowPolicy, reporter: Reporter
) -> Iterator[Example]:
    """Yield the pairs of the data for `check-data`."""
    read, _ = make_pair_reader(request, reporter)
    yield from read(on_bad_row)


# --- batches --------------------------------------------------------------------------------------


class TranslateDataset:
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        self.artifacts = artifacts
        tokenizer = artifacts.text_tokenizer
        source_language = source_tokenizer(tokenizer)
        self.bos, self.eos = find_bos_eos(tokenizer)
        _, self.source_eos = find_bos_eos(source_language)
        self.pairs = {
            split: (
                Store(folder / f"{split}.source.ids", source_language.vocab),
                Store(folder / f"{split}.target.ids", tokenizer.vocab),
            )
            for split in ("train", "valid")
        }
        source, target = self.pairs["train"]
        self.size = source.size + target.size
        self.eval_size = len(self.pairs["valid"][0])
        self.n_targets = target.size + len(target)  # including the end token of each target

    def sizes(self) -> dict[str, int]:
        tokenizer = self.artifacts.text_tokenizer
        sizes = {"vocab": tokenizer.vocab, "eos": self.eos}
        if isinstance(tokenizer, Bilingual):
            sizes["source_vocab"] = tokenizer.source.vocab
        return sizes

    def lengths(self, split: str) -> Ids:
        """Return the token count of each pair, including two special tokens in the target."""
        source, target = self.pairs[split]
        return source.lengths + target.lengths + 2

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> BucketBatches:
        return BucketBatches(self.gather_with_folds, self.lengths("train"), batch_size, seed)

    def gather_with_folds(self, rows: Ids) -> Batch:
        """Return training pairs, each with the fold that its prior leaves out."""
        return {**self.gather("train", rows), "folds": torch.from_numpy(self.folds[rows])}

    def gather(self, split: str, rows: Ids) -> Batch:
        """Return sources, inputs that start with <start>, and targets that end with <end>."""
        source, target = self.pairs[split]
        empty = np.array([self.source_eos])
        source_ids, keep = pad_rows([source[i] if len(source[i]) else empty for i in rows])
        ids, _ = pad_rows([np.append(self.bos, target[i]) for i in rows])
        targets, _ = pad_rows([np.append(target[i], self.eos) for i in rows], fill=-100)
        return {"ids": ids, "source": source_ids, "source_keep": keep, "targets": targets}

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        for rows in group_by_length(self.lengths("valid"), limit, EVAL_BATCH_TOKENS):
            yield {**self.gather("valid", rows), "index": torch.from_numpy(rows)}

    def preview_batch(self, context: int | None) -> Batch:
        return self.gather("valid", np.arange(min(4, len(self.pairs["valid"][0]))))

    def fit(self, network: Network, fraction: float) -> float:
        source, target = self.pairs["train"]
        rows = self.choose_rows(fraction)
        network.fit(concatenate_texts(source, rows), concatenate_texts(target, rows))  # type: ignore[operator]
        return len(rows) / len(source)

    def choose_rows(self, fraction: float = 1.0) -> Ids:
        """Choose training pairs to align: a fraction of them, or fewer to limit memory."""
        source, target = self.pairs["train"]
        token_pairs = float(((source.lengths + 1) * (target.lengths + 1)).sum())  # with end tokens
        fraction = min(fraction, MAX_TOKEN_PAIRS / max(token_pairs, 1))
        return choose_examples(len(source), max(round(len(source) * fraction), 1))

    @cached_property
    def folds(self) -> Ids:
        """The fold of each training pair.

        Pairs with the same source share a fold, because they would leak otherwise.
        """
        source, _ = self.pairs["train"]
        ids = np.asarray(source.flat)
        starts = source.starts.tolist()
        texts = (ids[start:end].tobytes() for start, end in pairwise(starts))
        return np.array([crc32(text) % FOLDS for text in texts], dtype=np.int64)

    def fit_prior(self, network: EncoderDecoder, fit: FitFunction) -> None:
        """Attach a prior to a network, or refit its prior.

        The prior is a word-translation table estimated from the training pairs.
        """
        is_new, prior = network.prior is None, network.prior
        if prior is None:
            prior = network.attach_prior(LexicalPriorConfig())
        rows = self.choose_rows()
        source, target = self.pairs["train"]
        prior.fit(
            concatenate_texts(source, rows),
            concatenate_texts(target, rows, eos=self.eos),
            torch.from_numpy(self.folds[rows]),
        )
        if is_new:
            prior.set_gates(1.0)


def find_bos_eos(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids of the special tokens before and after a translation."""
    if not {BOS, EOS} <= tokenizer.special_tokens.keys():
        raise GlassError(f"translate needs a tokenizer with the special tokens {BOS} and {EOS}")
    return tokenizer.special_tokens[BOS], tokenizer.special_tokens[EOS]


def max_target_lengths(source_keep: Tensor) -> list[int]:
    """Return the token limit of each translation, independent of padding: b s -> b."""
    lengths: list[int] = source_keep.sum(dim=1).tolist()
    return [min(MAX_TOKENS, 4 * length + 30) for length in lengths]


# --- losses and metrics ---------------------------------------------------------------------------


class TranslateObjective:
    """Predict each token of a translation from the source and the tokens before it."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        self.codec = TranslateCodec(artifacts)

    def count(self, batch: Batch) -> int:
        return int((batch["targets"] >= 0).sum())

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        yield token_loss(network, batch, label_smoothing)

    def scores(self, network: Network, batch: Batch) -> Scores:
        """Return summed metrics and rows with the generated translations.

        The loss and the correct tokens are teacher-forced: each token is predicted from the
        reference before it. The generated translations are free-running: each token is predicted
        from the network's own output.
        """
        logits, token_targets = target_logits(network, batch)
        nats = F.cross_entropy(logits, token_targets, reduction="sum")
        generated = self.codec.run(network, batch, beam_size=0)
        targets = [row[row >= 0][:-1].tolist() for row in batch["targets"]]
        texts = zip(self.codec.decode(generated), self.codec.decode(targets), strict=True)
        return Scores(
            {
                "nats": float(nats),
                "tokens": self.count(batch),
                "correct": int((logits.argmax(dim=-1) == token_targets).sum()),
                "exact": sum(ids == target for ids, target in zip(generated, targets, strict=True)),
            },
            [{"prediction": prediction, "target": target} for prediction, target in texts],
            {"index": [batch["index"].cpu().numpy()]},
        )

    def metrics(self, scores: Scores) -> dict[str, Any]:
        sums, examples = scores.sums, len(scores.rows)
        return {
            "loss": sums["nats"] / sums["tokens"],
            "token_accuracy": sums["correct"] / sums["tokens"],
            "exact": sums["exact"] / examples,
            "examples": examples,
            "tokens": sums["tokens"],
            **compute_bleu(
                [row["prediction"] for row in scores.rows], [row["target"] for row in scores.rows]
            ),
        }


# --- prediction -----------------------------------------------------------------------------------


class TranslateCodec:
    """Encodes source texts, runs the network, and decodes its output ids."""

    batch_size = 16

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer
        self.source_tokenizer = source_tokenizer(self.tokenizer)
        self.bos, self.eos = find_bos_eos(self.tokenizer)
        _, self.source_eos = find_bos_eos(self.source_tokenizer)

    def encode_source(self, text: str) -> list[int]:
        """Return the ids of a source text; a text longer than any in training is an error."""
        ids = self.source_tokenizer.encode(text)
        if len(ids) > MAX_TOKENS:
            raise GlassError(
                f"a source text may have at most {MAX_TOKENS} tokens, but {text[:40]!r} ... has "
                f"{len(ids):,}: split it into sentences"
            )
        return ids

    def encode(self, examples: Sequence[str], context: int | None = None) -> Batch:
        rows = [np.array(self.encode_source(text) or [self.source_eos]) for text in examples]
        source, keep = pad_rows(rows)
        return {"source": source, "source_keep": keep}

    def run(
        self,
        network: Network,
        batch: Batch,
        *,
        beam_size: int = BEAM_SIZE,
        length_penalty: float = LENGTH_PENALTY,
        sampling: Sampling | None = None,
        seed: int | None = None,
    ) -> list[list[int]]:
        """Return the ids of the best translation of each text; `beam_size=0` decodes greedily.

        With `sampling`, the tokens are sampled instead.
        """
        inputs: dict[str, Any] = {name: batch[name] for name in ("source", "source_keep")}
        start = torch.full_like(inputs["source"][:, :1], self.bos)
        limits = max_target_lengths(inputs["source_keep"])
        if sampling or not beam_size:
            options: dict[str, Any] = {"sampling": sampling or GREEDY, "seed": seed, **inputs}
            return generate_until(network, start, limits, eos=self.eos, **options)
        beams = beam_search(
            network,
            start,
            limits,
            eos=self.eos,
            beam_size=beam_size,
            length_penalty=length_penalty,
            **inputs,
        )
        return [candidates[0][1] for candidates in beams]

    def decode(self, output: list[list[int]]) -> list[str]:
        return [self.tokenizer.decode(ids) for ids in output]

    def preview(self, network: Network, batch: Batch) -> str:
        rows = zip(batch["source"], batch["source_keep"], strict=True)
        sources = [self.source_tokenizer.decode(row[keep].tolist()) for row, keep in rows]
        translations = self.decode(self.run(network, batch, beam_size=0))
        return "\n".join(f"{a}  ->  {b}" for a, b in zip(sources, translations, strict=True))


TRANSLATE = TaskSpec(
    name="translate",
    models=(
        *("speedrun_translator", "translator", "universal_translator"),
        *("recurrent_translator", "phrase_table"),
    ),
    task_variants={"universal": "universal_translator"},
    model_settings={"dim": 192, "depth": 2, "heads": 4, "hidden": 768, "dropout": 0.1},
    train_settings={
        "batch_tokens": 2048,
        "lr": 1e-3,
        "beta2": 0.98,
        "weight_decay": 0.01,
        "warmup": 0.1,
    },
    metric=METRICS["chrf"],
    unit="tokens",
    eval_limit=64,  # generating is slow, especially early in training
    prepare=prepare,
    examples=read_examples,
    dataset=TranslateDataset,
    objective=TranslateObjective,
    codec=TranslateCodec,
    baseline_model="phrase_table",
    baseline_name="phrase table",
    fit_prior=TranslateDataset.fit_prior,
    sampled_metric=CHRF,
    details=translation_details,
    predictions=list_translations,
)
