"""Fill-mask: guess tokens that were hidden in a text, and whether its second half follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data.batches import windows
from glassformer.errors import GlassError
from glassformer.live import Live
from glassformer.tasks.running_text import RunningText, prepare_corpus
from glassformer.tasks.task import Batch, Given
from glassformer.text.tokenizer import Tokenizer

ELSEWHERE = 1 << 40  # steps away, where other windows are found
WINDOW = 128  # tokens, for a model that can read any number
HIDDEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # of all tokens; of those: as [MASK], as any other token


MARKS = ("[CLS]", "[SEP]", "[MASK]")


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text in which [MASK] stands for a hidden token."""
    first, last, mask = (tokenizer.specials[name] for name in MARKS)
    start, *rest = [tokenizer.encode(piece) for piece in text.split("[MASK]")]
    return [first, *start, *(i for piece in rest for i in (mask, *piece)), last]


class FillMask(RunningText):
    name: ClassVar[str] = "fill-mask"
    models: ClassVar[tuple[str, ...]] = ("bert", "neighbours")
    settings: ClassVar[dict[str, Any]] = {
        "context": 128,
        "dim": 192,
        "depth": 4,
        "heads": 6,
        "dropout": 0.0,
        "position": "alibi",
        "masked": True,
        "pooled": True,
        "classes": 2,
    }
    training: ClassVar[dict[str, Any]] = {"batch": 16, "rate": 1e-3}
    figure: ClassVar[str] = "loss"
    unit: ClassVar[str] = "masks"
    counted: ClassVar[str] = "neighbours"
    simple: ClassVar[str] = "counting neighbours"
    verdict: ClassVar[str] = "loss"

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        super().__init__(tokenizer, facts, folder)
        if not all(name in tokenizer.specials for name in MARKS):
            raise GlassError(f"fill-mask needs a tokenizer with {', '.join(MARKS)}: wordpiece")
        self.first, self.last, self.mask = (tokenizer.specials[name] for name in MARKS)

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
        return cls(*prepare_corpus(given, folder, tell, lambda _: "wordpiece"), folder)

    def start(self, batch: int, context: int, seed: int) -> None:
        self.rows, self.context, self.seed = batch, context, seed
        if 0 < context < 8:
            raise GlassError(f"a context of {context} has no room for two texts and their marks")
        if self.valid.size < self.length:
            few = f"{self.valid.size} tokens are too few to validate on"
            raise GlassError(f"{few} in windows of {self.length}: give more text")

    @property
    def length(self) -> int:
        """The tokens of a window: its two texts, without the three marks."""
        return (self.context or WINDOW) - 3

    def batch(self, step: int) -> Batch:
        ids = windows(self.train, self.seed, step, self.rows, self.length)
        others = windows(self.train, self.seed, step + ELSEWHERE, self.rows, self.length)
        random = np.random.default_rng((self.seed, step, 1))
        return self.hide(*self.pair(ids, others, random), random)

    def pair(
        self, ids: Tensor, others: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[CLS] one text [SEP] another [SEP], where it is which, and whether it is what followed.

        For half of the texts what followed is exchanged for something from elsewhere.
        """
        rows, length = ids.shape
        cut = torch.from_numpy(random.integers(length // 4, 3 * length // 4 + 1, (rows, 1)))
        follows = torch.from_numpy(random.random((rows, 1)) < 0.5)
        at = torch.arange(length)
        ids = torch.where((at < cut) | follows, ids, others)
        ids = F.pad(F.pad(ids, (1, 0), value=self.first), (0, 1), value=self.last)
        at, middle = torch.arange(length + 3), cut + 1  # where the first text's mark stands
        moved = ids.gather(1, (at - (at > middle).long()).expand(rows, -1))
        ids = torch.where(at == middle, self.last, moved)
        return ids, (at > middle).long(), follows[:, 0].long()

    def hide(
        self, ids: Tensor, segments: Tensor, follows: Tensor, random: np.random.Generator
    ) -> Batch:
        """Hide some of each text; `answers` is -100 where nothing is hidden."""
        chance = torch.from_numpy(random.random(ids.shape))
        other = torch.from_numpy(random.integers(0, self.tokenizer.vocab, ids.shape))
        fate = torch.from_numpy(random.random(ids.shape))
        hidden = (chance < HIDDEN) & (ids != self.first) & (ids != self.last)
        hidden[:, 1] |= ~hidden.any(dim=1)  # something is asked of every text
        shown = torch.where(hidden & (fate < MASKED), self.mask, ids)
        shown = torch.where(hidden & (fate >= 1 - RANDOM), other, shown)
        answers = torch.where(hidden, ids, -100)
        return {"ids": shown, "answers": answers, "segments": segments, "follows": follows}

    def count(self, batch: Batch) -> int:
        return int((batch["answers"] >= 0).sum())

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """That of the hidden tokens; whether the halves belong together weighs as much in all."""
        tokens, pairs = self.guess(network, batch)
        answers = batch["answers"][batch["answers"] >= 0]
        loss = F.cross_entropy(tokens, answers, reduction="sum", label_smoothing=smoothing)
        if pairs is not None:
            weight = HIDDEN * self.length
            loss = loss + weight * F.cross_entropy(pairs, batch["follows"], reduction="sum")
        return loss

    def guess(self, network: Any, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Scores for the hidden tokens alone, n v, and for whether the halves belong together."""
        asked = batch["answers"] >= 0
        if not hasattr(network, "read"):
            return network(batch["ids"], asked=asked), None
        reading = network.read(batch["ids"], segments=batch["segments"], asked=asked)
        pairs = reading.classes
        return reading.tokens.float(), None if pairs is None else pairs.float()

    @torch.inference_mode()
    def evaluate(self, network: Any, most: int | None = None) -> dict[str, float]:
        """Loss and share of hidden tokens guessed right, with the same ones hidden each time."""
        device, length = next(network.parameters()).device, self.length
        size = self.valid.size if most is None else min(most, self.valid.size)
        if size < length:
            raise GlassError(f"{size} tokens are too few to validate on in windows of {length}")
        whole = torch.from_numpy(self.valid.read(0, size // length * length)).reshape(-1, length)
        others = whole.roll(len(whole) // 2, dims=0)
        total, right, count, together = 0.0, 0, 0, 0
        for i, rows in enumerate(torch.arange(len(whole)).tensor_split(max(len(whole) // 16, 1))):
            random = np.random.default_rng((self.seed, i, 2))
            pair = self.pair(whole[rows], others[rows], random)
            batch = {name: v.to(device) for name, v in self.hide(*pair, random).items()}
            asked = batch["answers"] >= 0
            answers = batch["answers"][asked]
            count += len(answers)
            if hasattr(network, "likelihood"):
                total -= float(network.likelihood(batch["ids"], asked, answers).log().sum())
                continue
            tokens, pairs = self.guess(network, batch)
            total += float(F.cross_entropy(tokens, answers, reduction="sum"))
            right += int((tokens.argmax(-1) == answers).sum())
            if pairs is not None:
                together += int((pairs.argmax(-1) == batch["follows"]).sum())
        figures = {"loss": total / count, "tokens": count}
        if not hasattr(network, "likelihood"):
            figures["accuracy"] = right / count
        if getattr(network, "head", None) is not None:
            figures["next_accuracy"] = together / len(whole)
        return figures

    def sample(self, network: nn.Module) -> str:
        ids, random = (
            torch.from_numpy(self.valid.read(0, self.length))[None],
            np.random.default_rng(0),
        )
        hidden = self.hide(*self.pair(ids, ids, random), random)
        device = next(network.parameters()).device
        guess = network(hidden["ids"].to(device)).argmax(dim=-1).cpu()
        asked = hidden["answers"] >= 0
        said = torch.where(asked, guess, hidden["ids"])[0, 1:-1].tolist()
        return self.tokenizer.decode(said)
