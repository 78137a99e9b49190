"""What a person sees while a model learns: one live line, or plain lines in a file; and plots."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any


class Live:
    """A line on the terminal that is written over; elsewhere a line now and then."""

    def __init__(self, every: float = 10.0) -> None:
        self.terminal, self.every, self.last = sys.stderr.isatty(), every, 0.0

    def line(self, text: str) -> None:
        now = time.monotonic()
        if self.terminal and now - self.last > 0.1:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self.last = now
        elif not self.terminal and now - self.last > self.every:
            sys.stderr.write(text + "\n")
            self.last = now

    def say(self, text: str) -> None:
        """A line that stays."""
        sys.stderr.write(f"\r\x1b[K{text}\n" if self.terminal else text + "\n")
        sys.stderr.flush()


def describe(
    step: int, steps: int, loss: float, rate: float, norm: float, speed: str, left: float
) -> str:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return (
        f"step {step:,}/{steps:,}  loss {loss:.3f}  rate {rate:.1e}  gradient {norm:.2f}  "
        f"{speed}/s  {clock(left)} left  {memory:.1f} GB"
    )


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        if minutes >= 60
        else f"{minutes}:{seconds:02}"
    )


def plot(metrics: list[dict[str, Any]], figure: str, baseline: float | None, folder: Path) -> None:
    """Loss, rate and the figure that counts, as pictures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(exist_ok=True)
    learnt = [m for m in metrics if "rate" in m]
    judged = [m for m in metrics if "seconds" in m and "best" not in m]
    for name in dict.fromkeys(("loss", "rate", figure)):
        chart, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
        if name in ("loss", "rate"):
            axes.plot([m["step"] for m in learnt], [m[name] for m in learnt], label="training")
        if name == "loss" or name == figure:
            steps, values = [m["step"] for m in judged], [m[name] for m in judged]
            axes.plot(steps, values, marker="o", label="validation")
        if name == figure and baseline is not None:
            axes.axhline(baseline, linestyle="--", color="gray", label="a simple count")
        axes.legend()
        axes.set_xlabel("step")
        axes.set_ylabel({"rate": "learning rate"}.get(name, name.replace("_", " ")))
        axes.grid(alpha=0.3)
        chart.savefig(folder / f"{name}.png", dpi=110)
        pyplot.close(chart)
