"""The Universal Transformer and stacks of different blocks, on copying, reversing and adding.

    python bench/depth.py RESULTS

Each network is an encoder and a decoder and is trained for the same number of steps on sequences of
1 to 10 digits (sums: two numbers of 1 to 5 digits, all with the lowest digit first). Positions
start at a random offset for each batch, so that no position is tied to a place in the sequence. The
score is the fraction of 500 sequences that are exactly right, of the longest trained length and of
1.5 times that. Results are appended to RESULTS (JSON lines), so that
the script can be stopped and started again; docs/depth.md is written from what is there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from pages import write_page
from quality import append_result, matmul_speed, read_results
from torch import Tensor, nn

from glassformer import MODELS
from glassformer.nn.layout import SequenceLayout

BOS, EOS, PLUS, ZERO = 0, 1, 2, 3
VOCAB, STEPS, BATCH, LR, TESTED = 13, 3000, 64, 1e-3, 500
MAX_OFFSET = 20
LONGEST = {"copy": 10, "reverse": 10, "add": 5}
SIZES = {"vocab": VOCAB, "dim": 64, "heads": 4, "hidden": 256, "dropout": 0.0}
NETWORKS = {
    "universal, up to 6 steps": ("universal_translator", {"depth": 6}),
    "universal, always 6 steps": ("universal_translator", {"depth": 6, "adaptive": False}),
    "1 block (equal parameters)": ("translator", {"depth": 1}),
    "6 blocks (equal compute)": ("translator", {"depth": 6}),
}
SEEDS = 1
PAGE = Path(__file__).parents[1] / "docs" / "depth.md"


def make_pairs(task: str, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Sources and targets of equal length, the targets with EOS: b s, b t."""
    digits = torch.randint(0, 10, (rows, length))
    end = torch.full((rows, 1), EOS)
    if task != "add":
        targets = digits if task == "copy" else digits.flip(1)
        return digits + ZERO, torch.cat((targets + ZERO, end), dim=1)
    others = torch.randint(0, 10, (rows, length))
    source = torch.cat((digits + ZERO, torch.full((rows, 1), PLUS), others + ZERO), dim=1)
    sums, carry = [], torch.zeros(rows, dtype=torch.long)
    for a, b in zip(digits.T, others.T, strict=True):
        carry = a + b + carry
        sums.append(carry % 10)
        carry = carry // 10
    return source, torch.cat((torch.stack([*sums, carry], dim=1) + ZERO, end), dim=1)


@contextmanager
def offset_positions(offset: int) -> Iterator[None]:
    """Let all positions start at an offset."""
    positions: Callable[..., Tensor] = SequenceLayout.positions
    SequenceLayout.positions = lambda self, count=None: positions(self, count) + offset
    try:
        yield
    finally:
        SequenceLayout.positions = positions


def predict(network: nn.Module, source: Tensor, targets: Tensor) -> Tensor:
    """The logits of each target, given the ones before it: b t v."""
    start = torch.full((len(targets), 1), BOS)
    return network(torch.cat((start, targets[:, :-1]), dim=1), source=source)


def train(network: nn.Module, task: str) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, betas=(0.9, 0.98))
    for step in range(STEPS):
        length = int(torch.randint(1, LONGEST[task] + 1, ()))
        source, targets = make_pairs(task, BATCH, length)
        with offset_positions(int(torch.randint(0, MAX_OFFSET, ()))):
            logits = predict(network, source, targets)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        extra_loss = network.extra_loss()
        optimizer.zero_grad()
        (loss if extra_loss is None else loss + extra_loss).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = LR * min((step + 1) / 150, 2 * (STEPS - step) / STEPS, 1.0)
        optimizer.step()


@torch.inference_mode()
def measure_exact(network: nn.Module, task: str, length: int) -> float:
    """The fraction of sequences that greedy decoding gets exactly right.

    It does so if each token is the most likely one after the right ones.
    """
    source, targets = make_pairs(task, TESTED, length)
    is_right = predict(network.eval(), source, targets).argmax(-1) == targets
    return float(is_right.all(dim=1).float().mean())


def run(name: str, task: str, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    model, settings = NETWORKS[name]
    network = MODELS[model](MODELS[model].Config(**SIZES, **settings)).train()
    start = time.monotonic()
    train(network, task)
    seconds = time.monotonic() - start
    longest = LONGEST[task]
    return {
        "exact": measure_exact(network, task, longest),
        "exact_longer": measure_exact(network, task, longest * 3 // 2),
        "parameters": network.size,
        "seconds": seconds,
    }


def format_page(results: list[dict]) -> str:
    lines = [
        "# Recurrence in depth: copying, reversing, adding",
        "",
        "Generated by `python bench/depth.py RESULTS`; its docstring explains the measurement. "
        f"{STEPS:,} steps on {BATCH} sequences each, without a prior, {SEEDS} seed. Columns: task "
        "and length, exactly right sequences. Machine: "
        f"{results[-1]['machine']}, torch {results[-1]['torch']}, {results[-1]['date']}.",
        "",
        "| network | parameters | "
        + " | ".join(f"{task}, {n} | {task}, {n * 3 // 2}" for task, n in LONGEST.items())
        + " |",
        "| --- |" + " --- |" * (1 + 2 * len(LONGEST)),
    ]
    for name in NETWORKS:
        rows = [row for row in results if row["network"] == name]
        cells = []
        for task in LONGEST:
            for key in ("exact", "exact_longer"):
                values = [row[key] for row in rows if row["task"] == task]
                cells.append(f"{sum(values) / len(values):.0%}" if values else "")
        if rows:
            lines.append(f"| {name} | {rows[0]['parameters']:,.0f} | " + " | ".join(cells) + " |")
    lines += ["", "A network with 0% in both columns of a task did not learn it in these steps."]
    return "\n".join(lines) + "\n"


def main() -> None:
    file = Path(sys.argv[1])
    results = read_results(file)
    for seed in range(SEEDS):
        for task in LONGEST:
            for name in NETWORKS:
                job = {"network": name, "task": task, "seed": seed}
                if not any(all(row[k] == v for k, v in job.items()) for row in results):
                    results.append(append_result(file, job, run(name, task, seed), matmul_speed()))
    write_page(PAGE, format_page(results))


if __name__ == "__main__":
    main()
