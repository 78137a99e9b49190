"""Training speed of our GPT-2 against nanoGPT's, without dropout, at two sizes.

    python bench/race.py CHECKOUT [--compile]

CHECKOUT is a checkout of nanoGPT. Both take whole optimizer steps (forward and backward pass,
clipping, AdamW) on the same random tokens, in blocks of a few steps that alternate, so that noise
affects both alike. Prints the best block of each, in tokens per second, and the ratio.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from glassformer import MODELS
from glassformer.tasks.generate import GenerateObjective
from glassformer.tasks.task import Artifacts
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import Step

VOCAB, LR, BLOCK, ROUNDS = 65, 1e-3, 2, 7
SIZES = {  # layers, heads, dim, context, batch size
    "nanoGPT's CPU recipe": (4, 4, 128, 64, 12),
    "nanoGPT's GPU recipe, smaller batch": (6, 6, 384, 256, 16),
}
Batch = tuple[torch.Tensor, torch.Tensor]


def make_ours(depth: int, heads: int, dim: int, context: int, compiled: bool) -> Callable[..., Any]:
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=VOCAB, context=context, dim=dim, depth=depth, heads=heads,
                               dropout=0.0))  # fmt: skip
    settings = TrainingSettings(lr=LR, weight_decay=0.1, device="cpu", precision="float32",
                                accumulate=1)  # fmt: skip
    step = Step(network.train(), GenerateObjective(Artifacts()), settings)
    if compiled:
        network.compile()
    return lambda ids, targets: step({"ids": ids, "targets": targets}, LR, 0)


def make_theirs(
    depth: int, heads: int, dim: int, context: int, compiled: bool
) -> Callable[..., Any]:
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    network = GPT(GPTConfig(block_size=context, vocab_size=VOCAB, n_layer=depth, n_head=heads,
                            n_embd=dim, dropout=0.0, bias=True)).train()  # fmt: skip
    optimizer = network.configure_optimizers(0.1, LR, (0.9, 0.95), "cpu")
    run = torch.compile(network) if compiled else network

    def step(ids: torch.Tensor, targets: torch.Tensor) -> None:
        _, loss = run(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def time_block(step: Callable[..., Any], batch: Batch) -> float:
    start = time.perf_counter()
    for _ in range(BLOCK):
        step(*batch)
    return (time.perf_counter() - start) / BLOCK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--compile", action="store_true", help="compile both")
    args = parser.parse_args()
    sys.path.insert(0, str(args.checkout))
    for name, (depth, heads, dim, context, rows) in SIZES.items():
        torch.manual_seed(0)
        ids = torch.randint(0, VOCAB, (rows, context + 1))
        batch = (ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        steps = [make(depth, heads, dim, context, args.compile) for make in
                 (make_ours, make_theirs)]  # fmt: skip
        times: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for step, seconds in zip(steps, times, strict=True):
                seconds.append(time_block(step, batch))
        ours, theirs = (rows * context / min(seconds) for seconds in times)
        print(
            f"{name}: ours {ours:,.0f}, nanoGPT {theirs:,.0f} tokens/s, ratio {ours / theirs:.3f}"
        )


if __name__ == "__main__":
    main()
