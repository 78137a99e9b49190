"""The command `info`, which describes this machine."""

import json
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "click", "rich")
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "f16c")


@click.command()
@options.json(help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Show versions, threads, CPU features and matrix-multiplication speed in each precision.

    Times matrix products of the sizes used in a training step and in decoding.

    \b
    glass info
    glass info --json > info.json
    """
    machine = describe_machine()
    if as_json:
        click.echo(json.dumps(machine, indent=2))
        return
    for name, value in machine.items():
        click.echo(f"{name:<18} {value if not isinstance(value, list) else ' '.join(value)}")


def describe_machine() -> dict[str, Any]:
    import torch

    return {
        **{name: package_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": read_cpuinfo("model name") or platform.processor(),
        "cpu features": [f for f in CPU_FEATURES if f in (read_cpuinfo("flags") or "").split()],
        "torch uses": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else "none",
        "mps": "available" if torch.backends.mps.is_available() else "none",
        **time_precisions(),
    }


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def read_cpuinfo(key: str) -> str | None:
    """Return the entry `key` of the first core in /proc/cpuinfo, or None."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def time_precisions(size: int = 1024) -> dict[str, str]:
    """Time matrix products in float32 and bfloat16, which is far slower on many CPUs."""
    import torch

    def fastest_time(rows: int, dtype: torch.dtype) -> float:
        left, right = torch.randn(rows, size).to(dtype), torch.randn(size, size).to(dtype)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - start)
        return min(times)

    speeds = {}
    for use, rows in (("training", 256), ("decoding", 1)):
        single, half = fastest_time(rows, torch.float32), fastest_time(rows, torch.bfloat16)
        rate = f"float32 {2 * rows * size**2 / single / 1e9:.0f} GFLOP/s"
        ratio = f"{half / single:.1f} times slower" if half > single else "faster"
        speeds[use] = f"{rate}; bfloat16 is {ratio} ([{rows}, {size}] @ [{size}, {size}])"
    return speeds
