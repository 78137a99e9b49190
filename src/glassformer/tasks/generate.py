"""Generate: predict the next token of a text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data import corpus
from glassformer.data.batches import sample_windows
from glassformer.data.request import DataRequest
from glassformer.data.store import Store
from glassformer.generate.decode import generate_tokens
from glassformer.generate.sampling import Sampling
from glassformer.models.network import Network, Trait
from glassformer.tasks.running_text import (
    EVAL_LIMIT,
    FINAL_EVAL_LIMIT,
    RunningText,
    examples,
    prepare_corpus,
)  # fmt: skip
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec
from glassformer.text.plain import UNKNOWN

LONG = 1024  # tokens of a window, for a network that can read any number
EVAL_BATCH = 2048  # tokens, of several windows
FITTED_WINDOW, LEFT = 200_000, 100  # tokens that a fitted model reads at once; and before them
ENDS = ("<|endoftext|>", "</s>", "<s>")  # marks after which a text is at its end
IGNORED = -100  # in place of an answer that is not asked for


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    def kind(extent: corpus.CorpusSummary) -> str:
        alphabet = len(set().union(*map(set, extent.sample)))
        return "characters" if alphabet <= 256 and extent.bytes < 5_000_000 else "bpe"

    if request.tokenizer in ("words", "wordpiece"):
        raise GlassError(f"{request.tokenizer} lose the spaces of a text: take bpe to write with")
    return prepare_corpus(request, folder, reporter, kind)


@dataclass(frozen=True)
class Windows:
    """Random windows of a text, each with the token that follows it."""

    store: Store
    batch_size: int
    context: int
    seed: int
    truncated: int = 0

    @property
    def per_epoch(self) -> int:
        return max(self.store.size // (self.batch_size * self.context), 1)

    def at(self, step: int) -> Batch:
        ids = sample_windows(self.store, self.seed, step, self.batch_size, self.context + 1)
        return {"ids": ids[:, :-1], "targets": ids[:, 1:]}


class GenerateDataset(RunningText):
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        super().__init__(artifacts, folder)
        if not self.valid.size:
            raise GlassError("there is no text to validate on")
        for name in ("valid_bytes", "valid_tokens"):
            if not isinstance(artifacts.metadata.get(name), int):
                raise GlassError(f"the task does not say how much text there is ({name})")

    def train_batches(self, batch: int, context: int | None, seed: int) -> Windows:
        return Windows(self.train, batch, context or LONG, seed)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        """The text in windows of a context, one after the other; the first token, which nothing
        predicts, comes first. What is fitted reads longer windows, each with what stands before."""
        flat = self.valid.flat if limit is None else self.valid.flat[: limit + 1]
        yield {"unpredicted": torch.from_numpy(flat[:1].astype(np.int64))}
        fitted = network.has(Trait.FITTED)
        length = FITTED_WINDOW if fitted else context or network.context or LONG
        rows = 1 if fitted else max(EVAL_BATCH // length, 1)
        for start in range(0, len(flat) - 1, rows * length):
            left = min(start, LEFT) if fitted else 0
            piece = torch.from_numpy(
                flat[start - left : start + rows * length + 1].astype(np.int64)
            )
            ids, targets = piece[:-1], piece[1:].clone()
            targets[:left] = IGNORED
            if fitted:
                yield {"ids": ids[None], "targets": targets[None]}
                continue
            whole = len(ids) // length * length
            if whole:
                yield {
                    "ids": ids[:whole].reshape(-1, length),
                    "targets": targets[:whole].reshape(-1, length),
                }
            if whole < len(ids):
                yield {"ids": ids[None, whole:], "targets": targets[None, whole:]}

    def preview_batch(self, context: int | None) -> Batch:
        return {"ids": torch.from_numpy(self.valid.read(0, 8))[None]}


class NextToken:
    """Each token is predicted from those before it."""

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
        """Nats and tokens; a token that the tokenizer does not know is spelled out."""
        if "unpredicted" in batch:
            targets = batch["unpredicted"]
            nats = math.log(network.config.vocab) * len(targets)  # a guess among all tokens
        else:
            targets = batch["targets"][batch["targets"] != IGNORED]
            nats = token_nats(network, batch["ids"], batch["targets"])
        unknown = self.artifacts.text_tokenizer.special_tokens.get(UNKNOWN, -1)
        spelled = int((targets == unknown).sum()) * math.log(0x110000)  # one of all characters
        return Scores({"nats": nats + spelled, "tokens": len(targets)})

    def metrics(self, scores: Scores) -> dict[str, Any]:
        metadata, tokens = self.artifacts.metadata, scores.sums["tokens"]
        size = metadata["valid_bytes"] * tokens / max(metadata["valid_tokens"], 1)
        return text_metrics(scores.sums["nats"], tokens, size)


def token_loss(network: Network, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """The sum of the cross-entropies of the answers, b t, that are not ignored."""
    logits = network(**network.select_inputs(batch)).flatten(0, 1).float()
    targets = batch["targets"].flatten()
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)


def token_nats(network: Network, ids: Tensor, targets: Tensor) -> float:
    """The negative log-likelihood of answers, b t, in all; some may be ignored."""
    if network.has(Trait.FITTED):
        text = torch.cat((ids[0], targets[0, -1:]))
        probs: Tensor = network.target_probs(text)  # type: ignore[operator]
        return -float(probs[targets[0] != IGNORED].double().log().sum())
    return float(token_loss(network, {"ids": ids, "targets": targets}))


def text_metrics(nats: float, tokens: int, size: float) -> dict[str, float]:
    loss = nats / max(tokens, 1)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 50.0)),
        "bits_per_byte": nats / math.log(2) / max(size, 1),
        "tokens": tokens,
        "bytes": round(size),
    }


class GenerateCodec:
    """A prompt in, its continuation out; each text is continued alone, with a seed of its own."""

    batch_size = 1

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = words = artifacts.text_tokenizer
        ends = [words.special_tokens[mark] for mark in ENDS if mark in words.special_tokens]
        self.eos = frozenset(artifacts.metadata.get("eos") or ends)

    def encode(self, examples: Sequence[str], context: int | None = None) -> Batch:
        """The ids of a text, after the token that the model expects before every text."""
        (prompt,), words = examples, self.tokenizer
        ids = words.prefix + words.encode(prompt) or words.encode("\n") or [0]
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
        """New ids, one at a time, up to one that ends a text."""
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
        start = batch["ids"]
        ids = [*start[0].tolist()]
        ids += [int(t) for t in generate_tokens(network, start, 80, sampling=Sampling(0.8), seed=0)]
        return self.tokenizer.decode(ids)


GENERATE = TaskSpec(
    name="generate",
    models=("gpt2", "generator", "llama", "decoder", "recurrent", "convolutional", "markov"),
    model_settings={"context": 128, "dim": 192, "depth": 4, "heads": 6, "dropout": 0.0},
    train_settings={"batch_size": 16, "lr": 1.5e-3},
    metric=METRICS["bits_per_byte"],
    unit="tokens",
    eval_limit=EVAL_LIMIT,
    final_eval_limit=FINAL_EVAL_LIMIT,
    is_table=False,
    prepare=prepare,
    examples=examples,
    dataset=GenerateDataset,
    objective=NextToken,
    codec=GenerateCodec,
    baseline_model="markov",
    baseline_name="counting n-grams",
)
