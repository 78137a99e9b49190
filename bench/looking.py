"""The cost of tracing all attention patterns of a GPT-2 small (random weights) on 512 tokens.

    python bench/looking.py              # ours only
    pip install "transformer_lens<3" && python bench/looking.py

Compares a forward pass without tracing, with every pattern traced and with every value traced, and
the same for TransformerLens (`run_with_cache`) if it is installed: seconds (best of several
alternating rounds), megabytes of traced values, and the peak memory in a separate process.
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
SIZES = {"dim": 768, "depth": 12, "heads": 12}


def measure_peak(name: str) -> float:
    """Return the peak memory in MB of a process that runs one method once."""
    command = [sys.executable, __file__, name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def our_methods() -> dict[str, Callable[[], float]]:
    """Return our methods by name; each returns the MB of traced values."""
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=50_257, context=1024, dropout=0.0, **SIZES)).eval()
    ids = torch.randint(0, 50_257, (1, TOKENS))

    def run_untraced() -> float:
        network(ids)
        return 0.0

    def run_traced(*patterns: str) -> float:
        with Trace(network, *patterns, megabytes=4000) as trace:
            network(ids)
        return sum(v.nbytes for visits in trace.visits.values() for v in visits) / 1e6

    return {
        "ours, untraced": run_untraced,
        "ours, every pattern": lambda: run_traced("*.pattern"),
        "ours, every value": lambda: run_traced(),
    }


def their_methods() -> dict[str, Callable[[], float]]:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=12, d_model=768, n_ctx=1024, d_head=64, n_heads=12, d_vocab=50_257,
        act_fn="gelu_new", device="cpu", seed=0,
    )  # fmt: skip
    network = HookedTransformer(config).eval()
    ids = torch.randint(0, 50_257, (1, TOKENS))

    def run_untraced() -> float:
        network(ids)
        return 0.0

    def run_traced(**options: object) -> float:
        _, cache = network.run_with_cache(ids, **options)
        return sum(value.nbytes for value in cache.values()) / 1e6

    patterns = {"names_filter": lambda name: name.endswith("hook_pattern")}
    return {
        "TransformerLens, untraced": run_untraced,
        "TransformerLens, every pattern": lambda: run_traced(**patterns),
        "TransformerLens, every value": lambda: run_traced(),
    }


@torch.inference_mode()
def measure_inactive_taps() -> float:
    """Return the time that taps take without a trace, as a fraction of a 128-token GPT-2 pass."""
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=512, context=128, dim=384, depth=6, heads=6)).eval()
    ids, value = torch.randint(0, 512, (1, 128)), torch.ones(1)
    with Trace(network) as trace:
        network(ids)
    taps = sum(len(visits) for visits in trace.visits.values())
    watched_calls = 3 * 6 + 1  # attention and two norms in each block, and the last norm
    one_pass = min(timeit.repeat(lambda: network(ids), number=1, repeat=9))
    one_tap = min(timeit.repeat(lambda: tap("x", value), number=10_000, repeat=5)) / 10_000
    one_check = min(timeit.repeat(lambda: watched("x"), number=10_000, repeat=5)) / 10_000
    return (taps * one_tap + watched_calls * one_check) / one_pass


@torch.inference_mode()
def run_once(name: str) -> None:
    """Run one method and print the peak memory of this process in MB."""
    (our_methods() if name.startswith("ours") else their_methods())[name]()
    print(1e3 * peak_memory())


@torch.inference_mode()
def main() -> None:
    print(f"taps while no trace is open: {measure_inactive_taps():.2%} of a pass")
    methods = our_methods()
    try:
        methods |= their_methods()
    except ImportError:
        print("transformer_lens is not installed: ours only")
    best = dict.fromkeys(methods, float("inf"))
    traced = dict.fromkeys(methods, 0.0)
    for _ in range(ROUNDS):
        for name, run in methods.items():
            start = time.perf_counter()
            traced[name] = run()
            best[name] = min(best[name], time.perf_counter() - start)
    peaks = {name: measure_peak(name) for name in methods}
    for name, seconds in best.items():
        ratio = seconds / best["ours, untraced"]
        extra = peaks[name] - peaks[f"{name.split(',')[0]}, untraced"]
        print(
            f"{name:<32} {seconds:6.3f} s  {ratio:5.2f}x  {traced[name]:7.1f} MB traced  "
            f"peak {peaks[name]:7.0f} MB, {extra:6.0f} MB more than untraced"
        )


if __name__ == "__main__":
    run_once(sys.argv[1]) if sys.argv[1:] else main()
