"""What “it” is: a small encoder that learns whom a word means, and the heads that find out.

    python bench/it.py [PICTURE]

“The animal didn't cross the street because it was too tired”, or “too wide”: 20 beings, 20 places,
30 reasons, in either order. The answer, read where “it” stands, is which of the two nouns is meant:
the first or the second. Both orders of a sentence have the same words, so that a bag of words can
only guess. A fifth of the pairs of nouns is held out. The encoder is also asked for the noun
itself, without which the answer, an exclusive-or, gives no slope to begin with; and each head pays
for what it says, so that few are used.
"""

from __future__ import annotations

import hashlib
import random
import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer import Trace
from glassformer.core.figures import subplots
from glassformer.inspection.draw import between, save
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Learned

BEINGS = (
    "animal dog cat horse child farmer driver nurse bird cow sheep goat rabbit teacher dancer "
    "sailor pilot thief baker poet"
).split()
PLACES = (
    "street river road bridge field valley garden forest tunnel lake square canal path yard desert "
    "harbour meadow ditch hill cave"
).split()
FEELS = (
    "tired hungry scared sleepy lazy angry nervous thirsty ill sad bored shy careless proud blind"
).split()
ATTENTION_TARGETS = (
    "wide deep steep icy muddy narrow flooded crowded dark long stony slippery shallow dusty foggy"
).split()
FIRST, SECOND, IT = 1, 5, 7  # where the nouns and “it” stand
LOOKS_THERE = 0.3  # more of the noun that is meant than of the other
DIM, DEPTH, HEADS, STEPS, RATE, PRICE = 64, 2, 8, 1500, 2e-3, 1e-2

Example = tuple[list[str], int]


def sentence(first: str, second: str, reason: str) -> list[str]:
    return f"the {first} didn't cross the {second} because it was too {reason}".split()


def examples() -> dict[str, list[Example]]:
    """Sentences with 0 for the first noun and 1 for the second; pairs held out are never learnt."""
    parts: dict[str, list[Example]] = {"train": [], "held out": []}
    for being in BEINGS:
        for place in PLACES:
            digest = hashlib.sha256(f"{being} {place}".encode()).digest()
            part = parts["held out" if digest[0] % 5 == 0 else "train"]
            for reason in (*FEELS, *ATTENTION_TARGETS):
                feels = reason in FEELS
                part.append((sentence(being, place, reason), 0 if feels else 1))
                part.append((sentence(place, being, reason), 1 if feels else 0))
    for part in parts.values():
        random.Random(0).shuffle(part)
    return parts


WORDS = sorted({word for text, _ in examples()["train"] for word in text})


def encoded(rows: list[Example]) -> tuple[Tensor, Tensor]:
    ids = [[WORDS.index(word) for word in text] for text, _ in rows]
    return torch.tensor(ids), torch.tensor([answer for _, answer in rows])


class Encoder(nn.Module):
    """Reads a sentence; what it says of “it” are scores for first or second, and for every word."""

    def __init__(self) -> None:
        super().__init__()
        feedforward = partial(FeedForward, DIM, 2 * DIM)
        self.token, self.position = nn.Embedding(len(WORDS), DIM), Learned(16, DIM)
        self.blocks = nn.ModuleList(
            Block(DIM, Attention(DIM, HEADS), feedforward()) for _ in range(DEPTH)
        )
        self.norm, self.head = LayerNorm(DIM), nn.Linear(DIM, 2 + len(WORDS))

    def forward(self, ids: Tensor) -> Tensor:
        layout = SequenceLayout.from_ids(ids)
        x = self.token(ids) + self.position(layout)
        for block in self.blocks:
            x = block(x, layout)
        scores: Tensor = self.head(self.norm(x[:, IT]))
        return scores

    def price(self) -> Tensor:
        """How much all heads say: the sizes of their ways out."""
        ways = [block.attention.out.weight.unflatten(1, (HEADS, -1)) for block in self.blocks]
        return sum(way.norm(dim=(0, 2)).sum() for way in ways)


def meant(ids: Tensor, answers: Tensor) -> Tensor:
    """The noun that is meant."""
    return ids.gather(1, torch.where(answers == 0, FIRST, SECOND)[:, None])[:, 0]


def learn(ids: Tensor, answers: Tensor, seed: int) -> Encoder:
    torch.manual_seed(seed)
    network = Encoder()
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE)
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min((step + 1) / 50, 1 - 0.9 * step / STEPS)
        rows = torch.randint(0, len(ids), (64,))
        scores, right = network(ids[rows]), answers[rows]
        loss = F.cross_entropy(scores[:, :2], right)
        loss = loss + F.cross_entropy(scores[:, 2:], meant(ids[rows], right))
        optimiser.zero_grad()
        (loss + PRICE * network.price()).backward()
        optimiser.step()
    return network.eval()


def bag_of_words(train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> float:
    """The same question to a linear model that sees which words there are, not where."""
    bags = [F.one_hot(ids, len(WORDS)).sum(dim=1).float() for ids, _ in (train, held_out)]
    layer = nn.Linear(len(WORDS), 2)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        F.cross_entropy(layer(bags[0]), train[1]).backward()
        optimiser.step()
    return share(layer(bags[1]), held_out[1])


def share(scores: Tensor, answers: Tensor) -> float:
    return float((scores[:, :2].argmax(dim=-1) == answers).float().mean())


@torch.no_grad()
def heads(network: Encoder, ids: Tensor, answers: Tensor) -> list[tuple[str, int, float, float]]:
    """For each head: what its silence costs, and how much more it reads of the right noun."""
    found = []
    with Trace(network, "*.pattern") as trace:
        network(ids)
    rows = torch.arange(len(ids))
    right, wrong = (
        torch.where(answers == 0, FIRST, SECOND),
        torch.where(answers == 0, SECOND, FIRST),
    )
    for layer in range(DEPTH):
        name = f"blocks.{layer}.attention"
        seen = trace[f"{name}.pattern"][:, :, IT]  # n h s
        for head in range(HEADS):
            lost = cost(network, ids, answers, {(name, head)})
            contrast = float((seen[rows, head, right] - seen[rows, head, wrong]).mean())
            found.append((name, head, lost, contrast))
    return found


@torch.no_grad()
def cost(network: Encoder, ids: Tensor, answers: Tensor, silent: set[tuple[str, int]]) -> float:
    """How many fewer answers are right when some heads say nothing."""
    names = {name for name, _ in silent}

    def closed(value: Tensor, name: str) -> Tensor:
        kept = torch.tensor([(name, head) not in silent for head in range(HEADS)])
        return value * kept[:, None, None]

    edits = {f"{name}.head_outputs": partial(closed, name=name) for name in names}
    whole = share(network(ids), answers)
    with Trace(network, edit=edits):
        return whole - share(network(ids), answers)


@torch.no_grad()
def picture(network: Encoder, name: str, head: int, file: Path) -> None:
    """What “it” reads in the two sentences that differ in one word."""
    chart, axes = subplots(1, 2, figsize=(9, 4.2))
    for ax, reason in zip(axes, ("tired", "wide"), strict=True):
        text = sentence("animal", "street", reason)
        with Trace(network, f"{name}.pattern") as trace:
            network(torch.tensor([[WORDS.index(word) for word in text]]))
        pattern = torch.zeros(len(text), len(text))
        pattern[IT] = trace[f"{name}.pattern"][0, head, IT]
        between(ax, pattern, text, text)
        ax.set_title(f"… because it was too {reason}", fontsize=10)
    save(chart, file)


def main(file: Path | None) -> None:
    parts = examples()
    train, held_out = encoded(parts["train"]), encoded(parts["held out"])
    print(f"{len(train[0]):,} sentences to learn from, {len(held_out[0]):,} held out")
    print(f"a bag of words: {bag_of_words(train, held_out):.1%} right")
    for seed in range(3):
        network = learn(*train, seed)
        found = heads(network, *held_out)
        best = max(found, key=lambda head: head[2])
        others = [head[2] for head in found if head is not best]
        looker = max(found, key=lambda head: head[3])
        lookers = {(name, head) for name, head, _, contrast in found if contrast > LOOKS_THERE}
        right = share(network(held_out[0]), held_out[1])
        print(f"seed {seed}: {right:.1%} right")
        print(
            f"  without {best[0]} head {best[1]} {100 * best[2]:.0f} points less, without another "
            f"{100 * sum(others) / len(others):.1f} on average"
        )
        print(
            f"  {looker[0]} head {looker[1]} reads {looker[3]:.2f} more of the noun that is meant "
            f"than of the other; without it {100 * looker[2]:.0f} points less, without all "
            f"{len(lookers)} that look there {100 * cost(network, *held_out, lookers):.0f}"
        )
        if file and seed == 0:
            picture(network, looker[0], looker[1], file)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
