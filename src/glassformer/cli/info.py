"""`glass info`: the machine and the versions, for a bug report."""

from __future__ import annotations

import json
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "click", "rich")
FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "f16c")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def info(as_json: bool) -> None:
    """Versions, threads, CPU features, and how fast each precision is here.

    \b
    glass info
    glass info --json > info.json
    """
    facts = gather()
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        click.echo(f"{name:<18} {value if not isinstance(value, list) else ' '.join(value)}")


def gather() -> dict[str, Any]:
    import torch

    return {
        **{name: installed(name) for name in PACKAGES},
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor("model name") or platform.processor(),
        "cpu features": [f for f in FEATURES if f in (processor("flags") or "").split()],
        "torch uses": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else "none",
        "mps": torch.backends.mps.is_available(),
        **precision(),
    }


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def processor(key: str) -> str | None:
    """What Linux says of the first core."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def precision(size: int = 1024) -> dict[str, str]:
    """Time products in float32 and bfloat16, of which the latter is far slower on many CPUs."""
    import torch

    def best(rows: int, dtype: torch.dtype) -> float:
        left, right = torch.randn(rows, size).to(dtype), torch.randn(size, size).to(dtype)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - start)
        return min(times)

    facts = {}
    for place, rows in (("training", 256), ("one new token", 1)):
        single, half = best(rows, torch.float32), best(rows, torch.bfloat16)
        rate = f"float32 {2 * rows * size**2 / single / 1e9:.0f} GFLOP/s"
        verdict = f"{half / single:.1f} times slower" if half > single else "faster"
        facts[place] = f"{rate}; bfloat16 is {verdict} ({rows} x {size} times {size} x {size})"
    return facts
