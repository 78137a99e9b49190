"""What it costs to see all attention of a GPT-2 small (random weights) on 512 tokens.

    python bench/looking.py              # ours
    pip install "transformer_lens<3" && python bench/looking.py

A pass without looking, the same with every pattern traced, and, where it is installed, the same by
TransformerLens (`run_with_cache`), with all of its values and with the patterns alone: seconds (the
best of several, in turn), megabytes that were kept, and the most memory of a process that does
nothing else, beyond that of one that does not look.
"""

from __future__ import annotations

import subprocess
import sys
import time
import timeit
from collections.abc import Callable

import torch

from glassformer import MODELS, Trace
from glassformer.trace import tap, watched
from glassformer.training.memory import peak_memory

TOKENS, ROUNDS = 512, 5
SHAPE = {"dim": 768, "depth": 12, "heads": 12}


def peak(name: str) -> float:
    """Megabytes that a process of its own held at the most, which looked once in this way."""
    line = [sys.executable, __file__, name]
    return float(subprocess.run(line, capture_output=True, text=True, check=True).stdout)


def ours() -> dict[str, Callable[[], float]]:
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=50_257, context=1024, dropout=0.0, **SHAPE)).eval()
    ids = torch.randint(0, 50_257, (1, TOKENS))

    def blind() -> float:
        network(ids)
        return 0.0

    def seeing(*patterns: str) -> float:
        with Trace(network, *patterns, megabytes=4000) as trace:
            network(ids)
        return sum(v.nbytes for visits in trace.visits.values() for v in visits) / 1e6

    return {
        "ours, not looking": blind,
        "ours, every pattern": lambda: seeing("*.pattern"),
        "ours, every value": lambda: seeing(),
    }


def theirs() -> dict[str, Callable[[], float]]:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=12, d_model=768, n_ctx=1024, d_head=64, n_heads=12, d_vocab=50_257,
        act_fn="gelu_new", device="cpu", seed=0,
    )  # fmt: skip
    network = HookedTransformer(config).eval()
    ids = torch.randint(0, 50_257, (1, TOKENS))

    def blind() -> float:
        network(ids)
        return 0.0

    def seeing(**only: object) -> float:
        _, cache = network.run_with_cache(ids, **only)
        return sum(value.nbytes for value in cache.values()) / 1e6

    patterns = {"names_filter": lambda name: name.endswith("hook_pattern")}
    return {
        "TransformerLens, not looking": blind,
        "TransformerLens, every pattern": lambda: seeing(**patterns),
        "TransformerLens, every value": lambda: seeing(),
    }


@torch.inference_mode()
def closed_taps() -> float:
    """What the taps of a GPT-2 cost while no trace is open, as a share of a pass of 128 tokens."""
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=512, context=128, dim=384, depth=6, heads=6)).eval()
    ids, value = torch.randint(0, 512, (1, 128)), torch.ones(1)
    with Trace(network) as trace:
        network(ids)
    taps = sum(len(visits) for visits in trace.visits.values())
    watched_calls = 3 * 6 + 1  # attention and two norms in each block, and the last norm
    one_pass = min(timeit.repeat(lambda: network(ids), number=1, repeat=9))
    one_tap = min(timeit.repeat(lambda: tap("x", value), number=10_000, repeat=5)) / 10_000
    one_ask = min(timeit.repeat(lambda: watched("x"), number=10_000, repeat=5)) / 10_000
    return (taps * one_tap + watched_calls * one_ask) / one_pass


@torch.inference_mode()
def once(name: str) -> None:
    (ours() if name.startswith("ours") else theirs())[name]()
    print(1e3 * peak_memory())


@torch.inference_mode()
def main() -> None:
    print(f"taps while no trace is open: {closed_taps():.2%} of a pass")
    ways = ours()
    try:
        ways |= theirs()
    except ImportError:
        print("transformer_lens is not installed: ours alone")
    best = dict.fromkeys(ways, float("inf"))
    kept = dict.fromkeys(ways, 0.0)
    for _ in range(ROUNDS):
        for name, run in ways.items():
            start = time.perf_counter()
            kept[name] = run()
            best[name] = min(best[name], time.perf_counter() - start)
    peaks = {name: peak(name) for name in ways}
    for name, seconds in best.items():
        ratio = seconds / best["ours, not looking"]
        more = peaks[name] - peaks[f"{name.split(',')[0]}, not looking"]
        print(
            f"{name:<32} {seconds:6.3f} s  {ratio:5.2f} times  {kept[name]:7.1f} MB kept  "
            f"{peaks[name]:7.0f} MB at the most, {more:6.0f} more than not looking"
        )


if __name__ == "__main__":
    once(sys.argv[1]) if sys.argv[1:] else main()
