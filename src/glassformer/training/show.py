"""What a person sees while a model learns: one live line, or plain lines in a file; and plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.live import clock
from glassformer.picture import subplots
from glassformer.tasks.task import Task

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def peak_memory() -> float:
    """The most that this process ever held, in GB."""
    status = Path(
        "/proc/self/status"
    )  # what getrusage says on Linux is at least what its parent held
    if status.exists():
        lines = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
        if "VmHWM" in lines:
            return int(lines["VmHWM"].split()[0]) / 1e6
    if resource is None:
        return 0.0
    unit = 1e9 if sys.platform == "darwin" else 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def describe(
    step: int, steps: int, loss: float, best: str, left: float, rate: float, norm: float, speed: str
) -> str:
    """What matters most comes first: a narrow terminal shows no more."""
    return (
        f"step {step:,}/{steps:,}  loss {loss:.3f}  {best}{clock(left)} left  rate {rate:.1e}  "
        f"gradient {norm:.2f}  {speed}/s  {peak_memory():.1f} GB"
    )


def evaluations(metrics: list[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that say a figure while it learnt, not that of the end."""
    return [m for m in metrics if "seconds" in m and "best" not in m and figure in m]


def mark_trouble(axes: Any, learnt: list[dict[str, Any]], skipped: list[int]) -> None:
    """Show where the loss leapt, and steps that were not taken."""
    leaps = [learnt[i] for i in spikes([m["loss"] for m in learnt])]
    if leaps:
        steps, values = [m["step"] for m in leaps], [m["loss"] for m in leaps]
        axes.plot(steps, values, "v", color="tab:red", label="a leap of the loss")
    for i, step in enumerate(skipped):
        label = "not finite, not taken" if i == 0 else None
        axes.axvline(step, color="tab:red", linewidth=0.8, alpha=0.5, label=label)


def spikes(losses: list[float], before: int = 20) -> list[int]:
    """Where a loss is far above those just before it: by six times as much as they differ."""
    found = []
    for i in range(before, len(losses)):
        last = sorted(losses[i - before : i])
        middle, spread = last[before // 2], last[-before // 10] - last[before // 10]
        if losses[i] > middle + 6 * max(spread / 2, 0.01 * abs(middle)):
            found.append(i)
    return found


def plot_confusion(counts: NDArray[np.int64], labels: list[str], file: Path) -> None:
    """Which label was said for which, in percent of each true label."""
    share = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    side = min(max(3.5, 0.55 * len(labels) + 2), 20)
    chart, axes = subplots(figsize=(side, side))
    axes.tick_params(labelsize=min(10, 60 * side / len(labels)))
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("said")
    axes.set_ylabel("true")
    for true, row in enumerate(share):
        for said, value in enumerate(row):
            colour = "white" if value > 0.5 else "black"
            if counts[true, said] and len(labels) <= 50:
                axes.text(said, true, f"{value:.0%}", ha="center", va="center", color=colour)
    file.parent.mkdir(exist_ok=True)
    chart.savefig(file, dpi=110)


def plot(metrics: list[dict[str, Any]], task: Task, baseline: float | None, folder: Path) -> None:
    """Loss, rate and the figure that counts beside something simple, as pictures."""
    folder.mkdir(exist_ok=True)
    learnt = [m for m in metrics if "rate" in m]
    for name in dict.fromkeys(("loss", "rate", task.figure, task.verdict)):
        chart, axes = subplots(figsize=(7, 4))
        if name in ("loss", "rate"):
            axes.plot([m["step"] for m in learnt], [m[name] for m in learnt], label="training")
        if name == "loss":
            mark_trouble(axes, learnt, [m["step"] for m in metrics if "skipped" in m])
        if name != "rate":
            judged = evaluations(metrics, name)
            steps, values = [m["step"] for m in judged], [m[name] for m in judged]
            axes.plot(steps, values, marker="o", label="validation")
        if name == task.verdict and baseline is not None:
            axes.axhline(baseline, linestyle="--", color="gray", label=task.simple)
        axes.legend()
        axes.set_xlabel("step")
        axes.set_ylabel({"rate": "learning rate"}.get(name, name.replace("_", " ")))
        axes.grid(alpha=0.3)
        chart.savefig(folder / f"{name}.png", dpi=110)
