"""What the end of a run says about its curve and its baseline."""

import numpy as np
import pytest

from glassformer.tasks.bootstrap import Sample
from glassformer.tasks.task import METRICS
from glassformer.training.baseline import Comparison, load_baseline_sample
from glassformer.training.diagnosis import Diagnosis, FitState, diagnose, estimate_gain
from glassformer.training.run import Run

STEPS = [100, 200, 300, 400, 500, 600, 700, 800]


def diagnose_losses(losses, epochs=5.0, steps=None):
    steps = steps or STEPS[: len(losses)]
    return diagnose(steps, losses, epochs=epochs, minutes=2.3, run="runs/x")


def test_a_falling_loss_is_undertrained_and_extrapolated():
    losses = [3 - 0.2 * (i + 1) ** 0.5 for i in range(8)]
    found = diagnose_losses(losses)
    assert found.state is FitState.UNDERTRAINED
    assert found.text.endswith("glass resume runs/x --minutes 3")
    assert "twice the time would lower it by about 0.17 to 2.26" in found.text


def test_a_rising_loss_is_overfitting_and_more_time_is_not_advised():
    found = diagnose_losses([0.8, 0.6, 0.52, 0.6, 0.7, 0.8, 0.9, 0.96])
    assert found.state is FitState.OVERFITTING
    assert "rose from 0.52 at step 300 to 0.96" in found.text
    assert "resume" not in found.text


def test_a_flat_loss_has_converged():
    found = diagnose_losses([0.9, 0.6, 0.5, 0.501, 0.499, 0.5, 0.5, 0.499])
    assert found.state is FitState.CONVERGED
    assert "resume" not in found.text


def test_noise_of_a_loss_of_almost_zero_is_not_overfitting():
    found = diagnose_losses([0.1, 0.0, 1e-17, 2e-17, 0.0, 1e-17, 2e-17, 2e-17])
    assert found.state is FitState.CONVERGED


def test_a_network_that_has_not_seen_all_data_had_no_fair_chance():
    rising = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
    found = diagnose_losses(rising, epochs=0.3)
    assert found.state is FitState.UNDERTRAINED
    assert "trained on 30% of the data only" in found.text


def test_few_evaluations_do_not_tell():
    assert diagnose_losses([0.5, 0.4]).state is FitState.UNDERTRAINED
    assert "too few evaluations" in diagnose_losses([0.5, 0.4]).text
    assert estimate_gain([0, 5], [1.0, 0.9]) is None


def test_the_gain_is_the_slope_per_doubling():
    steps = [0, 100, 400, 566, 800]
    assert estimate_gain(steps, [9.0, 4.0, 3.5, 3.25, 3.0]) == pytest.approx(0.5, rel=1e-3)
    assert estimate_gain(steps, [9.0, 1.0, 1.5, 2.0, 2.5]) == 0.0


# --- the baseline ---------------------------------------------------------------------------------


def compare(value, baseline, difference, **more):
    metrics = {"accuracy": baseline, "options": "--model nb_svm", **more}
    return Comparison(METRICS["accuracy"], value, metrics, "NB-SVM", difference)


def test_a_difference_whose_interval_includes_zero_is_not_significant():
    text = compare(0.87, 0.86, (-0.01, 0.03)).summarize()
    assert text == (
        "not significantly different from the baseline (NB-SVM): accuracy 0.87 vs. 0.86 "
        "(difference -0.01 to +0.03, 95% confidence interval)"
    )
    assert compare(0.9, 0.8, (0.05, 0.15)).summarize().startswith("better than the baseline")


def test_the_baseline_is_recommended_only_after_a_fair_chance():
    worse = compare(0.7, 0.8, (-0.15, -0.05))
    undertrained = Diagnosis(FitState.UNDERTRAINED, "")
    assert "for now, use the baseline (--model nb_svm)" in worse.summarize(undertrained)
    converged = Diagnosis(FitState.CONVERGED, "")
    assert "for this data, the baseline is the better model" in worse.summarize(converged)


def test_a_baseline_fitted_on_a_part_of_the_data_says_so():
    text = compare(0.9, 0.8, None, fraction=0.12).summarize()
    assert text == "better than the baseline (NB-SVM on 12% of the data): accuracy 0.9 vs. 0.8"


def test_a_damaged_sample_of_the_baseline_costs_only_the_interval(tmp_path):
    run = Run(tmp_path)
    assert load_baseline_sample(run, 2) is None
    (tmp_path / "baseline").mkdir()
    file = tmp_path / "baseline" / "sample.npy"
    Sample(np.arange(3), np.ones((3, 2))).save(file)
    assert load_baseline_sample(run, 2).statistics.shape == (3, 2)
    assert load_baseline_sample(run, 18) is None
    for content in (b"", b"\x93NUMPY damaged", np.float64(1.0).tobytes()):
        file.write_bytes(content)
        assert load_baseline_sample(run, 2) is None
    np.save(file, np.array(1.0))
    assert load_baseline_sample(run, 2) is None
