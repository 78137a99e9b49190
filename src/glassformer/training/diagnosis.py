"""What the learning curve of a run shows: undertrained, overfitting, or as good as it gets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

MIN_EVALUATIONS = 3  # after the first step, to extrapolate
RISE = 0.01  # of the loss after its minimum, relative to it, that counts as overfitting
MIN_RISE = 1e-4  # the same, absolute: a loss of almost 0 is noise
LATE = 0.7  # of the steps: a minimum after this may just be noise
GAIN = 0.02  # of the loss, relative to it, that makes twice the time worthwhile
MIN_EPOCHS = 1.0  # a network that has not seen all of the data had no fair chance


class FitState(Enum):
    UNDERTRAINED = "undertrained"
    OVERFITTING = "overfitting"
    CONVERGED = "converged"


@dataclass(frozen=True)
class Diagnosis:
    state: FitState
    text: str


def diagnose(
    steps: Sequence[int], losses: Sequence[float], *, epochs: float, minutes: float, run: str
) -> Diagnosis:
    """Diagnose a run from its validation losses after the given steps.

    `epochs` and `minutes` are how long it was trained; `run` is its folder, for the advice.
    """
    minutes = max(math.ceil(minutes), 1)
    resume = f"glass resume {run} --minutes {minutes}"
    best = int(np.argmin(losses))
    rise = losses[-1] - losses[best]
    has_seen_all = epochs >= MIN_EPOCHS
    has_risen = rise > max(RISE * losses[best], MIN_RISE)
    if steps[best] <= LATE * steps[-1] and has_risen and has_seen_all:
        return Diagnosis(
            FitState.OVERFITTING,
            f"overfitting: the valid loss rose from {losses[best]:.4g} at step {steps[best]:,} to "
            f"{losses[-1]:.4g}; the best weights were kept. More time will not help; more data, "
            "a smaller model (--set model.dim=...) or more dropout (--set model.dropout=...) may",
        )
    gain = estimate_gain(steps, losses)
    if gain is not None and gain > GAIN * losses[best]:
        return Diagnosis(
            FitState.UNDERTRAINED,
            f"undertrained: the valid loss was still falling after {epochs:.1f} epochs; twice the "
            f"time would lower it by about {gain:.2g} to {losses[best] - gain:.4g}: {resume}",
        )
    if not has_seen_all:
        return Diagnosis(
            FitState.UNDERTRAINED,
            f"undertrained: the model was trained on {epochs:.0%} of the data only; to continue "
            f"training: {resume}",
        )
    if gain is None:
        return Diagnosis(
            FitState.UNDERTRAINED,
            "too few evaluations to tell whether more training would help; to continue "
            f"training: {resume}",
        )
    return Diagnosis(
        FitState.CONVERGED,
        f"as good as this model gets on this data: twice the time would lower the valid loss by "
        f"less than {GAIN:.0%}; more data or another model may",
    )


def estimate_gain(steps: Sequence[int], losses: Sequence[float]) -> float | None:
    """How much lower the loss would be after twice as many steps, if it keeps its slope.

    The slope is that of the loss over the logarithm of the step, in the last half of the steps.
    None if there are too few evaluations.
    """
    points = [(s, v) for s, v in zip(steps, losses, strict=True) if s >= steps[-1] / 2 and s > 0]
    if len(points) < MIN_EVALUATIONS:
        return None
    x = np.log2([s for s, _ in points])
    y = np.array([v for _, v in points])
    slope, _ = np.polyfit(x, y, 1)
    return min(max(-float(slope), 0.0), float(y.min()))  # no loss is negative
