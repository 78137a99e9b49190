"""What a person sees while a model learns: one live line, or plain lines in a file; and plots."""

from pathlib import Path
from typing import Any

from glassformer.core.figures import subplots
from glassformer.core.reporter import format_duration
from glassformer.tasks.task import Task
from glassformer.training.memory import peak_memory
from glassformer.training.step import StepResult


def describe_step(
    step: int, steps: int, result: StepResult, best: str, left: float, speed: str
) -> str:
    """What matters most comes first: a narrow terminal shows no more."""
    return (
        f"step {step:,}/{steps:,}  loss {result.loss:.3f}  {best}{format_duration(left)} left  "
        f"rate {result.lr:.1e}  gradient {result.norm:.2f}  {speed}/s  {peak_memory():.1f} GB"
    )


def evaluations(metrics: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl with a metric while it was trained, not that of the end."""
    return [m for m in metrics if m["kind"] == "validation" and metric in m]


def mark_trouble(axes: Any, trained: list[dict[str, Any]], skipped: list[int]) -> None:
    """Show where the loss leapt, and steps that were not taken."""
    leaps = [trained[i] for i in spikes([m["loss"] for m in trained])]
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


def plot(
    metrics: list[dict[str, Any]], task: Task, best: str, baseline: float | None, folder: Path
) -> None:
    """Loss, learning rate and the metrics that count, beside the baseline, as pictures."""
    folder.mkdir(exist_ok=True)
    trained = [m for m in metrics if m["kind"] == "train"]
    for name in dict.fromkeys(("loss", "lr", best, task.spec.metric.name)):
        chart, axes = subplots(figsize=(7, 4))
        if name in ("loss", "lr"):
            axes.plot([m["step"] for m in trained], [m[name] for m in trained], label="training")
        if name == "loss":
            mark_trouble(axes, trained, [m["step"] for m in metrics if m["kind"] == "skipped"])
        if name != "lr":
            found = evaluations(metrics, name)
            steps, values = [m["step"] for m in found], [m[name] for m in found]
            axes.plot(steps, values, marker="o", label="validation")
        if name == task.spec.metric.name and baseline is not None:
            axes.axhline(baseline, linestyle="--", color="gray", label=task.spec.baseline_name)
        axes.legend()
        axes.set_xlabel("step")
        axes.set_ylabel({"lr": "learning rate"}.get(name, name.replace("_", " ")))
        axes.grid(alpha=0.3)
        chart.savefig(folder / f"{name}.png", dpi=110)
