"""The live progress line, and plots of the metrics."""

from pathlib import Path
from typing import Any

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.core.reporter import format_duration
from glassformer.tasks.task import Task
from glassformer.training.memory import peak_memory
from glassformer.training.step import StepResult


def format_step(
    step: int, steps: int, result: StepResult, best: str, seconds_left: float, speed: str
) -> str:
    """Format the status line; `best` and `speed` are already formatted, with labels and units."""
    return (
        f"step {step:,}/{steps:,}  train loss {result.loss:.3f}  {best}lr {result.lr:.1e}  "
        f"grad norm {result.grad_norm:.2f}  {speed}/s  {peak_memory():.1f} GB  "
        f"ETA {format_duration(seconds_left)}"
    )


def select_evaluations(metrics: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl that have this metric, excluding the final evaluation."""
    return [m for m in metrics if m["kind"] == "validation" and metric in m]


def mark_problems(axes: Any, train_metrics: list[dict[str, Any]], skipped: list[int]) -> None:
    """Mark loss spikes and skipped steps."""
    spikes = [train_metrics[i] for i in find_spikes([m["loss"] for m in train_metrics])]
    if spikes:
        steps = [m["step"] for m in spikes]
        values = [m["loss"] for m in spikes]
        axes.plot(steps, values, "v", color="tab:red", label=tr("loss spike"))
    for i, step in enumerate(skipped):
        label = tr("skipped: not finite") if i == 0 else None
        axes.axvline(step, color="tab:red", linewidth=0.8, alpha=0.5, label=label)


def find_spikes(losses: list[float], window: int = 20) -> list[int]:
    """Return the indices of losses far above the `window` losses before them: above their median
    by more than three times the range between their 10th and 90th percentiles, and by 6%."""
    spikes = []
    for i in range(window, len(losses)):
        previous = sorted(losses[i - window : i])
        median = previous[window // 2]
        spread = previous[-window // 10] - previous[window // 10]
        if losses[i] > median + 6 * max(spread / 2, 0.01 * abs(median)):
            spikes.append(i)
    return spikes


def plot_metrics(
    metrics: list[dict[str, Any]], task: Task, best: str, baseline: float | None, folder: Path
) -> None:
    """Plot the loss, the learning rate, the metric `best` and the task's metric with its baseline.

    Writes one PNG for each into the folder.
    """
    folder.mkdir(exist_ok=True)
    train_metrics = [m for m in metrics if m["kind"] == "train"]
    for name in dict.fromkeys(("loss", "lr", best, task.spec.metric.name)):
        figure, axes = subplots(figsize=(7, 4))
        if name in ("loss", "lr"):
            steps = [m["step"] for m in train_metrics]
            values = [m[name] for m in train_metrics]
            axes.plot(steps, values, label=tr("training"))
        if name == "loss":
            skipped = [m["step"] for m in metrics if m["kind"] == "skipped"]
            mark_problems(axes, train_metrics, skipped)
        if name != "lr":
            evaluations = select_evaluations(metrics, name)
            steps = [m["step"] for m in evaluations]
            values = [m[name] for m in evaluations]
            axes.plot(steps, values, marker="o", label=tr("validation"))
        if name == task.spec.metric.name and baseline is not None:
            axes.axhline(baseline, linestyle="--", color="gray", label=task.spec.baseline_name)
        axes.legend()
        axes.set_xlabel(tr("step"))
        axes.set_ylabel({"lr": tr("learning rate")}.get(name, name.replace("_", " ")))
        axes.grid(alpha=0.3)
        figure.savefig(folder / f"{name}.png", dpi=110)
