"""Commands that manage models, and `info`: check, average, convert, models, info."""

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
from glassformer.cli.help import echo
from glassformer.export import EXPORTERS

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "click", "rich")
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "f16c")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def check(folder: Path) -> None:
    """Verify that the files of the run or model in FOLDER are intact.

    Compares sizes and checksums, and prints a line for each corrupted file. The exit code is 1 if
    there are any.

    \b
    glass check runs/generate-1
    """
    from glassformer.training.run import find_damage

    errors = find_damage(folder)
    for error in errors:
        echo(error)
    if errors:
        sys.exit(1)
    echo(f"{folder} is intact")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@options.out(help="Folder to write.", required=True)
@options.overwrite(help="Replace the folder if it exists.")
def average(runs: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Average the weights of RUNS into a new model.

    Uses the last weights of each run. The runs must have started from the same weights (the same
    --seed or the same --from), or the average is useless.

    \b
    glass average runs/translate-1 runs/translate-2 --out averaged
    """
    from glassformer.checkpoint import average as average_runs

    average_runs(runs, out, overwrite=overwrite)
    click.echo(out)


@click.command()
@click.argument("source", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@click.option(
    "--to",
    "format",
    type=click.Choice([*EXPORTERS]),
    default="glassformer",
    show_default=True,
    help="Format to write.",
)
@click.option(
    "--tokenizer", type=click.Path(exists=True), help="Tokenizer file for a llama2.c model."
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="NAME",
    help="Setting or tensor in a Hugging Face folder to skip; can be repeated.",
)
@click.option(
    "--strip-prior",
    is_flag=True,
    help="Leave out the prior, which contains n-grams of the training text, or a dictionary.",
)
@options.overwrite(help="Replace TARGET if it exists.")
def convert(
    source: str, target: str, format: str, strip_prior: bool, overwrite: bool, **values: Any
) -> None:
    """Convert the model in SOURCE to another format and write it to the folder TARGET.

    SOURCE is a run or model folder, a Hugging Face folder (GPT-2, BERT, Llama) or a llama2.c file.

    \b
    glass convert downloads/gpt2 models/gpt2
    glass convert models/gpt2 for-transformers --to huggingface
    glass convert runs/classify-1 for-onnxruntime --to onnx --strip-prior
    glass convert stories260K.bin models/stories --tokenizer tok512.bin
    glass convert runs/generate-1 to-publish --strip-prior
    """
    from glassformer.api import load

    model = load(source, **values)
    if strip_prior:
        model.strip_prior()
        echo("removed the prior: expect a higher loss", err=True)
    model.save(target, format=format, overwrite=overwrite)
    click.echo(repr(model))
    echo(f"wrote {target}")


@click.command()
@click.option("--training", is_flag=True, help="List the training settings instead.")
@options.json()
def models(training: bool, as_json: bool) -> None:
    """List the models with their tasks and default settings.

    Use --set with `glass train` to change a setting.

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
        defaults = to_dict(TrainingSettings())
        lines = [f"train.{f.name}={defaults.get(f.name, '')}" for f in fields(TrainingSettings)]
        click.echo(json.dumps(defaults) if as_json else "\n".join(lines))
        return
    for name, kind in MODELS.items():
        tasks = [task for task, spec in TASKS.items() if name in spec.models]
        settings = to_dict(kind.Config())
        if as_json:
            click.echo(json.dumps({"model": name, "tasks": tasks, "settings": settings}))
        else:
            click.echo(f"{name}\n  tasks:    {', '.join(tasks) or 'none'}")
            click.echo("  settings: " + "  ".join(f"{k}={v}" for k, v in settings.items()))


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
