"""Commands about models, their folders and the machine: check, average, convert, models, info."""

import json
import platform
import sys
import time
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.export import EXPORTERS

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "click", "rich")
FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "f16c")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def check(folder: Path) -> None:
    """Compare every file of a run or model in FOLDER with what was written; name what is damaged.

    The exit code is 1 if anything is.

    \b
    glass check runs/generate-1
    """
    from glassformer.training.run import damage

    damaged = damage(folder)
    for line in damaged:
        click.echo(line)
    if damaged:
        sys.exit(1)
    click.echo(f"{folder} is whole")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@options.out(help="The folder to write.", required=True)
@options.overwrite(help="Replace it if it exists.")
def average(runs: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Write a model whose weights are the mean of the last weights of RUNS.

    The runs must have started from the same weights or the mean means nothing: runs of one --seed,
    or --from one model.

    \b
    glass average runs/translate-1 runs/translate-2 --out averaged
    """
    from glassformer.checkpoint import average as mean

    mean(runs, out, overwrite=overwrite)
    click.echo(out)


@click.command()
@click.argument("source", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@click.option(
    "--to",
    "form",
    type=click.Choice([*EXPORTERS]),
    default="glassformer",
    show_default=True,
    help="What to write.",
)
@click.option("--tokenizer", type=click.Path(exists=True), help="llama2.c's tokenizer file.")
@click.option("--ignore", multiple=True, help="A setting or tensor to pass over.")
@options.overwrite(help="Replace TARGET if it exists.")
def convert(source: str, target: str, form: str, overwrite: bool, **values: Any) -> None:
    """Write the model in SOURCE as the folder TARGET.

    SOURCE is a folder of ours, a Hugging Face folder (GPT-2, BERT, Llama) or a llama2.c file.

    \b
    glass convert downloads/gpt2 models/gpt2
    glass convert models/gpt2 for-transformers --to huggingface
    glass convert stories260K.bin models/stories --tokenizer tok512.bin
    """
    from glassformer.api import load

    model = load(source, **values)
    model.save(target, format=form, overwrite=overwrite)
    click.echo(f"{model!r}\nwritten to {target}")


@click.command()
@click.option("--training", is_flag=True, help="List the settings of training.")
@options.json(help="One object a line.")
def models(training: bool, as_json: bool) -> None:
    """List the models, the tasks that each can do, and their settings with defaults.

    \b
    glass models
    glass models --training
    glass models --json
    """
    from glassformer.core.config import to_dict
    from glassformer.registry import MODELS
    from glassformer.tasks import TASKS
    from glassformer.training.settings import TrainingSettings

    if training:
        default = to_dict(TrainingSettings())
        lines = [f"train.{f.name}={default.get(f.name, '')}" for f in fields(TrainingSettings)]
        click.echo(json.dumps(default) if as_json else "\n".join(lines))
        return
    for name, kind in MODELS.items():
        tasks = [task for task, what in TASKS.items() if name in what.models]
        settings = to_dict(kind.Config())
        if as_json:
            click.echo(json.dumps({"model": name, "tasks": tasks, "settings": settings}))
        else:
            click.echo(f"{name:<12} {', '.join(tasks)}")
            click.echo("    " + "  ".join(f"{k}={v}" for k, v in settings.items()))


@click.command()
@options.json(help="For a program to read.")
def info(as_json: bool) -> None:
    """Versions, threads, CPU features, and how fast each precision is here.

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
        "cpu features": [f for f in FEATURES if f in (read_cpuinfo("flags") or "").split()],
        "torch uses": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else "none",
        "mps": torch.backends.mps.is_available(),
        **time_precisions(),
    }


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def read_cpuinfo(key: str) -> str | None:
    """Return what Linux reports about the first core."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def time_precisions(size: int = 1024) -> dict[str, str]:
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

    speeds = {}
    for use, rows in (("training", 256), ("one new token", 1)):
        single, half = best(rows, torch.float32), best(rows, torch.bfloat16)
        rate = f"float32 {2 * rows * size**2 / single / 1e9:.0f} GFLOP/s"
        ratio = f"{half / single:.1f} times slower" if half > single else "faster"
        speeds[use] = f"{rate}; bfloat16 is {ratio} ({rows} x {size} times {size} x {size})"
    return speeds
