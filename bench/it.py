"""Coreference of “it”: a small encoder that resolves a pronoun, and the heads that do so.

    python bench/it.py [PLOT]
    python bench/it.py --sentences FOLDER  # write the sentences as a task for glass train

“The animal didn't cross the street because it was too tired”, or “too wide”: 20 beings, 20 places
and 30 reasons, with the nouns in either order. The target, predicted at the position of “it”, is
which of the two nouns it refers to: the first or the second. Both orders have the same words, so a
bag-of-words model can only guess. A fifth of the noun pairs are held out. The encoder also predicts
the noun itself, because the target alone is an exclusive or, which has no gradient at first. A
penalty on the output weights of each head makes the encoder use few heads.

With --sentences, the same sentences become a task without any of that: translate each into the same
sentence with the noun in place of “it” (recipes/it.toml).

Shapes: n examples, h heads, s positions.
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
from glassformer.inspection.draw import draw_lines, save
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
FEELINGS = (
    "tired hungry scared sleepy lazy angry nervous thirsty ill sad bored shy careless proud blind"
).split()
PROPERTIES = (
    "wide deep steep icy muddy narrow flooded crowded dark long stony slippery shallow dusty foggy"
).split()
FIRST, SECOND, IT = 1, 5, 7  # positions of the nouns and of “it”
MIN_CONTRAST = 0.3  # attention to the noun that “it” refers to minus attention to the other
DIM, DEPTH, HEADS, STEPS, LR, PENALTY = 64, 2, 8, 1500, 2e-3, 1e-2

Example = tuple[list[str], int]


def make_sentence(first: str, second: str, reason: str) -> list[str]:
    return f"the {first} didn't cross the {second} because it was too {reason}".split()


def make_examples() -> dict[str, list[Example]]:
    """Return sentences with target 0 for the first noun and 1 for the second, split by pairs."""
    splits: dict[str, list[Example]] = {"train": [], "held out": []}
    for being in BEINGS:
        for place in PLACES:
            digest = hashlib.sha256(f"{being} {place}".encode()).digest()
            split = splits["held out" if digest[0] % 5 == 0 else "train"]
            for reason in (*FEELINGS, *PROPERTIES):
                is_feeling = reason in FEELINGS
                split.append((make_sentence(being, place, reason), 0 if is_feeling else 1))
                split.append((make_sentence(place, being, reason), 1 if is_feeling else 0))
    for split in splits.values():
        random.Random(0).shuffle(split)
    return splits


def write_sentences(folder: Path) -> None:
    """Write it-train.tsv and it-held-out.tsv: each sentence, and the same with “it” resolved."""
    for name, split in make_examples().items():
        lines = ["source\ttarget"]
        for text, target in split:
            noun = text[FIRST if target == 0 else SECOND]
            resolved = [*text[:IT], "the", noun, *text[IT + 1 :]]
            lines.append(f"{' '.join(text)}\t{' '.join(resolved)}")
        (folder / f"it-{name.replace(' ', '-')}.tsv").write_text("\n".join(lines) + "\n")


WORDS = sorted({word for text, _ in make_examples()["train"] for word in text})


def encode(examples: list[Example]) -> tuple[Tensor, Tensor]:
    ids = [[WORDS.index(word) for word in text] for text, _ in examples]
    return torch.tensor(ids), torch.tensor([target for _, target in examples])


class Encoder(nn.Module):
    """Returns logits at “it”: two for the first or second noun, then one for every word."""

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
        logits: Tensor = self.head(self.norm(x[:, IT]))
        return logits

    def penalty(self) -> Tensor:
        """Return the sum of the norms of all heads' output weights."""
        weights = [block.attention.out.weight.unflatten(1, (HEADS, -1)) for block in self.blocks]
        return sum(weight.norm(dim=(0, 2)).sum() for weight in weights)


def select_nouns(ids: Tensor, targets: Tensor) -> Tensor:
    """Return the id of the noun that “it” refers to."""
    return ids.gather(1, torch.where(targets == 0, FIRST, SECOND)[:, None])[:, 0]


def train(ids: Tensor, targets: Tensor, seed: int) -> Encoder:
    torch.manual_seed(seed)
    network = Encoder()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LR * min((step + 1) / 50, 1 - 0.9 * step / STEPS)
        rows = torch.randint(0, len(ids), (64,))
        logits, batch_targets = network(ids[rows]), targets[rows]
        loss = F.cross_entropy(logits[:, :2], batch_targets)
        loss = loss + F.cross_entropy(logits[:, 2:], select_nouns(ids[rows], batch_targets))
        optimizer.zero_grad()
        (loss + PENALTY * network.penalty()).backward()
        optimizer.step()
    return network.eval()


def bag_of_words_accuracy(train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> float:
    """Train a linear model on bags of words; return its accuracy on held-out sentences."""
    bags = [F.one_hot(ids, len(WORDS)).sum(dim=1).float() for ids, _ in (train, held_out)]
    layer = nn.Linear(len(WORDS), 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(layer(bags[0]), train[1]).backward()
        optimizer.step()
    return accuracy(layer(bags[1]), held_out[1])


def accuracy(logits: Tensor, targets: Tensor) -> float:
    return float((logits[:, :2].argmax(dim=-1) == targets).float().mean())


@torch.no_grad()
def measure_heads(
    network: Encoder, ids: Tensor, targets: Tensor
) -> list[tuple[str, int, float, float]]:
    """Return the layer, index, ablation cost and attention contrast of each head.

    The contrast is the attention from “it” to the noun that it refers to minus the attention to
    the other noun.
    """
    heads = []
    with Trace(network, "*.pattern") as trace:
        network(ids)
    rows = torch.arange(len(ids))
    right, wrong = (
        torch.where(targets == 0, FIRST, SECOND),
        torch.where(targets == 0, SECOND, FIRST),
    )
    for layer in range(DEPTH):
        name = f"blocks.{layer}.attention"
        pattern = trace[f"{name}.pattern"][:, :, IT]  # n h s
        for head in range(HEADS):
            cost = ablation_cost(network, ids, targets, {(name, head)})
            contrast = float((pattern[rows, head, right] - pattern[rows, head, wrong]).mean())
            heads.append((name, head, cost, contrast))
    return heads


@torch.no_grad()
def ablation_cost(
    network: Encoder, ids: Tensor, targets: Tensor, ablated: set[tuple[str, int]]
) -> float:
    """Return how much accuracy is lost when some heads are ablated."""
    names = {name for name, _ in ablated}

    def ablate(value: Tensor, name: str) -> Tensor:
        is_active = torch.tensor([(name, head) not in ablated for head in range(HEADS)])
        return value * is_active[:, None, None]

    edits = {f"{name}.head_outputs": partial(ablate, name=name) for name in names}
    before = accuracy(network(ids), targets)
    with Trace(network, edit=edits):
        return before - accuracy(network(ids), targets)


@torch.no_grad()
def plot_attention(network: Encoder, name: str, head: int, file: Path) -> None:
    """Plot what “it” attends to in two sentences that differ in one word."""
    figure, axes = subplots(1, 2, figsize=(9, 4.2))
    for ax, reason in zip(axes, ("tired", "wide"), strict=True):
        text = make_sentence("animal", "street", reason)
        with Trace(network, f"{name}.pattern") as trace:
            network(torch.tensor([[WORDS.index(word) for word in text]]))
        pattern = torch.zeros(len(text), len(text))
        pattern[IT] = trace[f"{name}.pattern"][0, head, IT]
        draw_lines(ax, pattern, text, text)
        ax.set_title(f"… because it was too {reason}", fontsize=10)
    save(figure, file)


def main(file: Path | None) -> None:
    splits = make_examples()
    training, held_out = encode(splits["train"]), encode(splits["held out"])
    print(f"{len(training[0]):,} training sentences, {len(held_out[0]):,} held out")
    print(f"bag of words: accuracy {bag_of_words_accuracy(training, held_out):.1%}")
    for seed in range(3):
        network = train(*training, seed)
        heads = measure_heads(network, *held_out)
        costliest = max(heads, key=lambda head: head[2])
        others = [head[2] for head in heads if head is not costliest]
        clearest = max(heads, key=lambda head: head[3])
        resolving = {(name, head) for name, head, _, contrast in heads if contrast > MIN_CONTRAST}
        cost = ablation_cost(network, *held_out, resolving)
        print(f"seed {seed}: accuracy {accuracy(network(held_out[0]), held_out[1]):.1%}")
        print(
            f"  ablating {costliest[0]} head {costliest[1]} costs {100 * costliest[2]:.0f} "
            f"percentage points, any other head {100 * sum(others) / len(others):.1f} on average"
        )
        print(
            f"  {clearest[0]} head {clearest[1]} attends {clearest[3]:.2f} more to the noun that "
            f"“it” refers to than to the other; ablating it costs {100 * clearest[2]:.0f} "
            f"percentage points, ablating all {len(resolving)} such heads {100 * cost:.0f}"
        )
        if file and seed == 0:
            plot_attention(network, clearest[0], clearest[1], file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sentences"]:
        write_sentences(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]) if sys.argv[1:] else None)
