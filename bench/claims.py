"""What tutorials claim about networks that are no Transformers, measured.

    python bench/claims.py [PICTURE]

What a recurrent network forgets with length, what a convolution cannot see, and what runs in
parallel. Memory: a text begins with one of ten letters, goes on with noise, and asks at its end
which letter it was; each network is trained on every length up to 128, once with short ones first
and once without (dotted), and asked at these and at longer ones. Time: one training step on the
same number of tokens, cut into texts of different length.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer import MODELS
from glassformer.core.figures import subplots

LETTERS, NOISE, LONGEST, STEPS = 10, 20, 128, 1500
ASK = LETTERS + NOISE
VOCAB = ASK + 1
KINDS = {
    "recurrent (LSTM)": ("recurrent", {"dim": 96, "depth": 1}),
    "convolutional, sees 30 back": ("convolutional", {"dim": 64, "depth": 4, "width": 3}),
    "attention": ("decoder", {"dim": 64, "depth": 2, "heads": 4, "position": "none"}),
}


def texts(rows: int, length: int) -> tuple[Tensor, Tensor]:
    """A letter, noise, a question; and the letter."""
    letter = torch.randint(0, LETTERS, (rows, 1))
    noise = torch.randint(LETTERS, ASK, (rows, length))
    return torch.cat((letter, noise, torch.full((rows, 1), ASK)), dim=1), letter[:, 0]


def build(name: str, settings: dict[str, int]) -> nn.Module:
    torch.manual_seed(0)
    kind = MODELS[name]
    return kind(kind.Config(vocab=VOCAB, context=2048, **settings))


def remembers(network: nn.Module, *, short_first: bool) -> dict[int, float]:
    """The share of letters it knows after so much noise, once it has learnt to."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for step in range(STEPS):
        most = max(LONGEST * min(2 * step / STEPS, 1.0), 1.0) if short_first else LONGEST
        ids, letter = texts(32, int(torch.randint(1, round(most) + 1, ())))
        loss = F.cross_entropy(network(ids)[:, -1], letter)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min((step + 1) / 100, 1.0)
        optimiser.step()
    found = {}
    with torch.inference_mode():
        for length in (1, 4, 16, 24, 32, 64, 128, 256, 512, 1024):
            ids, letter = texts(200, length)
            found[length] = float((network(ids)[:, -1].argmax(-1) == letter).float().mean())
    return found


def step_time(network: nn.Module, length: int, tokens: int = 4096) -> float:
    """Seconds of one training step on so many tokens, in texts of this length; best of three."""
    ids = torch.randint(0, VOCAB, (tokens // length, length))
    times = []
    network(ids).square().mean().backward()
    for _ in range(3):
        start = time.perf_counter()
        network(ids).square().mean().backward()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(picture: Path) -> dict[str, str]:
    """Draw both; say for each network what it remembers and how long a step takes."""
    said = {}
    chart, (memory, clock) = subplots(1, 2, figsize=(10, 4))
    lengths = (32, 128, 512, 2048)
    for name, (model, settings) in KINDS.items():
        network = build(model, settings)
        size = sum(p.numel() for p in network.parameters())
        times = [step_time(network, length) for length in lengths]
        known = remembers(build(model, settings), short_first=True)
        mixed = remembers(build(model, settings), short_first=False)
        shares = " / ".join(
            ", ".join(f"{n}: {share:.0%}" for n, share in one.items()) for one in (known, mixed)
        )
        steps = [f"{n}: {1000 * s:.0f}" for n, s in zip(lengths, times, strict=True)]
        said[name] = (
            f"{size:,} parameters; letters known by distance, trained on short texts first, or "
            f"on all lengths from the start: {shares}; ms for a step by length: " + ", ".join(steps)
        )
        print(f"{name}: {said[name]}", flush=True)
        (line,) = memory.plot(list(known), list(known.values()), marker="o", label=name)
        memory.plot(list(mixed), list(mixed.values()), linestyle=":", color=line.get_color())
        clock.plot(lengths, [1000 * s for s in times], marker="o", label=name)
    memory.axhline(1 / LETTERS, color="gray", linestyle="--", label="a guess")
    memory.set(xlabel="tokens between the letter and the question", ylabel="letters known")
    clock.set(xlabel="length of a text (4,096 tokens in all)", ylabel="ms for a training step")
    clock.set(xscale="log", yscale="log")
    memory.set(xscale="log")
    for axes in (memory, clock):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    chart.savefig(picture, dpi=110)
    return said


if __name__ == "__main__":
    measure(Path(sys.argv[1]) if sys.argv[1:] else Path("claims.png"))
