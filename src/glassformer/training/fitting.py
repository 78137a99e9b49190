"""Fit a model directly to the training data, without training steps."""

import time

from glassformer.models.network import Network
from glassformer.tasks.task import Task
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings

MAX_SECONDS = 90.0  # time limit for fitting a model, and for evaluating a baseline
MAX_TOKENS = 2_000_000  # tokens of running text to fit on, to limit memory
TRIAL_TOKENS = 100_000  # tokens to fit on first, to estimate the time for all tokens


def fit(task: Task, network: Network, seconds: float | None = None) -> float:
    """Fit a model directly; return the fraction of the training data that was used.

    At most MAX_TOKENS of running text are used. With `seconds`, only as much data is
    used as that time allows, estimated by fitting on TRIAL_TOKENS first.
    """
    dataset = task.dataset
    max_fraction = 1.0 if task.spec.is_table else min(MAX_TOKENS / max(dataset.size, 1), 1.0)
    trial = TRIAL_TOKENS / max(dataset.size, 1)
    if seconds is None or trial >= max_fraction:
        return dataset.fit(network, max_fraction)
    dataset.fit(network, trial / 20)  # keeps one-time costs out of the timing
    start = time.monotonic()
    trial_fraction = dataset.fit(network, trial)
    spent = time.monotonic() - start
    fraction = min(0.7 * (seconds - spent) / spent * trial, max_fraction)
    return dataset.fit(network, fraction) if fraction > trial else trial_fraction


def limit_seconds(settings: TrainingSettings, fraction: float) -> float:
    """Return a fraction of the time budget, if there is one, in seconds; at most MAX_SECONDS."""
    has_deadline = not (settings.steps or settings.epochs)
    budget = 60 * (settings.minutes or DEFAULT_MINUTES)
    return min(fraction * budget, MAX_SECONDS) if has_deadline else MAX_SECONDS
