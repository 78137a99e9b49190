"""The command `info`, which describes this machine, or the cost of training a model."""

import json
import platform
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.help import pad
from glassformer.core.i18n import localize, tr

if TYPE_CHECKING:
    from glassformer.training.cost import Cost

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "click", "rich")
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "f16c")


@click.command()
@click.argument("run", required=False, type=options.RunPath(path_type=Path))
@options.json(help="Print one JSON object.")
def info(run: Path | None, as_json: bool) -> None:
    """Show what training the model in RUN costs; without RUN, describe this machine.

    For a run: parameters and activation memory of each part, the memory of gradients and optimizer,
    and the memory and time of a training step in float32, in bfloat16, in micro-batches and with
    activation checkpointing, measured on a batch of its training data. For the machine: versions,
    threads, CPU features and the speed of matrix products in each precision.

    \b
    glass info
    glass info runs/generate-1
    glass info --json > info.json
    """
    if run is not None:
        cost = measure_run(run)
        click.echo(json.dumps(asdict(cost), indent=2) if as_json else format_cost(cost))
        return
    machine = describe_machine()
    if as_json:
        click.echo(json.dumps(machine, indent=2))
        return
    for name, value in machine.items():
        text = " ".join(value) if isinstance(value, list) else localize(str(value))
        click.echo(f"{pad(tr(name), 18)} {text}")


def measure_run(run: Path) -> "Cost":
    from glassformer.core.errors import GlassError
    from glassformer.core.reporter import NullReporter
    from glassformer.training.cost import measure_cost
    from glassformer.training.resume import load_trainer
    from glassformer.training.run import Run

    if not Run(run).cache.is_dir():
        raise GlassError(f"{run} has no training data to measure a step on: give a run folder")
    trainer = load_trainer(Run(run), NullReporter())
    return measure_cost(trainer.network, trainer.task, trainer.settings)


def format_cost(cost: "Cost") -> str:
    """The cost of a training step as text."""
    from glassformer.training.cost import BYTES, GRIDS

    (rows, tokens), parameters = cost.batch, sum(part.parameters for part in cost.parts)
    weights = BYTES * parameters
    size = f"{rows} x {tokens} tokens" if tokens else f"{rows} examples"
    lines = [
        format_row(tr("part"), tr("parameters"), tr("weights"), tr("activations")),
        *(
            format_row(
                part.name,
                f"{part.parameters:,}",
                megabytes(BYTES * part.parameters),
                megabytes(part.activations),
            )
            for part in cost.parts
        ),
        format_row(
            tr("total"),
            f"{parameters:,}",
            megabytes(weights),
            megabytes(sum(part.activations for part in cost.parts)),
        ),
        "",
        localize(f"gradients {megabytes(weights)}, optimizer {megabytes(cost.optimizer)}"),
        localize(f"batch of {size}: {cost.flops / 1e9:,.1f} GFLOP per step"),
    ]
    if cost.attention_grids:
        message = (
            f"attention scores of one layer, if computed as a whole: "
            f"{megabytes(cost.attention_grids)} ({GRIDS} grids: before and after the softmax, and "
            "their gradients); the fused kernel keeps none of them"
        )
        lines.append(localize(message))
    lines += ["", format_row(tr("training step"), tr("activations"), tr("time"))]
    for variant in cost.variants:
        time_text = f"{1000 * variant.seconds:,.0f} ms"
        lines.append(format_row(localize(variant.name), megabytes(variant.activations), time_text))
    return "\n".join(lines)


def format_row(name: str, *cells: str) -> str:
    """A row of a table: a name and right-aligned cells."""
    return pad(name, 24) + "".join(pad(cell, 14, align_right=True) for cell in cells)


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


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
        left = torch.randn(rows, size).to(dtype)
        right = torch.randn(size, size).to(dtype)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - start)
        return min(times)

    speeds = {}
    for use, rows in (("training", 256), ("decoding", 1)):
        single = fastest_time(rows, torch.float32)
        half = fastest_time(rows, torch.bfloat16)
        rate = f"float32 {2 * rows * size**2 / single / 1e9:.0f} GFLOP/s"
        slower = f"{half / single:.1f} times slower"
        faster = f"{single / half:.1f} times as fast"
        ratio = slower if half > single else faster
        speeds[use] = f"{rate}; bfloat16 is {ratio} ([{rows}, {size}] @ [{size}, {size}])"
    return speeds
