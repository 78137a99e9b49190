"""How certain a metric is: bootstrap intervals over the examples that it was computed from.

A metric is computed from sums of a few statistics of each example, such as correct predictions and
predictions. So a resample of the examples needs only new sums. Shapes: n examples, k statistics,
m resamples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LEVEL = 0.95  # probability that the interval contains the value of the metric on unlimited data
MIN_EXAMPLES = 20  # for an interval
BLOCK = 64  # tokens of running text that are resampled together, because neighbors are alike

Floats = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """The statistics of each example."""

    index: NDArray[np.int64]  # n: the position of the example in the data
    statistics: Floats  # n k

    def save(self, file: Path) -> None:
        np.save(file, np.column_stack((self.index, self.statistics)))

    @classmethod
    def load(cls, file: Path) -> "Sample":
        values: Floats = np.load(file, allow_pickle=False)
        return cls(values[:, 0].astype(np.int64), values[:, 1:])


@dataclass(frozen=True)
class SampledMetric:
    """How to get the metric of a task from the examples of an evaluation."""

    sample: Callable[[Any, Any], Sample]  # takes the scores and the artifacts
    value: Callable[[Floats], Floats]  # from sums of the statistics (m k) to the metric (m)


def interval(metric: SampledMetric, sample: Sample) -> Interval | None:
    """The interval of a metric; None if there are too few examples."""
    if len(sample.index) < MIN_EXAMPLES:
        return None
    return quantiles(metric.value(resample(sample.statistics)))


def select_common(first: Sample, second: Sample) -> tuple[Sample, Sample]:
    """The examples that are in both samples, in the same order."""
    index, i, j = np.intersect1d(first.index, second.index, return_indices=True)
    return Sample(index, first.statistics[i]), Sample(index, second.statistics[j])


def difference_interval(metric: SampledMetric, first: Sample, second: Sample) -> Interval | None:
    """The interval of how much higher the metric is in the first sample than in the second.

    Only examples in both samples count; None if they are too few.
    """
    first, second = select_common(first, second)
    if len(first.index) < MIN_EXAMPLES:
        return None
    k = first.statistics.shape[1]
    sums = resample(np.column_stack((first.statistics, second.statistics)))
    return quantiles(metric.value(sums[:, :k]) - metric.value(sums[:, k:]))


def resample(statistics: Floats, seed: int = 0) -> Floats:
    """Sums over examples drawn with replacement: n k -> m k."""
    rng = np.random.default_rng(seed)
    n = len(statistics)
    counts = (np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(RESAMPLES))
    return np.stack([count @ statistics for count in counts])


def quantiles(values: Floats) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def sum_blocks(values: Floats) -> Floats:
    """Sums over blocks of consecutive tokens: n k -> blocks k."""
    return np.add.reduceat(values, np.arange(0, len(values), BLOCK), axis=0)
