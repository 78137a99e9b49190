"""Fill-mask: predict tokens that were hidden in a text, and whether its second half follows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.batches import pad_rows, sample_windows
from glassformer.data.request import DataRequest
from glassformer.models.network import Network, Trait
from glassformer.tasks.classify import encode_pair
from glassformer.tasks.running_text import (
    EVAL_LIMIT,
    FINAL_EVAL_LIMIT,
    RunningText,
    examples,
    prepare_corpus,
)  # fmt: skip
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec
from glassformer.text.tokenizer import Tokenizer

ELSEWHERE = 1 << 40  # steps away, where other windows are found
WINDOW = 128  # tokens, for a model that can read any number
HIDDEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # of all tokens; of those: as [MASK], as any other token
EVAL_ROWS = 16
MARKS = ("[CLS]", "[SEP]", "[MASK]")


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    return prepare_corpus(request, folder, reporter, lambda _: "wordpiece")


def marks_of(tokenizer: Tokenizer) -> tuple[int, int, int]:
    """The ids of [CLS], [SEP] and [MASK]."""
    if not all(name in tokenizer.special_tokens for name in MARKS):
        raise GlassError(f"fill-mask needs a tokenizer with {', '.join(MARKS)}: wordpiece")
    first, last, mask = (tokenizer.special_tokens[name] for name in MARKS)
    return first, last, mask


@dataclass(frozen=True)
class Masker:
    """Makes examples of windows of a text: two halves, some tokens hidden."""

    first: int
    last: int
    mask: int
    vocab: int

    def __call__(self, ids: Tensor, others: Tensor, random: np.random.Generator) -> Batch:
        return self.hide(*self.pair(ids, others, random), random)

    def pair(
        self, ids: Tensor, others: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[CLS] one text [SEP] another [SEP], where it is which, and whether it is what followed.

        For half of the texts what followed is exchanged for something from elsewhere.
        """
        rows, length = ids.shape
        cut = torch.from_numpy(random.integers(length // 4, 3 * length // 4 + 1, (rows, 1)))
        is_next = torch.from_numpy(random.random((rows, 1)) < 0.5)
        at = torch.arange(length)
        ids = torch.where((at < cut) | is_next, ids, others)
        ids = F.pad(F.pad(ids, (1, 0), value=self.first), (0, 1), value=self.last)
        at, middle = torch.arange(length + 3), cut + 1  # where the first text's mark stands
        moved = ids.gather(1, (at - (at > middle).long()).expand(rows, -1))
        ids = torch.where(at == middle, self.last, moved)
        return ids, (at > middle).long(), is_next[:, 0].long()

    def hide(
        self, ids: Tensor, segments: Tensor, is_next: Tensor, random: np.random.Generator
    ) -> Batch:
        """Hide some of each text; `answers` is -100 where nothing is hidden."""
        chance = torch.from_numpy(random.random(ids.shape))
        other = torch.from_numpy(random.integers(0, self.vocab, ids.shape))
        fate = torch.from_numpy(random.random(ids.shape))
        hidden = (chance < HIDDEN) & (ids != self.first) & (ids != self.last)
        hidden[:, 1] |= ~hidden.any(dim=1)  # something is asked of every text
        shown = torch.where(hidden & (fate < MASKED), self.mask, ids)
        shown = torch.where(hidden & (fate >= 1 - RANDOM), other, shown)
        targets = torch.where(hidden, ids, -100)
        return {"ids": shown, "targets": targets, "segments": segments, "is_next": is_next}


@dataclass(frozen=True)
class MaskedWindows:
    """Random windows of a text, with tokens hidden."""

    dataset: "FillMaskDataset"
    batch_size: int
    context: int
    seed: int
    truncated: int = 0

    @property
    def per_epoch(self) -> int:
        return max(self.dataset.train.size // (self.batch_size * self.context), 1)

    def at(self, step: int) -> Batch:
        store, length = self.dataset.train, self.context - 3
        ids = sample_windows(store, self.seed, step, self.batch_size, length)
        others = sample_windows(store, self.seed, step + ELSEWHERE, self.batch_size, length)
        return self.dataset.mask(ids, others, np.random.default_rng((self.seed, step, 1)))


class FillMaskDataset(RunningText):
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        super().__init__(artifacts, folder)
        tokenizer = artifacts.text_tokenizer
        self.mask = Masker(*marks_of(tokenizer), tokenizer.vocab)

    def train_batches(self, batch: int, context: int | None, seed: int) -> MaskedWindows:
        context = check_context(context)
        if self.valid.size < context - 3:
            few = f"{self.valid.size} tokens are too few to validate on"
            raise GlassError(f"{few} in windows of {context - 3}: give more text")
        return MaskedWindows(self, batch, context, seed)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        """Windows one after the other, with the same tokens hidden each time."""
        length = check_context(context or network.context) - 3
        size = self.valid.size if limit is None else min(limit, self.valid.size)
        if size < length:
            raise GlassError(f"{size} tokens are too few to validate on in windows of {length}")
        whole = torch.from_numpy(self.valid.read(0, size // length * length)).reshape(-1, length)
        others = whole.roll(len(whole) // 2, dims=0)
        pieces = torch.arange(len(whole)).tensor_split(max(len(whole) // EVAL_ROWS, 1))
        for i, rows in enumerate(pieces):
            yield self.mask(whole[rows], others[rows], np.random.default_rng((0, i, 2)))

    def preview_batch(self, context: int | None) -> Batch:
        ids = torch.from_numpy(self.valid.read(0, check_context(context) - 3))[None]
        return self.mask(ids, ids, np.random.default_rng(0))


def check_context(context: int | None) -> int:
    """The tokens of an example: two texts and their three marks."""
    if context is not None and context < 8:
        raise GlassError(f"a context of {context} has no room for two texts and their marks")
    return context or WINDOW


class MaskedTokens:
    """Hidden tokens are predicted, and whether the second text follows the first."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        pass

    def count(self, batch: Batch) -> int:
        return int((batch["targets"] >= 0).sum())

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        """That of the hidden tokens; whether the halves belong together weighs as much in all."""
        masked_positions = batch["targets"] >= 0
        logits = network.masked_logits(batch["ids"], masked_positions, batch["segments"])  # type: ignore[operator]
        loss = F.cross_entropy(
            logits.tokens.float(),
            batch["targets"][masked_positions],
            reduction="sum",
            label_smoothing=label_smoothing,
        )
        if logits.is_next is not None:
            weight, is_next = HIDDEN * (masked_positions.shape[1] - 3), logits.is_next.float()
            loss = loss + weight * F.cross_entropy(is_next, batch["is_next"], reduction="sum")
        yield loss

    def scores(self, network: Network, batch: Batch) -> Scores:
        masked_positions = batch["targets"] >= 0
        targets = batch["targets"][masked_positions]
        if network.has(Trait.FITTED):
            probs = network.target_probs(batch["ids"], masked_positions, targets)  # type: ignore[operator]
            return Scores({"nats": -float(probs.log().sum()), "tokens": len(targets)})
        logits = network.masked_logits(batch["ids"], masked_positions, batch["segments"])  # type: ignore[operator]
        tokens = logits.tokens.float()
        sums = {
            "nats": float(F.cross_entropy(tokens, targets, reduction="sum")),
            "tokens": len(targets),
            "right": int((tokens.argmax(-1) == targets).sum()),
        }
        if logits.is_next is not None:
            sums["is_next"] = int((logits.is_next.argmax(-1) == batch["is_next"]).sum())
            sums["pairs"] = len(masked_positions)
        return Scores(sums)

    def metrics(self, scores: Scores) -> dict[str, Any]:
        sums = scores.sums
        found = {"loss": sums["nats"] / sums["tokens"], "tokens": sums["tokens"]}
        if "right" in sums:
            found["accuracy"] = sums["right"] / sums["tokens"]
        if "is_next" in sums:
            found["next_accuracy"] = sums["is_next"] / sums["pairs"]
        return found


class FillMaskCodec:
    """A text with [MASK] in, the likeliest tokens for each [MASK] out."""

    batch_size = 32

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer

    def encode_masked(self, text: str) -> list[int]:
        """The ids of a text in which [MASK] stands for a hidden token."""
        if "[MASK]" not in text:
            return encode_pair(self.tokenizer, (text,))
        first, last, mask = marks_of(self.tokenizer)
        start, *rest = [self.tokenizer.encode(piece) for piece in text.split("[MASK]")]
        return [first, *start, *(i for piece in rest for i in (mask, *piece)), last]

    def encode(self, examples: Sequence[str], context: int | None = None) -> Batch:
        ids, keep = pad_rows([np.array(self.encode_masked(text) or [0]) for text in examples])
        return {"ids": ids, "keep": keep}

    @torch.inference_mode()
    def run(self, network: Network, batch: Batch, *, top: int = 5) -> list[list[Any]]:
        """For each text and each of its masks the ids of the likeliest tokens, with their
        probabilities."""
        logits = network(**network.select_inputs(batch)).float()
        _, _, mask = marks_of(self.tokenizer)
        found = []
        for ids, row in zip(batch["ids"], logits, strict=True):
            best = row[ids == mask].softmax(dim=-1).topk(min(top, row.shape[-1]))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([list(zip(tokens, probs, strict=True)) for tokens, probs in pairs])
        return found

    def decode(self, output: list[list[Any]]) -> list[list[list[tuple[str, float]]]]:
        name = self.tokenizer.token
        return [[[(name(i), p) for i, p in mask] for mask in text] for text in output]

    def preview(self, network: Network, batch: Batch) -> str:
        guess = network(batch["ids"]).argmax(dim=-1)
        filled = torch.where(batch["targets"] >= 0, guess, batch["ids"])
        return self.tokenizer.decode(filled[0, 1:-1].tolist())


FILL_MASK = TaskSpec(
    name="fill-mask",
    models=("bert", "neighbors"),
    model_settings={
        "context": 128,
        "dim": 192,
        "depth": 4,
        "heads": 6,
        "dropout": 0.0,
        "position": "alibi",
    },
    train_settings={"batch_size": 16, "lr": 1e-3},
    metric=METRICS["loss"],
    unit="masks",
    eval_limit=EVAL_LIMIT,
    final_eval_limit=FINAL_EVAL_LIMIT,
    is_table=False,
    prepare=prepare,
    examples=examples,
    dataset=FillMaskDataset,
    objective=MaskedTokens,
    codec=FillMaskCodec,
    task_variants={"bert_encoder": "bert"},
    baseline_model="neighbors",
    baseline_name="counting neighbours",
)
