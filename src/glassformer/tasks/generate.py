"""Generate: predict the next token of a text. Shapes: b batch, t tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.baselines.markov import LARGE_VOCAB, Markov
from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data import corpus
from glassformer.data.batches import check_window, read_windows, sample_starts
from glassformer.data.request import DataRequest
from glassformer.data.store import Store
from glassformer.generate.decode import generate_tokens
from glassformer.generate.sampling import Sampling
from glassformer.models.network import LanguageModel, Network, PriorConfig, Trait
from glassformer.tasks.bootstrap import Sample, SampledMetric, sum_blocks
from glassformer.tasks.running_text import (
    EVAL_LIMIT,
    FINAL_EVAL_LIMIT,
    RunningText,
    prepare_corpus,
    read_examples,
)  # fmt: skip
from glassformer.tasks.task import METRICS, Artifacts, Batch, FitFunction, Scores, TaskSpec
from glassformer.text.plain import UNKNOWN
from glassformer.text.tokenizer import find_eos

DEFAULT_WINDOW = 1024  # tokens, for a network with unlimited context
EVAL_BATCH_TOKENS = 2048
FITTED_WINDOW, FITTED_OVERLAP = 200_000, 100  # tokens, for models fitted directly
IGNORE_INDEX = -100  # marks positions without a target; the default of F.cross_entropy
MAX_ALPHABET = 256  # distinct characters; a text with more is encoded as bytes
MAX_CHARACTER_BYTES = 5_000_000  # a larger text is encoded with BPE, not as characters or bytes
FOLDS = 8  # parts of the training text, each of which the prior predicts from the others
PRIOR_ORDER, PRIOR_ORDER_LARGE_VOCAB = 8, 5  # max context length of the prior
MAX_COUNTED_TOKENS, MAX_COUNTED_TOKENS_LARGE_VOCAB = 2_000_000, 1_000_000  # to limit memory
PAST_IDS = PRIOR_ORDER - 1  # tokens before a window that the prior needs


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    def choose_tokenizer(summary: corpus.CorpusSummary) -> str:
        if summary.bytes >= MAX_CHARACTER_BYTES:
            return "bpe"
        alphabet = len(set().union(*map(set, summary.sample)))
        return "characters" if alphabet <= MAX_ALPHABET else "bytes"

    if request.tokenizer == "wordpiece":
        raise GlassError(
            "the tokenizer 'wordpiece' preserves neither spaces nor capitals, so it cannot "
            "generate text: use bpe, or words"
        )
    return prepare_corpus(request, folder, reporter, choose_tokenizer)


@dataclass(frozen=True)
class Windows:
    """Random windows of a text; the targets are shifted by one token.

    A batch also has what a prior needs: the tokens before each window, and the fold of each target.
    """

    store: Store
    batch_size: int
    context: int
    seed: int
    counted_tokens: int  # number of tokens, from the start of the text, that a prior counts
    truncated: int = 0

    @property
    def per_epoch(self) -> int:
        return max(self.store.size // (self.batch_size * self.context), 1)

    def at(self, step: int) -> Batch:
        starts = sample_starts(self.store, self.seed, step, self.batch_size, self.context + 1)
        return self.read(starts)

    def read(self, starts: NDArray[np.int64]) -> Batch:
        """The batch of the windows that start at these positions (b)."""
        length = self.context + 1
        ids = read_windows(self.store, starts, length, before=PAST_IDS)
        positions = torch.from_numpy(starts)[:, None] + torch.arange(1, length)
        return {**split_windows(ids), "folds": assign_folds(positions, self.counted_tokens)}


@dataclass(frozen=True)
class Streams:
    """Consecutive segments of a text, for a network with a memory.

    Each row of a batch is a stream, which starts at its own position in the text and continues
    across steps. At the end of the text, a stream continues at its start.
    """

    windows: Windows
    truncated: int = 0

    @property
    def per_epoch(self) -> int:
        return self.windows.per_epoch

    def at(self, step: int) -> Batch:
        store = self.windows.store
        context = self.windows.context
        rows = self.windows.batch_size
        check_window(store, context + 1)
        n_segments = (store.size - 1) // context
        rng = np.random.default_rng((self.windows.seed, 0))
        offset = rng.integers(0, store.size - n_segments * context)
        first = rng.integers(0, n_segments) + np.arange(rows) * n_segments // rows
        starts = offset + (first + step) % n_segments * context
        streams = torch.arange(rows)
        segment = torch.full((rows,), step)
        return {**self.windows.read(starts), "streams": streams, "segment": segment}


def split_windows(ids: Tensor) -> Batch:
    """Ids, targets and earlier ids, from windows with PAST_IDS tokens before and one after them."""
    return {
        "ids": ids[:, PAST_IDS:-1],
        "targets": ids[:, PAST_IDS + 1 :],
        "past_ids": ids[:, :PAST_IDS],
    }


def assign_folds(positions: Tensor, counted_tokens: int) -> Tensor:
    """The fold of each position in a text; FOLDS for those after the first `counted_tokens` tokens.

    Folds are contiguous, because text repeats what is nearby: interleaved folds would leak.
    """
    return (positions * FOLDS // counted_tokens).clamp(max=FOLDS)


class GenerateDataset(RunningText):
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        super().__init__(artifacts, folder)
        if not self.valid.size:
            raise GlassError("there is no text for validation")
        for name in ("valid_bytes", "valid_tokens"):
            if not isinstance(artifacts.metadata.get(name), int):
                raise GlassError(f"the task metadata has no valid {name!r}")

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> Windows:
        return Windows(self.train, batch_size, context or DEFAULT_WINDOW, seed, self.counted_tokens)

    def stream_batches(self, batch_size: int, context: int, seed: int) -> Streams:
        return Streams(self.train_batches(batch_size, context, seed))

    @property
    def counted_tokens(self) -> int:
        """The number of tokens that a prior counts."""
        is_large = self.artifacts.text_tokenizer.vocab > LARGE_VOCAB
        limit = MAX_COUNTED_TOKENS_LARGE_VOCAB if is_large else MAX_COUNTED_TOKENS
        return max(min(self.size, limit), 1)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        """Yield the first token, which cannot be predicted, then consecutive windows.

        Fitted models get longer windows, each preceded by the tokens before it as context.
        """
        flat = self.valid.flat if limit is None else self.valid.flat[: limit + 1]
        yield {"unpredicted": torch.from_numpy(flat[:1].astype(np.int64))}
        if network.has(Trait.SEGMENT_MEMORY):
            yield from self.eval_segments(network, len(flat), context)
            return
        is_fitted = network.has(Trait.FITTED)
        length = FITTED_WINDOW if is_fitted else context or network.context or DEFAULT_WINDOW
        rows = 1 if is_fitted else max(EVAL_BATCH_TOKENS // length, 1)
        for start in range(0, len(flat) - 1, rows * length):
            overlap = min(start, FITTED_OVERLAP) if is_fitted else 0
            span = torch.from_numpy(
                flat[start - overlap : start + rows * length + 1].astype(np.int64)
            )
            ids, targets = span[:-1], span[1:].clone()
            targets[:overlap] = IGNORE_INDEX
            if is_fitted:
                yield {"ids": ids[None], "targets": targets[None]}
                continue
            full = len(ids) // length * length  # tokens in windows of full length
            starts = np.arange(start, start + len(ids), length)
            past_ids = read_windows(self.valid, starts, 0, before=PAST_IDS)
            if full:
                yield {
                    "ids": ids[:full].reshape(-1, length),
                    "targets": targets[:full].reshape(-1, length),
                    "past_ids": past_ids[: full // length],
                }
            if full < len(ids):
                yield {
                    "ids": ids[None, full:],
                    "targets": targets[None, full:],
                    "past_ids": past_ids[-1:],
                }

    def eval_segments(self, network: Network, size: int, context: int | None) -> Iterator[Batch]:
        """Yield the segments of one stream; the last may be shorter.

        `context` is the number of tokens that the last token of a segment can attend to.
        """
        length = network.context or DEFAULT_WINDOW
        memory = {} if context is None else {"memory": torch.tensor(max(context - length, 0))}
        for segment, start in enumerate(range(0, size - 1, length)):
            starts = np.array([start])
            ids = read_windows(self.valid, starts, min(length, size - 1 - start) + 1, PAST_IDS)
            stream = {"streams": torch.tensor([0]), "segment": torch.tensor([segment])}
            yield {**split_windows(ids), **stream, **memory}

    def fit_prior(
        self, network: LanguageModel, fit: FitFunction | None = None
    ) -> tuple[Markov, float]:
        """Attach a prior to a network, or refit its prior, and count the training text.

        Returns the n-gram model with the same counts whose order predicts held-out folds best, and
        the fraction of the text that was counted. A new prior starts as this model.
        """
        vocab = network.config.vocab
        is_new, prior = network.prior is None, network.prior
        if prior is None:
            order = PRIOR_ORDER if vocab <= LARGE_VOCAB else PRIOR_ORDER_LARGE_VOCAB
            prior = network.attach_prior(PriorConfig(order))
        ids = torch.from_numpy(self.train.read(0, self.counted_tokens))
        folds = assign_folds(torch.arange(len(ids)), self.counted_tokens)
        order = max(prior.fit(ids, folds), 1)
        if is_new:
            prior.open_gates(order)
        return Markov.from_counts(prior.counts, order), self.counted_tokens / max(self.size, 1)

    def preview_batch(self, context: int | None) -> Batch:
        return {"ids": torch.from_numpy(self.valid.read(0, 8))[None]}


class GenerateObjective:
    """Predict each token from the tokens before it."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        self.artifacts = artifacts

    def count(self, batch: Batch) -> int:
        return batch["targets"].numel()

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        yield token_loss(network, batch, label_smoothing)

    def scores(self, network: Network, batch: Batch) -> Scores:
        """Return nats and tokens; an unknown token adds the nats of a random Unicode character."""
        if "unpredicted" in batch:
            targets = batch["unpredicted"]
            nats = torch.full(targets.shape, math.log(network.config.vocab))  # uniform
        else:
            targets = batch["targets"][batch["targets"] != IGNORE_INDEX]
            nats = token_nats(network, batch)
        unknown = self.artifacts.text_tokenizer.special_tokens.get(UNKNOWN, -1)
        is_unknown = (targets == unknown).cpu()
        nats = nats.cpu().double() + is_unknown * math.log(0x110000)
        sums = {"nats": float(nats.sum()), "tokens": len(targets), "unknown": int(is_unknown.sum())}
        return Scores(sums, arrays={"nats": [nats.numpy()]})

    def metrics(self, scores: Scores) -> dict[str, Any]:
        """Return the loss in several units, and the fraction of unknown tokens if it matters."""
        metadata, sums = self.artifacts.metadata, scores.sums
        n_bytes = metadata["valid_bytes"] * sums["tokens"] / max(metadata["valid_tokens"], 1)
        metrics = text_metrics(sums["nats"], sums["tokens"], n_bytes)
        if sums["unknown"] or self.artifacts.text_tokenizer.kind == "words":
            metrics["unknown_tokens"] = sums["unknown"] / sums["tokens"]
        return metrics


def token_loss(network: Network, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy of the targets (b t) that are not ignored."""
    logits, targets = target_logits(network, batch)
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)


def target_logits(network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the logits of all positions, b*t v, and their targets, b*t."""
    logits = network(**network.select_inputs(batch)).flatten(0, 1).float()
    return logits, batch["targets"].flatten()


def token_nats(network: Network, batch: Batch) -> Tensor:
    """Return the negative log-likelihood of each target (b t) that is not ignored, in order."""
    is_target = batch["targets"] != IGNORE_INDEX
    if network.has(Trait.FITTED):
        ids, targets = batch["ids"][0], batch["targets"][0]
        probs: Tensor = network.target_probs(torch.cat((ids, targets[-1:])))  # type: ignore[operator]
        return -probs[is_target[0]].double().log()
    logits = network(**network.select_inputs(batch))[is_target].float()
    return F.cross_entropy(logits, batch["targets"][is_target], reduction="none")


def sample_text(scores: Scores, artifacts: Artifacts) -> Sample:
    """The nats and bytes of blocks of consecutive tokens."""
    nats = scores.array("nats")
    metadata = artifacts.metadata
    bytes_per_token = metadata["valid_bytes"] / max(metadata["valid_tokens"], 1)
    blocks = sum_blocks(np.column_stack((nats, np.full(len(nats), bytes_per_token))))
    return Sample(np.arange(len(blocks)), blocks)


BITS_PER_BYTE = SampledMetric(sample_text, lambda sums: sums[:, 0] / math.log(2) / sums[:, 1])


def text_metrics(nats: float, tokens: int, n_bytes: float) -> dict[str, float]:
    loss = nats / max(tokens, 1)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 50.0)),
        "bits_per_byte": nats / math.log(2) / max(n_bytes, 1),
        "tokens": tokens,
        "bytes": round(n_bytes),
    }


def explain_unknown(scores: Scores, artifacts: Artifacts) -> dict[str, Any]:
    """What `evaluate` says about a text that the tokenizer does not represent completely."""
    share = f"{scores.sums['unknown'] / scores.sums['tokens']:.1%}"
    reasons = (
        f"{share} of the tokens are unknown, and each is charged only the cost of `<unk>` and of "
        "one random character"
    )
    if artifacts.text_tokenizer.kind == "words":
        reasons = f"spaces and line breaks are not predicted; {reasons}"
    elif not scores.sums["unknown"]:
        return {}
    return {"note": f"bits per byte cannot be compared with other tokenizers: {reasons}"}


class GenerateCodec:
    """Encodes a prompt, runs the network, and decodes its output ids.

    A batch has one text, so that each has its own seed.
    """

    batch_size = 1

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer
        self.eos = frozenset(find_eos(self.tokenizer, artifacts.metadata))

    def encode(self, examples: Sequence[str], context: int | None = None) -> Batch:
        """Return the ids of one prompt, after the tokenizer's prefix."""
        (prompt,), tokenizer = examples, self.tokenizer
        ids = tokenizer.prefix + tokenizer.encode(prompt) or tokenizer.encode("\n") or [0]
        return {"ids": torch.tensor([ids])}

    def stream(
        self,
        network: Network,
        batch: Batch,
        *,
        max_new_tokens: int = 200,
        sampling: Sampling | None = None,
        seed: int | None = None,
    ) -> Iterator[int]:
        """Yield generated ids one at a time, up to but not including an end-of-sequence token."""
        tokens = map(
            int,
            generate_tokens(network, batch["ids"], max_new_tokens, sampling=sampling, seed=seed),
        )
        return takewhile(lambda token: token not in self.eos, tokens)

    def run(self, network: Network, batch: Batch, **options: Any) -> list[list[int]]:
        return [[*self.stream(network, batch, **options)]]

    def decode(self, output: list[list[int]]) -> list[str]:
        return [self.tokenizer.decode(ids) for ids in output]

    def preview(self, network: Network, batch: Batch) -> str:
        prompt = batch["ids"]
        generated = generate_tokens(network, prompt, 80, sampling=Sampling(0.8), seed=0)
        return self.tokenizer.decode([*prompt[0].tolist(), *map(int, generated)])


GENERATE = TaskSpec(
    name="generate",
    models=(
        *("speedrun", "gpt2", "generator", "llama"),
        *("decoder", "post_norm_decoder", "unprojected_decoder"),
        *("transformer_xl", "sparse", "universal", "recurrent", "convolutional", "markov"),
    ),
    model_settings={"context": 128, "dim": 192, "depth": 4, "heads": 6, "dropout": 0.0},
    train_settings={"batch_size": 16, "lr": 1.5e-3},
    metric=METRICS["bits_per_byte"],
    unit="tokens",
    eval_limit=EVAL_LIMIT,
    final_eval_limit=FINAL_EVAL_LIMIT,
    is_table=False,
    prepare=prepare,
    examples=read_examples,
    dataset=GenerateDataset,
    stream_batches=GenerateDataset.stream_batches,
    long_context_model="sparse",
    objective=GenerateObjective,
    codec=GenerateCodec,
    baseline_model="markov",
    baseline_name="n-gram counts",
    fit_prior=GenerateDataset.fit_prior,
    sampled_metric=BITS_PER_BYTE,
    details=explain_unknown,
)
