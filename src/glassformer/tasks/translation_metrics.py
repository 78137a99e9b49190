"""Metrics of translations: BLEU, chrF, its interval, and the worst translations.

Shapes: m resamples.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.tasks.bootstrap import Sample, SampledMetric
from glassformer.tasks.task import Artifacts, Scores

CHRF_ORDER = 6  # the longest n-grams of characters
WORST_TRANSLATIONS = 5


def sample_chrf(scores: Scores, artifacts: Artifacts) -> Sample:
    pairs = [(row["prediction"], row["target"]) for row in scores.rows]
    return Sample(scores.array("index"), np.array([count_ngrams(*pair) for pair in pairs]))


def count_ngrams(prediction: str, target: str) -> list[int]:
    """The statistics of chrF: characters in common, predicted and in the target, for n = 1 to 6."""
    texts = ["".join(text.split()) for text in (prediction, target)]
    statistics = []
    for n in range(1, CHRF_ORDER + 1):
        first, second = (Counter(t[i : i + n] for i in range(len(t) - n + 1)) for t in texts)
        statistics += [(first & second).total(), first.total(), second.total()]
    return statistics


def chrf_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The corpus chrF from summed statistics: m 18 -> m."""
    common, predicted, target = (sums[:, i::3] for i in range(3))
    is_counted = (predicted > 0) & (target > 0)
    orders = is_counted.sum(axis=1).clip(min=1)
    precision = np.where(is_counted, common / predicted.clip(min=1), 0).sum(axis=1) / orders
    recall = np.where(is_counted, common / target.clip(min=1), 0).sum(axis=1) / orders
    scores: NDArray[np.float64] = 5 * precision * recall / (4 * precision + recall).clip(min=1e-16)
    return 100 * scores


CHRF = SampledMetric(sample_chrf, chrf_of_sums)


def translation_details(scores: Scores, artifacts: Artifacts) -> dict[str, Any]:
    """What `evaluate` reports besides the metrics: the translations with the lowest chrF."""
    sample = sample_chrf(scores, artifacts)
    values = chrf_of_sums(sample.statistics.astype(np.float64))
    worst = np.argsort(values, kind="stable")[:WORST_TRANSLATIONS]
    return {
        "worst": [
            {
                "index": int(sample.index[i]),
                "translation": scores.rows[i]["prediction"],
                "chrf": round(float(values[i]), 1),
            }
            for i in worst
        ]
    }


def list_translations(scores: Scores, artifacts: Artifacts) -> dict[int, dict[str, Any]]:
    """The translation of each example of an evaluation, by its index."""
    return {
        int(index): {"translation": row["prediction"]}
        for index, row in zip(scores.array("index"), scores.rows, strict=True)
    }


def compute_bleu(predictions: list[str], targets: list[str]) -> dict[str, Any]:
    """Return sacreBLEU and chrF, and the signature of the BLEU score."""
    from sacrebleu.metrics import chrf as sacrebleu_chrf
    from sacrebleu.metrics.bleu import BLEU

    ideographs = sum(c.isalpha() and ord(c) > 0x2E80 for text in targets for c in text)
    metric = BLEU(tokenize="zh" if ideographs > len("".join(targets)) / 3 else "13a")
    bleu = metric.corpus_score(predictions, [targets])
    chrf = sacrebleu_chrf.CHRF().corpus_score(predictions, [targets])
    signature = str(metric.get_signature())
    return {"bleu": bleu.score, "bleu_signature": signature, "chrf": chrf.score}
