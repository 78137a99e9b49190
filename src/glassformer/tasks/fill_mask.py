"""Fill-mask: predict masked tokens, and whether the second half of a text follows the first."""

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
from glassformer.tasks.bootstrap import Sample, SampledMetric, sum_blocks
from glassformer.tasks.running_text import (
    EVAL_LIMIT,
    FINAL_EVAL_LIMIT,
    RunningText,
    prepare_corpus,
    read_examples,
)  # fmt: skip
from glassformer.tasks.task import METRICS, Artifacts, Batch, Scores, TaskSpec, move_to_device
from glassformer.tasks.text_pairs import collate, encode_pair
from glassformer.text.tokenizer import Tokenizer

OTHER_STEPS = 1 << 40  # added to a step to draw the windows that replace second halves
DEFAULT_WINDOW = 128  # tokens, for a model with unlimited context
MIN_CONTEXT = 8  # tokens
MASK_FRACTION = 0.15  # fraction of tokens that are masked
MASK_TOKEN_FRACTION = 0.8  # fraction of the masked tokens that are replaced with [MASK]
RANDOM_TOKEN_FRACTION = 0.1  # fraction of the masked tokens that are replaced with a random one
EVAL_BATCH_SIZE = 16
SPECIAL_TOKENS = ("[CLS]", "[SEP]", "[MASK]")


def prepare(request: DataRequest, folder: Path, reporter: Reporter) -> Artifacts:
    return prepare_corpus(request, folder, reporter, lambda _: "wordpiece")


def find_special_ids(tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Return the ids of [CLS], [SEP] and [MASK]."""
    if not all(name in tokenizer.special_tokens for name in SPECIAL_TOKENS):
        names = ", ".join(SPECIAL_TOKENS)
        raise GlassError(f"fill-mask needs a tokenizer with {names}, such as wordpiece")
    cls, sep, mask = (tokenizer.special_tokens[name] for name in SPECIAL_TOKENS)
    return cls, sep, mask


@dataclass(frozen=True)
class Masker:
    """Turns windows of a text into examples: two halves, with some tokens masked."""

    cls: int
    sep: int
    mask: int
    vocab: int

    def __call__(self, ids: Tensor, others: Tensor, rng: np.random.Generator) -> Batch:
        return self.mask_tokens(*self.make_pairs(ids, others, rng), rng)

    def make_pairs(
        self, ids: Tensor, others: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return [CLS] first half [SEP] second half [SEP], the segments, and `is_next`.

        In about half of the rows, the second half is replaced by a second half from `others`.
        """
        rows, length = ids.shape
        cut = torch.from_numpy(rng.integers(length // 4, 3 * length // 4 + 1, (rows, 1)))
        is_next = torch.from_numpy(rng.random((rows, 1)) < 0.5)
        positions = torch.arange(length)
        ids = torch.where((positions < cut) | is_next, ids, others)
        ids = F.pad(F.pad(ids, (1, 0), value=self.cls), (0, 1), value=self.sep)
        positions, middle = torch.arange(length + 3), cut + 1  # middle: position of the first [SEP]
        shifted = ids.gather(1, (positions - (positions > middle).long()).expand(rows, -1))
        ids = torch.where(positions == middle, self.sep, shifted)
        return ids, (positions > middle).long(), is_next[:, 0].long()

    def mask_tokens(
        self, ids: Tensor, segments: Tensor, is_next: Tensor, rng: np.random.Generator
    ) -> Batch:
        """Mask some tokens of each row; `targets` is -100 at all other positions."""
        draws = torch.from_numpy(rng.random(ids.shape))
        random_ids = torch.from_numpy(rng.integers(0, self.vocab, ids.shape))
        replacement = torch.from_numpy(rng.random(ids.shape))
        masked = (draws < MASK_FRACTION) & (ids != self.cls) & (ids != self.sep)
        masked[:, 1] |= ~masked.any(dim=1)  # every row has at least one target
        inputs = torch.where(masked & (replacement < MASK_TOKEN_FRACTION), self.mask, ids)
        inputs = torch.where(
            masked & (replacement >= 1 - RANDOM_TOKEN_FRACTION), random_ids, inputs
        )
        targets = torch.where(masked, ids, -100)
        return {"ids": inputs, "targets": targets, "segments": segments, "is_next": is_next}


@dataclass(frozen=True)
class MaskedWindows:
    """Random windows of a text, with masked tokens."""

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
        others = sample_windows(store, self.seed, step + OTHER_STEPS, self.batch_size, length)
        return self.dataset.masker(ids, others, np.random.default_rng((self.seed, step, 1)))


class FillMaskDataset(RunningText):
    def __init__(self, artifacts: Artifacts, folder: Path) -> None:
        super().__init__(artifacts, folder)
        tokenizer = artifacts.text_tokenizer
        self.masker = Masker(*find_special_ids(tokenizer), tokenizer.vocab)

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> MaskedWindows:
        context = check_context(context)
        if self.valid.size < context - 3:
            raise GlassError(
                f"too few validation tokens ({self.valid.size}) for windows of {context - 3} "
                "tokens: provide more text"
            )
        return MaskedWindows(self, batch_size, context, seed)

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        """Yield consecutive windows, with the same tokens masked each time."""
        length = check_context(context or network.context) - 3
        size = self.valid.size if limit is None else min(limit, self.valid.size)
        if size < length:
            raise GlassError(f"too few validation tokens ({size}) for windows of {length} tokens")
        windows = torch.from_numpy(self.valid.read(0, size // length * length)).reshape(-1, length)
        others = windows.roll(len(windows) // 2, dims=0)
        batches = torch.arange(len(windows)).tensor_split(max(len(windows) // EVAL_BATCH_SIZE, 1))
        for i, rows in enumerate(batches):
            yield self.masker(windows[rows], others[rows], np.random.default_rng((0, i, 2)))

    def preview_batch(self, context: int | None) -> Batch:
        ids = torch.from_numpy(self.valid.read(0, check_context(context) - 3))[None]
        return self.masker(ids, ids, np.random.default_rng(0))


def check_context(context: int | None) -> int:
    """Return the tokens per example, including the three special tokens."""
    if context is not None and context < MIN_CONTEXT:
        raise GlassError(
            f"fill-mask needs a context of at least {MIN_CONTEXT} tokens, got {context}"
        )
    return context or DEFAULT_WINDOW


class FillMaskObjective:
    """The objective: predict the masked tokens, and whether the second half follows the first."""

    groups = (None,)

    def __init__(self, artifacts: Artifacts) -> None:
        pass

    def count(self, batch: Batch) -> int:
        return int((batch["targets"] >= 0).sum())

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        """Yield the loss for the masked tokens plus that for `is_next`, about equally weighted."""
        masked_positions = batch["targets"] >= 0
        logits = network.masked_logits(batch["ids"], masked_positions, batch["segments"])  # type: ignore[operator]
        loss = F.cross_entropy(
            logits.tokens.float(),
            batch["targets"][masked_positions],
            reduction="sum",
            label_smoothing=label_smoothing,
        )
        if logits.is_next is not None:
            weight = MASK_FRACTION * (masked_positions.shape[1] - 3)
            is_next = logits.is_next.float()
            classes = 1 - batch["is_next"]
            loss = loss + weight * F.cross_entropy(is_next, classes, reduction="sum")
        yield loss

    def scores(self, network: Network, batch: Batch) -> Scores:
        masked_positions = batch["targets"] >= 0
        targets = batch["targets"][masked_positions]
        if network.has(Trait.FITTED):
            probs = network.target_probs(batch["ids"], masked_positions, targets)  # type: ignore[operator]
            return score_masks(-probs.log())
        logits = network.masked_logits(batch["ids"], masked_positions, batch["segments"])  # type: ignore[operator]
        tokens = logits.tokens.float()
        scores = score_masks(F.cross_entropy(tokens, targets, reduction="none"))
        sums = scores.sums
        sums["correct"] = int((tokens.argmax(-1) == targets).sum())
        if logits.is_next is not None:
            sums["is_next"] = int((logits.is_next.argmax(-1) == 1 - batch["is_next"]).sum())
            sums["pairs"] = len(masked_positions)
        return scores

    def metrics(self, scores: Scores) -> dict[str, Any]:
        sums = scores.sums
        metrics = {"loss": sums["nats"] / sums["tokens"], "tokens": sums["tokens"]}
        if "correct" in sums:
            metrics["accuracy"] = sums["correct"] / sums["tokens"]
        if "is_next" in sums:
            metrics["next_accuracy"] = sums["is_next"] / sums["pairs"]
            metrics["pairs"] = sums["pairs"]
        return metrics


def score_masks(nats: Tensor) -> Scores:
    """The scores of masked tokens with these negative log-likelihoods."""
    values = nats.double().cpu()
    return Scores(
        {"nats": float(values.sum()), "tokens": len(values)}, arrays={"nats": [values.numpy()]}
    )


def sample_masks(scores: Scores, artifacts: Artifacts) -> Sample:
    """The nats and the number of masked tokens in blocks of consecutive ones."""
    nats = scores.array("nats")
    blocks = sum_blocks(np.column_stack((nats, np.ones(len(nats)))))
    return Sample(np.arange(len(blocks)), blocks)


MASK_LOSS = SampledMetric(sample_masks, lambda sums: sums[:, 0] / sums[:, 1])


class FillMaskCodec:
    """Encodes texts, runs the network, and decodes the most probable tokens for each [MASK]."""

    batch_size = 32

    def __init__(self, artifacts: Artifacts) -> None:
        self.tokenizer = artifacts.text_tokenizer

    def encode_masked(self, text: str) -> list[int]:
        """Return the ids of a text in which [MASK] stands for a masked token."""
        if "[MASK]" not in text:
            return encode_pair(self.tokenizer, (text,))
        cls, sep, mask = find_special_ids(self.tokenizer)
        start, *rest = [self.tokenizer.encode(span) for span in text.split("[MASK]")]
        return [cls, *start, *(i for span in rest for i in (mask, *span)), sep]

    def encode(self, examples: Sequence[str], context: int | None = None) -> Batch:
        ids, keep = pad_rows([np.array(self.encode_masked(text) or [0]) for text in examples])
        return {"ids": ids, "keep": keep}

    @torch.inference_mode()
    def run(self, network: Network, batch: Batch, *, top: int = 5) -> list[list[Any]]:
        """Return (id, probability) of the `top` tokens, for each text and each of its masks."""
        logits = network(**network.select_inputs(batch)).float()
        _, _, mask = find_special_ids(self.tokenizer)
        predictions = []
        for ids, row in zip(batch["ids"], logits, strict=True):
            best = row[ids == mask].softmax(dim=-1).topk(min(top, row.shape[-1]))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            predictions.append([list(zip(tokens, probs, strict=True)) for tokens, probs in pairs])
        return predictions

    def decode(self, output: list[list[Any]]) -> list[list[list[tuple[str, float]]]]:
        to_token = self.tokenizer.token
        return [[[(to_token(i), p) for i, p in mask] for mask in text] for text in output]

    def preview(self, network: Network, batch: Batch) -> str:
        predicted = network(**network.select_inputs(batch)).argmax(dim=-1)
        filled = torch.where(batch["targets"] >= 0, predicted, batch["ids"])
        return self.tokenizer.decode(filled[0, 1:-1].tolist())


@torch.inference_mode()
def next_probs(
    network: Network, tokenizer: Tokenizer, pairs: Sequence[tuple[str, ...]]
) -> list[float]:
    """Return the probability that the second text of each pair follows the first."""
    rows = [np.array(encode_pair(tokenizer, pair)) for pair in pairs]
    batch = move_to_device(collate(tokenizer, rows, network.context), network)
    nothing = torch.zeros_like(batch["ids"], dtype=torch.bool)
    logits = network.masked_logits(batch["ids"], nothing, batch["segments"], batch["keep"])  # type: ignore[operator]
    if logits.is_next is None:
        raise GlassError("this model was trained without next-sentence prediction")
    probs: list[float] = logits.is_next.float().softmax(dim=-1)[:, 0].tolist()
    return probs


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
    examples=read_examples,
    dataset=FillMaskDataset,
    objective=FillMaskObjective,
    codec=FillMaskCodec,
    task_variants={"bert_encoder": "bert"},
    baseline_model="neighbors",
    baseline_name="neighbor counts",
    sampled_metric=MASK_LOSS,
)
