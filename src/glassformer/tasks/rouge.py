"""ROUGE: the overlap of a summary with a reference, as F1 of unigrams, bigrams and the longest
common subsequence (Lin, 2004). Equal to the `rouge-score` package without stemming, except that
each ideograph counts as a word, where that package sees nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.tasks.bootstrap import Sample, SampledMetric
from glassformer.tasks.task import Artifacts, Scores
from glassformer.text.sentences import IDEOGRAPHS

WORD = re.compile(rf"[a-z0-9]+|[{IDEOGRAPHS}]")
NAMES = ("rouge_1", "rouge_2", "rouge_l")
WORST_SUMMARIES = 5


def rouge(prediction: str, target: str) -> tuple[float, float, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L, each from 0 to 1."""
    first, second = (WORD.findall(text.lower()) for text in (prediction, target))
    common = longest_common_subsequence(first, second)
    longest = f1(common, len(first), len(second))
    return ngram_overlap(first, second, 1), ngram_overlap(first, second, 2), longest


def ngram_overlap(first: Sequence[str], second: Sequence[str], n: int) -> float:
    counts = [
        Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (first, second)
    ]
    common = (counts[0] & counts[1]).total()
    return f1(common, counts[0].total(), counts[1].total())


def f1(common: int, predicted: int, target: int) -> float:
    return 2 * common / (predicted + target) if common else 0.0


def longest_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest sequence of words that both texts have, with gaps."""
    previous = [0] * (len(second) + 1)
    for word in first:
        row = [0]
        for j, other in enumerate(second):
            row.append(previous[j] + 1 if word == other else max(previous[j + 1], row[j]))
        previous = row
    return previous[-1]


def mean_rouge(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean of each score over rows with a prediction and a target."""
    values = np.array([rouge(row["prediction"], row["target"]) for row in rows]).reshape(-1, 3)
    return dict(zip(NAMES, values.mean(axis=0).tolist(), strict=True))


def sample_rouge_l(scores: Scores, artifacts: Artifacts) -> Sample:
    """ROUGE-L of each example, and 1 to count it."""
    values = [rouge(row["prediction"], row["target"])[2] for row in scores.rows]
    return Sample(scores.array("index"), np.column_stack((values, np.ones(len(values)))))


def mean_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = sums[:, 0] / sums[:, 1]
    return means


ROUGE_L = SampledMetric(sample_rouge_l, mean_of_sums)


def summary_details(scores: Scores, artifacts: Artifacts) -> dict[str, Any]:
    """What `evaluate` reports besides the metrics: the summaries with the lowest ROUGE-L."""
    sample = sample_rouge_l(scores, artifacts)
    values = sample.statistics[:, 0]
    worst = np.argsort(values, kind="stable")[:WORST_SUMMARIES]
    return {
        "worst": [
            {
                "index": int(sample.index[i]),
                "summary": scores.rows[i]["prediction"],
                "rouge_l": round(float(values[i]), 3),
            }
            for i in worst
        ]
    }


def list_summaries(scores: Scores, artifacts: Artifacts) -> dict[int, dict[str, Any]]:
    """The summary of each example of an evaluation, by its index."""
    return {
        int(index): {"predicted_summary": row["prediction"]}
        for index, row in zip(scores.array("index"), scores.rows, strict=True)
    }
