"""Bootstrap intervals: they cover the truth, and pair the same examples."""

import math

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF as SACRE_CHRF

from glassformer.tasks.bootstrap import (
    Sample,
    SampledMetric,
    difference_interval,
    interval,
    sum_blocks,
)
from glassformer.tasks.generate import BITS_PER_BYTE
from glassformer.tasks.task import Artifacts, Scores
from glassformer.tasks.translation_metrics import CHRF, chrf_of_sums, count_ngrams

MEAN = SampledMetric(lambda scores, artifacts: scores, lambda sums: sums[:, 0] / sums[:, 1])


def make_sample(values, index=None):
    values = np.asarray(values, dtype=float)
    index = np.arange(len(values)) if index is None else np.asarray(index)
    return Sample(index, np.column_stack((values, np.ones(len(values)))))


def test_the_interval_of_a_mean_is_about_two_standard_errors():
    rng = np.random.default_rng(0)
    values = rng.random(400) < 0.8
    low, high = interval(MEAN, make_sample(values))
    error = math.sqrt(0.8 * 0.2 / 400)
    assert low < values.mean() < high
    assert (high - low) == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_intervals_cover_the_truth_in_most_samples():
    rng, covered = np.random.default_rng(1), 0
    for _ in range(100):
        low, high = interval(MEAN, make_sample(rng.random(100) < 0.7))
        covered += low <= 0.7 <= high
    assert 86 <= covered <= 100


def test_a_difference_is_paired_by_example():
    rng = np.random.default_rng(2)
    base = rng.normal(size=300)
    first = make_sample(base + 0.1)
    order = rng.permutation(300)
    second = make_sample(base[order], order)  # the same examples in another order
    low, high = difference_interval(MEAN, first, second)
    assert low == pytest.approx(0.1)
    assert high == pytest.approx(0.1)
    shifted = make_sample(base, np.arange(300) + 290)  # ten examples in common
    assert difference_interval(MEAN, first, shifted) is None


def test_few_examples_have_no_interval():
    assert interval(MEAN, make_sample([1.0] * 19)) is None
    assert interval(MEAN, make_sample([1.0] * 20)) == (1.0, 1.0)


def test_a_sample_is_saved_and_loaded(tmp_path):
    sample = make_sample([0.5, 2.0, 3.25], [4, 7, 9])
    sample.save(tmp_path / "sample.npy")
    loaded = Sample.load(tmp_path / "sample.npy")
    assert loaded.index.tolist() == [4, 7, 9]
    assert np.array_equal(loaded.statistics, sample.statistics)


def test_chrf_from_statistics_is_that_of_sacrebleu():
    pairs = [("a cat sat", "the cat sat down"), ("", "empty"), ("dog", "dog"), ("xyz", "a b c d")]
    sums = np.sum([count_ngrams(*pair) for pair in pairs], axis=0, dtype=float)
    predictions, targets = zip(*pairs, strict=True)
    expected = SACRE_CHRF().corpus_score(predictions, [targets]).score
    assert chrf_of_sums(sums[None])[0] == pytest.approx(expected, abs=1e-6)
    rows = [{"prediction": p, "target": t} for p, t in pairs]
    scores = Scores(rows=rows, arrays={"index": [np.arange(4)]})
    assert CHRF.sample(scores, Artifacts()).statistics.sum(axis=0).tolist() == sums.tolist()


def test_text_is_resampled_in_blocks_of_tokens():
    values = np.arange(130.0)[:, None]
    assert sum_blocks(values)[:, 0].tolist() == [sum(range(64)), sum(range(64, 128)), 128 + 129]
    scores = Scores(arrays={"nats": [np.full(100, 2.0), np.full(28, 2.0)]})
    sample = BITS_PER_BYTE.sample(scores, Artifacts({"valid_bytes": 256, "valid_tokens": 128}))
    assert len(sample.index) == 2
    expected = 2 / math.log(2) / 2
    assert BITS_PER_BYTE.value(sample.statistics) == pytest.approx([expected, expected])
