"""Common claims about recurrent, convolutional and attention networks, measured.

    python bench/claims.py [PLOT]

Recall: a sequence begins with one of ten letters, continues with noise and ends with a query; the
target is the letter. Each network is trained on all lengths up to 128, once with short sequences
first and once without this curriculum (dotted), and tested on longer ones too. Time: one training
step on the same number of tokens, split into sequences of different lengths.
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

LETTERS, NOISE, MAX_LENGTH, STEPS = 10, 20, 128, 1500
QUERY = LETTERS + NOISE
VOCAB = QUERY + 1
NETWORKS = {
    "recurrent (LSTM)": ("recurrent", {"dim": 96, "depth": 1}),
    "convolutional, sees 30 tokens back": (
        "convolutional",
        {"dim": 64, "depth": 4, "kernel_size": 3},
    ),
    "attention": ("decoder", {"dim": 64, "depth": 2, "heads": 4, "position": "none"}),
}


def make_batch(rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Return sequences of a letter, `length` noise tokens and a query, and the letters."""
    letters = torch.randint(0, LETTERS, (rows, 1))
    noise = torch.randint(LETTERS, QUERY, (rows, length))
    return torch.cat((letters, noise, torch.full((rows, 1), QUERY)), dim=1), letters[:, 0]


def build(name: str, settings: dict[str, int]) -> nn.Module:
    torch.manual_seed(0)
    kind = MODELS[name]
    return kind(kind.Config(vocab=VOCAB, context=2048, **settings))


def measure_recall(network: nn.Module, *, short_first: bool) -> dict[int, float]:
    """Train a network; return its accuracy by the number of noise tokens."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for step in range(STEPS):
        limit = max(MAX_LENGTH * min(2 * step / STEPS, 1.0), 1.0) if short_first else MAX_LENGTH
        ids, letters = make_batch(32, int(torch.randint(1, round(limit) + 1, ())))
        loss = F.cross_entropy(network(ids)[:, -1], letters)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min((step + 1) / 100, 1.0)
        optimizer.step()
    accuracy = {}
    with torch.inference_mode():
        for length in (1, 4, 16, 24, 32, 64, 128, 256, 512, 1024):
            ids, letters = make_batch(200, length)
            accuracy[length] = float((network(ids)[:, -1].argmax(-1) == letters).float().mean())
    return accuracy


def time_step(network: nn.Module, length: int, tokens: int = 4096) -> float:
    """Time a training step on `tokens` tokens in sequences of this length.

    Returns the best of three times, in seconds.
    """
    ids = torch.randint(0, VOCAB, (tokens // length, length))
    times = []
    network(ids).square().mean().backward()
    for _ in range(3):
        start = time.perf_counter()
        network(ids).square().mean().backward()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(plot: Path) -> dict[str, str]:
    """Plot recall and time; return a summary for each network."""
    summaries = {}
    figure, (recall_axes, time_axes) = subplots(1, 2, figsize=(10, 4))
    lengths = (32, 128, 512, 2048)
    for name, (model, settings) in NETWORKS.items():
        network = build(model, settings)
        size = sum(p.numel() for p in network.parameters())
        times = [time_step(network, length) for length in lengths]
        curriculum = measure_recall(build(model, settings), short_first=True)
        mixed = measure_recall(build(model, settings), short_first=False)
        accuracies = " / ".join(
            ", ".join(f"{length}: {accuracy:.0%}" for length, accuracy in recall.items())
            for recall in (curriculum, mixed)
        )
        steps = [f"{n}: {1000 * s:.0f}" for n, s in zip(lengths, times, strict=True)]
        summaries[name] = (
            f"{size:,} parameters; accuracy by distance, trained on short texts first / on all "
            f"lengths from the start: {accuracies}; ms per training step by text length: "
            + ", ".join(steps)
        )
        print(f"{name}: {summaries[name]}", flush=True)
        (line,) = recall_axes.plot(
            list(curriculum), list(curriculum.values()), marker="o", label=name
        )
        recall_axes.plot(list(mixed), list(mixed.values()), linestyle=":", color=line.get_color())
        time_axes.plot(lengths, [1000 * s for s in times], marker="o", label=name)
    recall_axes.axhline(1 / LETTERS, color="gray", linestyle="--", label="random guess")
    recall_axes.set(xlabel="tokens between the letter and the query", ylabel="accuracy")
    time_axes.set(xlabel="sequence length (4,096 tokens in total)", ylabel="ms per training step")
    time_axes.set(xscale="log", yscale="log")
    recall_axes.set(xscale="log")
    for axes in (recall_axes, time_axes):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(plot, dpi=110)
    return summaries


if __name__ == "__main__":
    measure(Path(sys.argv[1]) if sys.argv[1:] else Path("claims.png"))
