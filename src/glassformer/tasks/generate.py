"""Generate: predict the next token of a text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.data import corpus
from glassformer.data.batches import windows
from glassformer.errors import GlassError
from glassformer.generate.decode import stream
from glassformer.generate.sampling import Sampling
from glassformer.live import Live
from glassformer.tasks.running_text import RunningText, prepare_corpus
from glassformer.tasks.task import Batch, Given
from glassformer.text.plain import UNKNOWN

LONG = 1024  # tokens of a stretch, for a model that can read any number
AT_ONCE = 2048  # tokens, of several stretches
STRETCH, BEFORE = 200_000, 100  # tokens whose chances are looked up together; and before them


class Generate(RunningText):
    name: ClassVar[str] = "generate"
    models: ClassVar[tuple[str, ...]] = (
        *("gpt2", "generator", "llama", "decoder"),
        *("recurrent", "convolutional", "markov"),
    )
    settings: ClassVar[dict[str, Any]] = {
        "context": 128,
        "dim": 192,
        "depth": 4,
        "heads": 6,
        "dropout": 0.0,
    }
    training: ClassVar[dict[str, Any]] = {"batch": 16, "rate": 1.5e-3}
    figure: ClassVar[str] = "bits_per_byte"
    unit: ClassVar[str] = "tokens"
    counted: ClassVar[str] = "markov"
    simple: ClassVar[str] = "counting n-grams"
    verdict: ClassVar[str] = "bits_per_byte"

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
        def kind(extent: corpus.Extent) -> str:
            alphabet = len(set().union(*map(set, extent.sample)))
            return "characters" if alphabet <= 256 and extent.bytes < 5_000_000 else "bpe"

        if given.tokenizer in ("words", "wordpiece"):
            raise GlassError(f"{given.tokenizer} lose the spaces of a text: take bpe to write with")
        return cls(*prepare_corpus(given, folder, tell, kind), folder)

    def start(self, batch: int, context: int, seed: int) -> None:
        self.rows, self.context, self.seed = batch, context, seed
        if not self.valid.size:
            raise GlassError("there is no text to validate on")
        if not isinstance(self.facts.get("valid_bytes"), int):
            raise GlassError("the task does not say how many bytes of text there are (valid_bytes)")

    def batch(self, step: int) -> Batch:
        return {"ids": windows(self.train, self.seed, step, self.rows, self.context + 1)}

    def count(self, batch: Batch) -> int:
        return batch["ids"][:, 1:].numel()

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        ids = batch["ids"]
        logits = network(ids[:, :-1])
        return F.cross_entropy(
            logits.flatten(0, 1).float(),
            ids[:, 1:].flatten(),
            reduction="sum",
            label_smoothing=smoothing,
        )

    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, float]:
        """Bits for each byte of the text, read in stretches of a context one after the other."""
        flat = self.valid.flat if most is None else self.valid.flat[: most + 1]
        share = len(flat) / max(len(self.valid.flat), 1)
        nats = text_loss(network, flat, self.context or LONG) + self.spelling(flat)
        return text_figures(nats, len(flat), self.facts["valid_bytes"] * share)

    def spelling(self, flat: NDArray[Any]) -> float:
        """What it costs to say which character each unknown one is: a guess among all there are."""
        unknown = self.tokenizer.specials.get(UNKNOWN)
        return 0.0 if unknown is None else float((flat == unknown).sum() * math.log(0x110000))

    def sample(self, network: nn.Module) -> str:
        device = next(network.parameters()).device
        start = torch.from_numpy(self.valid.read(0, 8))[None].to(device)
        ids = [*start[0].tolist()]
        ids += [int(t) for t in stream(network, start, 80, sampling=Sampling(0.8), seed=0)]
        return self.tokenizer.decode(ids)


@torch.inference_mode()
def text_loss(network: Any, flat: NDArray[Any], context: int) -> float:
    """Nats for a whole text, read in stretches of so many tokens.

    Nothing predicts the first token: it counts as a guess among all.
    """
    device = next(network.parameters()).device
    total = math.log(network.config.vocab)
    if hasattr(network, "likelihood"):
        for start in range(1, len(flat), STRETCH):  # each with what stands before it
            first = max(start - BEFORE, 0)
            ids = torch.from_numpy(flat[first : start + STRETCH].astype(np.int64)).to(device)
            total -= float(network.likelihood(ids)[start - first - 1 :].double().log().sum())
        return total
    rows = max(AT_ONCE // context, 1)
    for start in range(0, len(flat) - 1, rows * context):
        part = torch.from_numpy(flat[start : start + rows * context + 1].astype(np.int64)).to(
            device
        )
        inputs, answers = part[:-1], part[1:]
        whole = len(inputs) // context * context
        for read, said in (
            (inputs[:whole].reshape(-1, context), answers[:whole]),
            (inputs[None, whole:], answers[whole:]),
        ):
            if read.numel():
                logits = network(read).flatten(0, 1).float()
                total += float(F.cross_entropy(logits, said, reduction="sum"))
    return total


def text_figures(nats: float, tokens: int, size: float) -> dict[str, float]:
    loss = nats / max(tokens, 1)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 50.0)),
        "bits_per_byte": nats / math.log(2) / max(size, 1),
        "tokens": tokens,
        "bytes": round(size),
    }
