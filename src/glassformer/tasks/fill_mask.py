"""Fill-mask: guess tokens that were hidden in a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data.batches import windows
from glassformer.data.store import Store
from glassformer.errors import GlassError
from glassformer.live import Live
from glassformer.tasks.generate import frequency_loss, prepare_corpus
from glassformer.tasks.task import Batch, Given
from glassformer.text.tokenizer import Tokenizer

HIDDEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # of all tokens; of those: as [MASK], as any other token


class FillMask:
    name: ClassVar[str] = "fill-mask"
    models: ClassVar[tuple[str, ...]] = ("bert",)
    built_on: ClassVar[dict[str, str]] = {}
    settings: ClassVar[dict[str, Any]] = {
        "context": 128,
        "dim": 192,
        "depth": 4,
        "heads": 6,
        "dropout": 0.0,
        "masked": True,
        "pooled": False,
        "classes": 0,
    }
    training: ClassVar[dict[str, Any]] = {"batch": 16, "rate": 1e-3}
    figure: ClassVar[str] = "loss"
    peek: ClassVar[int] = 20_000
    whole: ClassVar[int | None] = 400_000
    table: ClassVar[bool] = False
    unit: ClassVar[str] = "masks"
    higher: ClassVar[bool] = False
    simple: ClassVar[str] = "the frequencies of tokens"

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        self.tokenizer, self.facts = tokenizer, facts
        self.train, self.valid = Store(folder / "train.ids"), Store(folder / "valid.ids")
        names = ("[CLS]", "[SEP]", "[MASK]")
        if not all(name in tokenizer.specials for name in names):
            raise GlassError(f"fill-mask needs a tokenizer with {', '.join(names)}: wordpiece")
        self.first, self.last, self.mask = (tokenizer.specials[name] for name in names)

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
        return cls(*prepare_corpus(given, folder, tell, lambda _: "wordpiece"), folder)

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab}

    def start(self, batch: int, context: int, seed: int) -> None:
        self.rows, self.context, self.seed = batch, context, seed
        if context < 4:
            raise GlassError(f"a context of {context} has no room for a text and its marks")
        if self.valid.size < context - 2:
            few = f"{self.valid.size} tokens are too few to validate on"
            raise GlassError(f"{few} in windows of {context - 2}: give more text")

    def batch(self, step: int) -> Batch:
        ids = windows(self.train, self.seed, step, self.rows, self.context - 2)
        return self.hide(ids, np.random.default_rng((self.seed, step, 1)))

    def hide(self, ids: Tensor, random: np.random.Generator) -> Batch:
        """Put marks around each text and hide some of it; `answers` is -100 where nothing is."""
        ids = F.pad(F.pad(ids, (1, 0), value=self.first), (0, 1), value=self.last)
        chance = torch.from_numpy(random.random(ids.shape))
        other = torch.from_numpy(random.integers(0, self.tokenizer.vocab, ids.shape))
        fate = torch.from_numpy(random.random(ids.shape))
        hidden = (chance < HIDDEN) & (ids != self.first) & (ids != self.last)
        hidden[:, 1] |= ~hidden.any(dim=1)  # something is asked of every text
        shown = torch.where(hidden & (fate < MASKED), self.mask, ids)
        shown = torch.where(hidden & (fate >= 1 - RANDOM), other, shown)
        return {"ids": shown, "answers": torch.where(hidden, ids, -100)}

    def epoch(self) -> int:
        return max(self.train.size // (self.rows * self.context), 1)

    def count(self, batch: Batch) -> int:
        return int((batch["answers"] >= 0).sum())

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        asked = batch["answers"] >= 0
        logits = self.guess(network, batch["ids"], asked)
        return F.cross_entropy(
            logits, batch["answers"][asked], reduction="sum", label_smoothing=smoothing
        )

    def guess(self, network: Any, ids: Tensor, asked: Tensor) -> Tensor:
        """Scores for the hidden tokens alone, n v: those of the others are not needed."""
        tokens: Tensor = network.read(ids, asked=asked).tokens
        return tokens.float()

    @torch.inference_mode()
    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, float]:
        """Loss and share of hidden tokens guessed right, with the same ones hidden each time."""
        device, length = next(network.parameters()).device, self.context - 2
        size = self.valid.size if most is None else min(most, self.valid.size)
        if size < length:
            raise GlassError(f"{size} tokens are too few to validate on in windows of {length}")
        whole = torch.from_numpy(self.valid.read(0, size // length * length))
        total, right, count = 0.0, 0, 0
        for i, part in enumerate(
            whole.reshape(-1, length).tensor_split(max(size // length // 16, 1))
        ):
            hidden = self.hide(part, np.random.default_rng((self.seed, i, 2)))
            ids, answers = hidden["ids"].to(device), hidden["answers"].to(device)
            asked = answers >= 0
            logits = self.guess(network, ids, asked)
            total += float(F.cross_entropy(logits, answers[asked], reduction="sum"))
            right += int((logits.argmax(-1) == answers[asked]).sum())
            count += int(asked.sum())
        return {"loss": total / count, "accuracy": right / count, "tokens": count}

    def baseline(self) -> dict[str, float]:
        """How often each token occurs, whatever stands around it."""
        return {"loss": frequency_loss(self.train, self.valid, self.tokenizer.vocab)}

    def sample(self, network: nn.Module) -> str:
        ids = torch.from_numpy(self.valid.read(0, self.context - 2))[None]
        hidden = self.hide(ids, np.random.default_rng(0))
        device = next(network.parameters()).device
        guess = network(hidden["ids"].to(device)).argmax(dim=-1).cpu()
        asked = hidden["answers"] >= 0
        said = torch.where(asked, guess, hidden["ids"])[0, 1:-1].tolist()
        return self.tokenizer.decode(said)
