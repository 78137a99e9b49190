"""Exact values in all parts of training: budgets, schedules, choices, files and messages."""

import contextlib
import copy
import json
import math
import re
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cases import CASES
from glassformer import MODELS, GlassError, checkpoint
from glassformer.core.config import read_toml
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.nn.dropout import Dropout
from glassformer.tasks import TASKS
from glassformer.tasks.bootstrap import Sample, SampledMetric
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.task import METRICS, Scores, Task
from glassformer.text.plain import Characters
from glassformer.training import (
    autotune,
    baseline,
    compare,
    compare_report,
    evaluate,
    fitting,
    memory,
    plots,
    prior,
    recovery,
    report,
    resume,
    setup,
    start,
    train,
)
from glassformer.training.autotune import Autotune, UnsupportedPrecisionError, bfloat16_ratio
from glassformer.training.budget import Deadline, StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluator
from glassformer.training.interrupt import stop_on_signal
from glassformer.training.memory import ContextTooLongError, peak_memory, total_memory
from glassformer.training.optimizers import adamw, freeze_parameters, layers_after
from glassformer.training.recipe import Recipe, read_recipe
from glassformer.training.request import Request, max_threads, split_options
from glassformer.training.resume import extend_budget, load_trainer
from glassformer.training.run import Run
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.setup import make_budget
from glassformer.training.start import (
    Start,
    add_data_sizes,
    make_config,
    resolve_architecture,
    scale_to_parameters,
)
from glassformer.training.step import State, Step, StepResult
from glassformer.training.trainer import Trainer


class Clock:
    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now


def deadline(tmp_path, clock, seconds=100.0, **options):
    return Deadline(seconds, tmp_path / "schedule.log", clock=clock, **options)


def cpu_settings(**options):
    return TrainingSettings(**{"device": "cpu", "precision": "float32", **options})


def open_task(name, file, folder):
    folder.mkdir(exist_ok=True)
    spec = TASKS[name]
    return spec.open(spec.prepare(DataRequest(files=(file,)), folder, NullReporter()), folder)


def tiny_trainer(tmp_path, book, reporter=None, baseline=None, **settings):
    """Return a trainer whose steps take milliseconds."""
    run = Run.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
    task = open_task("generate", book, run.cache)
    options = cpu_settings(**{"steps": 20, "batch_size": 2, "eval_limit": 40, **settings})
    torch.manual_seed(0)
    kind = MODELS["gpt2"]
    sizes = {"context": 8, "dim": 8, "depth": 1, "heads": 2, "dropout": 0.0}
    network = kind(kind.Config(vocab=task.artifacts.tokenizer.vocab, **sizes))
    batches = task.dataset.train_batches(options.batch, network.context, options.seed)
    step, budget = Step(network, task.objective, options), StepBudget(options.steps)
    checkpointer, reporter = Checkpointer(run, task), reporter or NullReporter()
    return Trainer(step, task, batches, budget, checkpointer, reporter, baseline)


def take_step(trainer):
    return trainer.take_step(trainer.budget.begin(trainer.state.step))


def weights_of(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()]).clone()


# --- budgets --------------------------------------------------------------------------------------


def test_every_tenth_of_the_steps_ends_with_the_step_that_completes_it():
    steps = [StepBudget(25).begin(step) for step in range(25)]
    ends = [step + 1 for step, progress in enumerate(steps) if progress.ends_tenth]
    assert ends == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    assert all(progress.should_evaluate == progress.ends_tenth for progress in steps)
    assert all(StepBudget(7).begin(step).ends_tenth for step in range(7))
    assert not StepBudget(100).begin(0).ends_tenth


def test_a_step_budget_estimates_the_time_left():
    budget = StepBudget(40)
    assert budget.estimate_steps(10, seconds_per_step=9.0) == 40
    assert budget.seconds_left(10, seconds_per_step=0.5) == 15.0


def test_a_deadline_reserves_time_for_the_end_but_at_most_a_quarter(tmp_path):
    assert deadline(tmp_path, Clock()).reserve == 3.0
    short = deadline(tmp_path, Clock(), seconds=8.0)
    assert short.reserve == 2.0
    long = deadline(tmp_path, Clock(), seconds=1000.0)
    long.reserve_time(12.0, 20.0)
    assert long.reserve == 12 + 20 + 3
    long.reserve_time(12.0, 500.0)
    assert long.reserve == 12 + 75 + 3
    long.reserve_time(900.0, 0.0)
    assert long.reserve == 250


def test_a_deadline_estimates_the_number_of_steps(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    clock.now += 10
    assert budget.spent == 10
    assert budget.remaining == 90
    assert budget.seconds_left(5, seconds_per_step=3.0) == 90
    # three seconds are reserved for the end
    assert budget.estimate_steps(5, seconds_per_step=3.0) == 5 + 29
    clock.now += 89
    assert budget.estimate_steps(30, seconds_per_step=3.0) == 30
    clock.now += 89
    assert budget.remaining == 0


def test_an_evaluation_waits_until_it_is_affordable(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    budget.reserve_time(0.9, 0.0)
    seen = []
    for step, at in enumerate([0, 11, 21, 31, 32]):
        clock.now = 100.0 + at
        progress = budget.begin(step)
        seen.append((progress.ends_tenth, progress.should_evaluate))
        if progress.should_evaluate:
            budget.record_evaluation(0.9, 0.0)
    assert seen == [(False, False), (True, False), (True, True), (True, True), (False, False)]
    assert budget.total_eval_seconds == pytest.approx(1.8)
    lines = budget.log.read_text().splitlines()
    steps, fractions, evaluated = zip(*(line.split() for line in lines), strict=True)
    assert (steps, evaluated) == (("0", "1", "2", "3", "4"), ("0", "0", "1", "1", "0"))
    assert float(fractions[1]) == pytest.approx(11 / (100 - 3.9))


def test_earlier_evaluations_count_against_the_time_for_evaluations(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    budget.total_eval_seconds, budget.eval_seconds = 1.0, 0.6
    clock.now += 21  # 1.6 is more than 0.075 of 21 seconds
    assert not budget.begin(0).should_evaluate
    clock.now += 10  # but less than 0.075 of 31 seconds
    assert budget.begin(1).should_evaluate


def test_the_position_in_the_schedule_never_decreases(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    budget.reserve_time(20.0, 0.0)
    clock.now += 40
    assert budget.begin(0).position == pytest.approx(1000 * 40 / 77)
    budget.reserve_time(0.0, 0.0)
    assert budget.begin(1).position == pytest.approx(1000 * 40 / 77)


def test_logged_steps_are_replayed_even_after_the_deadline(tmp_path):
    (tmp_path / "schedule.log").write_text("0 0.0 0\n1 0.5 1\n2 0.9 0\n")
    budget = deadline(tmp_path, Clock(), spent=500.0)
    assert [budget.is_spent(step) for step in range(4)] == [False, False, False, True]
    budget.resume_at(1)
    progress = budget.begin(1)
    assert (progress.position, progress.ends_tenth, progress.should_evaluate) == (500.0, True, True)
    assert not budget.begin(2).should_evaluate
    assert len((tmp_path / "schedule.log").read_text().splitlines()) == 3


def test_a_tenth_that_ended_before_a_stop_does_not_end_again(tmp_path):
    (tmp_path / "schedule.log").write_text("0 0.0 0\n1 0.5 1\n")
    budget = deadline(tmp_path, Clock(), spent=52.0)
    budget.resume_at(2)
    assert not budget.begin(2).ends_tenth
    budget.resume_at(0)
    assert (budget.fraction, budget.tenth) == (pytest.approx(52 / 97), 5)


def test_a_budget_continues_from_a_state(tmp_path):
    run = Run.create(tmp_path / "run")
    network = CASES["gpt2"].network
    state = State(step=0, evals=4, eval_seconds=2.0, setup_seconds=6.0, seconds=9.0)
    found = make_budget(network, TrainingSettings(minutes=2.0), run, state, 10)
    assert found.seconds == 120
    assert found.spent == pytest.approx(15, abs=5)
    assert found.spent >= 15
    assert (found.setup_seconds, found.total_eval_seconds, found.eval_seconds) == (6.0, 2.0, 0.5)
    assert found.log == run.path / "schedule.log"
    assert found.max_steps is None
    for epochs, max_steps in ((2.5, 500), (60.05, 601)):  # never fewer than 500 steps
        settings = TrainingSettings(minutes=2.0, max_epochs=epochs)
        assert make_budget(network, settings, run, state, 10).max_steps == max_steps
    assert make_budget(network, TrainingSettings(steps=7), run, state, 10) == StepBudget(7)
    fitted = make_budget(CASES["markov"].network, TrainingSettings(minutes=1.0), run, state, 10)
    assert fitted == StepBudget(0)


# --- the learning rate and the settings -----------------------------------------------------------


def test_the_learning_rate_rises_linearly_during_the_warmup():
    settings = TrainingSettings(lr=11.0, warmup=0.1)
    assert [lr_at(step, 100, settings) for step in (0, 4, 9, 10)] == pytest.approx([1, 5, 10, 11])


@pytest.mark.parametrize(
    ("total", "warmup", "warm"),
    [(20, 0.05, 4), (100, 0.05, 10), (1000, 0.05, 50), (30, 0.5, 15), (4, 0.05, 0), (100, 0.0, 0)],
)
def test_a_warmup_lasts_at_least_ten_steps_or_a_fifth_of_a_short_run(total, warmup, warm):
    settings = TrainingSettings(lr=1.0, warmup=warmup, schedule="constant")
    rates = [lr_at(step, total, settings) for step in range(total)]
    assert rates.index(max(rates)) == warm
    assert rates[0] == pytest.approx(1 / (warm + 1))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", {0: 1.0, 25: 0.2 + 0.8 * (2 + 2**0.5) / 4, 50: 0.6, 100: 0.2}),
        ("linear", {0: 1.0, 25: 0.8, 50: 0.6, 100: 0.2}),
        ("constant", {0: 1.0, 50: 1.0, 80: 1.0, 90: 0.6, 95: 0.4, 100: 0.2}),
    ],
)
def test_the_learning_rate_decays_to_its_minimum(schedule, expected):
    settings = TrainingSettings(lr=2.0, warmup=0.0, schedule=schedule, min_lr_ratio=0.2)
    for position, share in expected.items():
        assert lr_at(position, 100, settings) == pytest.approx(2 * share)


def test_the_decay_takes_the_entire_budget_after_the_warmup():
    settings = TrainingSettings(lr=1.0, warmup=0.2, schedule="linear", min_lr_ratio=0.0)
    assert lr_at(20, 100, settings) == pytest.approx(1.0)
    assert lr_at(60, 100, settings) == pytest.approx(0.5)
    assert lr_at(100, 100, settings) == pytest.approx(0.0)


def test_default_settings_are_as_documented():
    settings = TrainingSettings()
    expected = {
        "steps": None, "epochs": None, "minutes": None, "accumulate": 1, "lr": 1e-3,
        "warmup": 0.05, "schedule": "cosine", "min_lr_ratio": 0.1, "weight_decay": 0.1,
        "layer_lr_decay": 1.0, "lora": 0, "optimizer": "adamw", "beta2": 0.99, "clip": 1.0,
        "label_smoothing": 0.0, "ema_decay": 0.0, "baseline": True, "best_metric": "loss",
        "patience": None, "precision": "auto", "checkpointing": False, "shrink_on_oom": False,
        "freeze": (), "device": "auto", "seed": 0, "batch_size": None, "batch_tokens": None,
        "tensorboard": False, "threads": None,
    }  # fmt: skip
    assert {name: getattr(settings, name) for name in expected} == expected
    assert settings.batch == 32
    assert TrainingSettings(batch_size=5).batch == 5
    assert TrainingSettings(batch_tokens=700).batch == 700


@pytest.mark.parametrize(
    "both",
    [{"steps": 1, "epochs": 1.0}, {"epochs": 1.0, "minutes": 1.0}, {"lora": 2, "freeze": ("a",)}],
)
def test_settings_that_exclude_each_other_are_rejected(both):
    with pytest.raises(GlassError, match=r"only one budget|lora and freeze cannot be combined"):
        TrainingSettings(**both)


# --- evaluations ----------------------------------------------------------------------------------


class FakeTask:
    """A task whose evaluations return the given values."""

    name = "toy"

    def __init__(self, values, name="loss", size=500, final=None, limit=100):
        self.values, self.metric, self.limits, self.previews = list(values), name, [], 0
        self.spec = SimpleNamespace(eval_limit=limit, final_eval_limit=final)
        self.dataset = SimpleNamespace(eval_size=size)

    def evaluate(self, network, limit=None, context=None, *, calibrate=False):
        self.limits.append(limit)
        value = self.values.pop(0) if self.values else 0.0
        return {self.metric: value}, Scores()

    def fit_mixture_weights(self, network, limit):
        self.fitted_limit = limit

    def preview(self, network):
        self.previews += 1
        return "preview"


def evaluate_values(values, name="loss", **settings):
    task, state = FakeTask(values, name), State()
    evaluator = Evaluator(task, TrainingSettings(best_metric=name, **settings))
    network = copy.deepcopy(CASES["gpt2"].network)
    found = []
    for _ in range(len(values)):
        result = evaluator.evaluate(network, state)
        found.append((result.is_best, state.best, state.evals, state.evals_since_best))
    return found, task


def test_a_smaller_loss_is_better_and_an_equal_one_is_not():
    found, task = evaluate_values([3.0, 4.0, 3.0, 2.0])
    assert found == [(True, 3.0, 1, 0), (False, 3.0, 2, 1), (False, 3.0, 3, 2), (True, 2.0, 4, 0)]
    assert task.limits == [100] * 4
    assert task.previews == 4


def test_a_higher_accuracy_is_better():
    found, _ = evaluate_values([0.5, 0.4, 0.6], "accuracy")
    assert [best for best, *_ in found] == [True, False, True]
    higher = {
        *("accuracy", "f1", "exact", "bleu", "chrf", "next_accuracy", "recognized"),
        *("rouge_1", "rouge_2", "rouge_l", "hit_rate_10", "ndcg_10", "token_accuracy"),
    }
    assert {name for name, metric in METRICS.items() if metric.higher_is_better} == higher
    assert METRICS.keys() - higher == {"loss", "perplexity", "bits_per_byte", "frechet", "rmse"}


def test_a_metric_that_is_not_finite_is_never_best():
    found, task = evaluate_values([math.nan, math.inf, 5.0, math.nan])
    assert [best for best, *_ in found] == [False, False, True, False]
    assert [since for *_, since in found] == [1, 2, 0, 1]
    assert found[-1][1] == 5.0
    assert task.previews == 1  # there is no preview if the metric is not finite


def test_eval_limit_sets_the_size_of_an_evaluation():
    _, task = evaluate_values([1.0], eval_limit=7)
    assert task.limits == [7]


@pytest.mark.parametrize(
    ("evals", "since", "patience", "stops"),
    [
        (5, 4, None, False), (5, 5, None, True), (12, 5, None, False), (12, 6, None, True),
        (40, 19, None, False), (40, 20, None, True), (9, 9, 0, False), (3, 1, 2, False),
        (3, 2, 2, True), (3, 3, 2, True), (2, 1, 1, True),
    ],
)  # fmt: skip
def test_patience_is_as_set_or_half_of_the_evaluations_so_far(evals, since, patience, stops):
    evaluator = Evaluator(FakeTask([]), TrainingSettings(patience=patience))
    state = State(evals=evals, evals_since_best=since, best_step=1)
    assert evaluator.should_stop_early(state) is stops
    if patience is None:  # the initial weights are the best so far
        assert not evaluator.should_stop_early(State(evals=evals, evals_since_best=since))


@pytest.mark.parametrize(
    ("seconds", "final", "limit"),
    [
        (None, None, None), (None, 300, 300), (9.0, None, 450), (9.0, 300, 300),
        (4.0, 300, 200), (0.5, 300, 100), (-2.0, None, 100),
    ],
)  # fmt: skip
def test_the_final_evaluation_uses_as_much_as_fits_but_no_less_than_earlier_ones(
    seconds, final, limit
):
    task = FakeTask([1.0], final=final)
    evaluator = Evaluator(task, TrainingSettings())
    state = State(evals=2, eval_seconds=4.0)  # two seconds per 100 units: 0.02 each
    assert evaluator.seconds_per_unit(state) == pytest.approx(0.02)
    evaluator.evaluate_at_end(CASES["gpt2"].network, seconds, state)
    assert task.limits == [limit]


def test_seconds_per_unit_count_only_the_data_that_exists():
    evaluator = Evaluator(FakeTask([], size=40), TrainingSettings())
    assert evaluator.seconds_per_unit(State(evals=1, eval_seconds=2.0)) == pytest.approx(0.05)
    assert evaluator.seconds_per_unit(State()) == 0
    assert [evaluator.count_units(limit) for limit in (None, 7, 99)] == [40, 7, 40]


def test_error_names_the_unknown_metric():
    with pytest.raises(GlassError, match="did you mean 'accuracy'"):
        Evaluator(FakeTask([]), TrainingSettings(best_metric="acuracy")).metric  # noqa: B018
    evaluator = Evaluator(FakeTask([]), TrainingSettings(best_metric="bleu"))
    with pytest.raises(GlassError, match="toy has no metric 'bleu'; available: loss"):
        evaluator.metric_value({"loss": 1.0, "x": 2})


def test_only_evaluations_during_training_calibrate_the_model():
    """The final evaluation must not fit anything to the data that it reports on."""
    task, calibrated = FakeTask([1.0, 1.0]), []
    evaluate = task.evaluate

    def record(network, limit=None, context=None, *, calibrate=False):
        calibrated.append(calibrate)
        return evaluate(network, limit, context)

    task.evaluate = record
    evaluator, network = Evaluator(task, TrainingSettings()), copy.deepcopy(CASES["gpt2"].network)
    evaluator.evaluate(network, State())
    evaluator.evaluate_at_end(network, None, State())
    assert calibrated == [True, False]


# --- settings that are chosen by timing -----------------------------------------------------------


class FakeAutotune:
    """An Autotune whose steps take the given times, by precision."""

    def __init__(self, monkeypatch, times, ratio=0.5):
        self.calls = []
        monkeypatch.setattr(autotune, "bfloat16_ratio", lambda _network: ratio)

        def time_step(_self, settings, rounds):
            self.calls.append((settings.precision, rounds))
            if isinstance(times[settings.precision], Exception):
                raise times[settings.precision]
            return times[settings.precision]

        monkeypatch.setattr(Autotune, "time_step", time_step)
        batches = SimpleNamespace(per_epoch=7)
        self.autotune = Autotune(CASES["gpt2"].network, FakeTask([]), batches, NullReporter())

    def __call__(self, **settings):
        self.calls.clear()
        return self.autotune.decide(TrainingSettings(**settings))


@pytest.mark.parametrize(("half", "chosen"), [(0.85, "bfloat16"), (0.95, "float32")])
def test_half_precision_must_be_clearly_faster(monkeypatch, half, chosen):
    measured = FakeAutotune(monkeypatch, {"float32": 1.0, "bfloat16": half})
    assert measured(steps=5).precision == chosen
    assert measured.calls == [("float32", 1), ("bfloat16", 2), ("float32", 2)]


def test_only_a_small_part_of_a_deadline_is_spent_on_timing_precisions(monkeypatch):
    measured = FakeAutotune(monkeypatch, {"float32": 1.0, "bfloat16": 0.5})
    assert measured(minutes=3.0, eval_limit=1).precision == "bfloat16"  # 4 s exceed 2%, 3.6 s
    assert measured.calls == [("float32", 1), ("bfloat16", 1)]
    measured(minutes=4.0, eval_limit=1)  # 2% are 4.8 s
    assert measured.calls == [("float32", 1), ("bfloat16", 2), ("float32", 2)]


def test_half_precision_that_is_slow_or_unsupported_is_not_chosen(monkeypatch):
    slow = FakeAutotune(monkeypatch, {"float32": 1.0}, ratio=1.5)
    assert slow(steps=5).precision == "float32"
    assert slow.calls == []
    slow(minutes=1.0, eval_limit=1)
    assert slow.calls == [("float32", 1)]
    slow(steps=5, shrink_on_oom=True)
    assert slow.calls == [("float32", 1)]
    broken = FakeAutotune(
        monkeypatch, {"float32": 1.0, "bfloat16": UnsupportedPrecisionError("no kernel")}
    )
    assert broken(steps=5).precision == "float32"


def test_a_given_precision_is_tried_if_it_may_fail(monkeypatch):
    measured = FakeAutotune(monkeypatch, {"float32": 1.0, "bfloat16": 9.0})
    assert measured(steps=5, precision="bfloat16").precision == "bfloat16"
    assert measured.calls == [("bfloat16", 1)]
    assert measured(steps=5, precision="float32").precision == "float32"
    assert measured.calls == []
    measured(minutes=1.0, eval_limit=1, precision="float32")
    assert measured.calls == [("float32", 1)]


def test_epochs_are_converted_to_steps_and_the_default_budget_is_five_minutes(monkeypatch):
    measured = FakeAutotune(monkeypatch, {"float32": 1.0})
    found = measured(epochs=2.5, precision="float32")
    assert (found.steps, found.epochs, found.minutes) == (18, None, None)  # 17.5 batches
    assert measured(epochs=0.01, precision="float32").steps == 1
    assert measured(precision="float32", eval_limit=1).minutes == 5.0
    found = measured(steps=4, precision="float32")
    assert (found.steps, found.minutes, found.eval_limit) == (4, None, None)
    assert found.threads == torch.get_num_threads()
    assert measured(steps=4, precision="float32", threads=3).threads == 3


@pytest.mark.parametrize(("took", "limit"), [(0.0, 100), (0.5, 60), (5.0, 25)])
def test_an_evaluation_takes_about_a_hundredth_of_a_deadline(monkeypatch, took, limit):
    clock, task = Clock(), FakeTask([])
    measured = FakeAutotune(monkeypatch, {"float32": 1.0})
    evaluate = task.evaluate

    def slow(network, limit=None, context=None):
        clock.now += took
        return evaluate(network, limit, context)

    task.evaluate = slow
    monkeypatch.setattr("glassformer.training.autotune.time.perf_counter", clock)
    tuner = replace(measured.autotune, task=task)
    found = tuner.decide(TrainingSettings(minutes=2.0, precision="float32"))
    assert task.limits == [25]  # a quarter of a full evaluation is timed
    assert found.eval_limit == limit  # what fits into 1.2 seconds; 60 at 0.02 seconds each


# --- recovery from failed steps -------------------------------------------------------------------


class FakeStep:
    """A step that fits in memory in `count` or more micro-batches of at most `context` tokens."""

    def __init__(self, count=1, context=1000, **settings):
        self.count, self.context, self.tried = count, context, []
        self.settings = TrainingSettings(**settings)
        self.network = SimpleNamespace(context=64)

    def fits_in_memory(self, batch, count):
        length = next(iter(batch.values())).shape[1]
        self.tried.append((count, length))
        return count >= self.count and length <= self.context


def find_count(step, rows=12, length=64):
    def at(_step):
        return {"ids": torch.zeros(rows, length)}

    task = SimpleNamespace(
        train_batches=lambda network, batch, seed, context: SimpleNamespace(
            at=lambda _: {"ids": torch.zeros(rows, context)}
        )
    )
    return recovery.find_micro_batch_count(
        step, task, at(0), NullReporter(), "there is no checkpoint"
    )


def test_micro_batches_are_doubled_until_they_fit():
    step = FakeStep(count=5, shrink_on_oom=True)
    assert find_count(step) == 8
    assert [count for count, _ in step.tried] == [2, 4, 8]
    step = FakeStep(count=12, accumulate=3, shrink_on_oom=True)
    assert find_count(step) == 12
    assert [count for count, _ in step.tried] == [6, 12]
    step = FakeStep(count=11, accumulate=8, shrink_on_oom=True)
    assert find_count(step) == 12  # at most the number of rows


def test_the_search_for_micro_batches_does_not_change_the_random_state(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    for module in trainer.network.modules():
        if isinstance(module, Dropout):
            module.p = 0.5
    tuner = Autotune(trainer.network.train(), trainer.task, trainer.batches, NullReporter())
    weights, rng_state = weights_of(trainer.network), torch.get_rng_state()
    found = tuner.choose_micro_batches(replace(trainer.settings, shrink_on_oom=True))
    assert found == replace(trainer.settings, shrink_on_oom=True, accumulate=2)  # 2 rows
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert torch.equal(weights_of(trainer.network), weights)


def test_the_error_without_shrink_on_oom_names_the_number_of_micro_batches():
    message = r"12 x 64 .*--set train.accumulate=4; there is no checkpoint"
    with pytest.raises(GlassError, match=message):
        find_count(FakeStep(count=3))


@pytest.mark.parametrize(("context", "max_context"), [(40, 32), (16, 16), (9, 8), (7, 0)])
def test_the_error_names_the_longest_halved_context_that_fits(context, max_context):
    with pytest.raises(ContextTooLongError) as error:
        find_count(FakeStep(context=context, shrink_on_oom=True))
    assert error.value.max_context == max_context
    advice = "no shorter context fits either"
    if max_context:
        advice = f"a context of {max_context} fits: --set model.context={max_context}"
    assert str(error.value).startswith("out of memory with one sequence of 64 tokens; ")
    assert advice in str(error.value)


def test_three_bad_steps_in_a_row_roll_back_and_the_second_time_raise(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book, reporter)
    trainer.save()
    for skipped in (1, 2):
        trainer.state.consecutive_skips = skipped
        recovery.handle_skipped_step(trainer, "the loss")
    assert trainer.state.lr_scale == 1
    trainer.state.step, trainer.state.consecutive_skips = 9, 3
    recovery.handle_skipped_step(trainer, "the loss")
    assert (trainer.state.lr_scale, trainer.state.consecutive_skips, trainer.state.step) == (
        0.3,
        0,
        0,
    )
    assert reporter.lines[-1] == (
        "3 steps in a row had a non-finite loss, gradient or weight: back to step 0, with a "
        "learning rate of 3.0e-04"
    )
    saved = json.loads((trainer.run.path / "last" / "training.json").read_text())
    assert saved["lr_scale"] == 0.3
    trainer.state.consecutive_skips = 3
    with pytest.raises(GlassError, match=r"train\.lr=1\.0e-04"):
        recovery.handle_skipped_step(trainer, "the loss")


def test_the_learning_rate_is_multiplied_by_the_scale_of_the_state(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, warmup=0.0, lr=0.01)
    trainer.state.lr_scale = 0.5
    assert take_step(trainer).lr == pytest.approx(0.005)


def test_a_successful_step_resets_the_count_of_skipped_steps(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.state.consecutive_skips = 2
    result = take_step(trainer)
    assert (trainer.state.consecutive_skips, trainer.state.predictions) == (0, 16)
    assert result.count == 16
    weight = trainer.network.blocks[0].attention.query.weight
    weight.register_hook(lambda gradient: gradient * math.nan)
    assert take_step(trainer).non_finite
    assert (trainer.state.consecutive_skips, trainer.state.predictions, trainer.state.step) == (
        1,
        16,
        2,
    )


# --- a step ---------------------------------------------------------------------------------------


def test_a_step_returns_the_mean_loss_before_the_update(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, accumulate=2)
    batch = trainer.batches.at(0)
    with torch.no_grad():
        logits = trainer.network(batch["ids"])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    result = take_step(trainer)
    assert result.loss == pytest.approx(float(expected), rel=1e-5)
    assert all(p.grad is None for p in trainer.network.parameters())


def test_label_smoothing_changes_the_loss(tmp_path, book):
    loss_without = take_step(tiny_trainer(tmp_path, book)).loss
    trainer = tiny_trainer(tmp_path, book, label_smoothing=0.5)
    batch = trainer.batches.at(0)
    with torch.no_grad():
        logs = trainer.network(batch["ids"]).log_softmax(dim=-1)
    answer = -logs.gather(2, batch["targets"][..., None]).mean()
    expected = 0.5 * float(answer) - 0.5 * float(logs.mean())
    found = take_step(trainer).loss
    assert found == pytest.approx(expected, rel=1e-4)
    assert found != pytest.approx(loss_without, rel=1e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_extra_loss_of_the_network_is_added_to_the_mean_loss(tmp_path, book, accumulate):
    expected = take_step(tiny_trainer(tmp_path, book)).loss + 0.25
    trainer = tiny_trainer(tmp_path, book, accumulate=accumulate)
    trainer.network.extra_loss = lambda: torch.tensor(0.25)
    assert take_step(trainer).loss == pytest.approx(expected, rel=1e-5)


def test_each_layer_is_trained_with_its_own_learning_rate(tmp_path, book):
    """The first update of AdamW is the learning rate times the sign of the gradient."""
    options = {"lr": 0.01, "warmup": 0.0, "weight_decay": 0.0}
    trainer = tiny_trainer(tmp_path, book, layer_lr_decay=0.5, **options)
    network = trainer.network
    before = copy.deepcopy(network)
    take_step(trainer)
    for name, rate in (("token", 0.005), ("blocks.0.feedforward.up", 0.01), ("norm", 0.01)):
        old, new = (n.get_submodule(name).weight.detach() for n in (before, network))
        assert float((new - old).abs().max()) == pytest.approx(rate, rel=1e-2), name


def test_weights_are_averaged_from_the_first_step(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, ema_decay=0.999, lr=0.1, warmup=0.0)
    before = weights_of(trainer.network)
    take_step(trainer)
    after = weights_of(trainer.network)
    keep = 2 / 11  # (1 + n) / (10 + n) at n = 1
    average = weights_of(trainer.step.ema.network)
    torch.testing.assert_close(average, keep * before + (1 - keep) * after)
    assert trainer.evaluated_network is trainer.step.ema.network
    without = tiny_trainer(tmp_path, book)
    assert without.evaluated_network is without.network


def test_each_step_takes_the_batch_of_its_number(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    seen = []
    at = trainer.batches.at
    trainer.batches = SimpleNamespace(at=lambda step: seen.append(step) or at(step))
    for _ in range(3):
        take_step(trainer)
    assert seen == [0, 1, 2]


def test_layers_nearer_the_input_have_a_smaller_scale():
    network = CASES["gpt2"].network
    names = ["token.weight", "position.weight", "blocks.0.attention.query.weight",
             "blocks.1.feedforward.up.bias", "norm.weight"]  # fmt: skip
    assert [layers_after(network, name) for name in names] == [2, 2, 1, 0, 0]
    optimizer = adamw(
        copy.deepcopy(network), TrainingSettings(layer_lr_decay=0.5, lr=0.3, beta2=0.7), None
    )
    assert {table["scale"] for table in optimizer.param_groups} == {1.0, 0.5, 0.25}
    assert {table["betas"] for table in optimizer.param_groups} == {(0.9, 0.7)}


def test_only_the_parameters_of_a_group_that_are_not_frozen_are_trained():
    network = copy.deepcopy(CASES["gpt2"].network)
    settings = TrainingSettings()
    freeze_parameters(network, ["blocks.0.*"])
    held = {id(p) for t in adamw(network, settings, "blocks").param_groups for p in t["params"]}
    for name, parameter in network.named_parameters():
        assert (id(parameter) in held) == name.startswith("blocks.1."), name
        assert parameter.requires_grad != name.startswith("blocks.0."), name
    with pytest.raises(GlassError, match="no parameter matches"):
        freeze_parameters(network, ["blocks.7.*"])
    freeze_parameters(network, ["*"])
    with pytest.raises(GlassError, match="there is nothing to train"):
        adamw(network, settings, None)


def test_parameters_in_the_body_of_a_classifier_are_frozen_by_their_names_in_the_body():
    network = copy.deepcopy(CASES["gpt2_classifier"].network)
    freeze_parameters(network, ["token.*"])
    assert not network.body.token.weight.requires_grad
    assert network.body.position.weight.requires_grad


# --- the loop -------------------------------------------------------------------------------------


def run_loop(tmp_path, book, **settings):
    """Return the steps at which a run was evaluated and at which it was saved."""
    trainer = tiny_trainer(tmp_path, book, **settings)
    evaluated, saved = [], []
    evaluate, save = trainer.evaluate, trainer.save
    trainer.evaluate = lambda: (evaluated.append(trainer.state.step), evaluate())
    trainer.save = lambda: (saved.append(trainer.state.step), save())
    trainer.loop()
    return evaluated, saved


def test_a_run_is_evaluated_and_saved_at_its_intervals_and_at_the_end(tmp_path, book):
    evaluated, saved = run_loop(tmp_path, book, steps=7, evaluate_every=3, save_every=2)
    assert evaluated == [3, 6, 7]
    assert saved == [2, 4, 6, 7]


def test_a_run_is_saved_whenever_it_is_evaluated_and_once_at_the_end(tmp_path, book):
    evaluated, saved = run_loop(tmp_path, book, steps=6, evaluate_every=3)
    assert evaluated == [3, 6]
    assert saved == [3, 6]


def test_an_evaluation_is_logged_and_reported(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book, reporter)
    take_step(trainer)
    trainer.evaluate()
    (line,) = trainer.run.metrics()
    assert (line["kind"], line["step"], line["tokens"]) == ("validation", 1, 41)
    assert trainer.state.best == line["loss"]
    assert (trainer.state.evaluated_at, trainer.state.evals) == (1, 1)
    assert 0 < trainer.state.eval_seconds < 60
    assert reporter.lines[-1].startswith("step 1: valid loss ")
    assert reporter.lines[-1].endswith("  (best so far)")
    assert (trainer.run.path / "best" / "model.safetensors").exists()
    trainer.evaluate()
    assert not reporter.lines[-1].endswith("(best so far)")
    assert len(trainer.run.metrics()) == 2


def test_a_logged_evaluation_has_the_seconds_of_training_so_far(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.state.seconds = 41.26
    trainer.evaluate()
    trainer.evaluate_best()
    lines = [(line["kind"], line["seconds"]) for line in trainer.run.metrics()]
    assert lines == [("validation", 41.3), ("final", 41.3)]


def test_the_final_evaluation_may_take_the_time_that_is_left(tmp_path, book):
    trainer, clock, seconds = tiny_trainer(tmp_path, book), Clock(), []
    trainer.evaluate()
    evaluate = trainer.evaluator.evaluate_at_end
    trainer.evaluator.evaluate_at_end = lambda network, left, state: (
        seconds.append(left) or evaluate(network, left, state)
    )
    trainer.evaluate_best()
    trainer.budget = deadline(tmp_path, clock)
    clock.now += 40
    trainer.evaluate_best()
    assert seconds == [None, 59]  # all but a second of the 60 that are left


def test_the_prior_of_the_last_checkpoint_is_fitted_like_that_of_the_average(tmp_path, book):
    trainer, fitted = tiny_trainer(tmp_path, book, ema_decay=0.5), []
    trainer.evaluator.fit_mixture_weights = fitted.append
    trainer.evaluate()
    assert [id(n) for n in fitted] == [id(trainer.step.ema.network), id(trainer.network)]


def test_the_best_weights_are_the_averaged_ones_and_the_last_are_not(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, ema_decay=0.5, lr=0.1)
    take_step(trainer)
    trainer.evaluate()
    trainer.save()
    best, last = (checkpoint.load(trainer.run.path / name)[0] for name in ("best", "last"))
    assert torch.equal(weights_of(best), weights_of(trainer.step.ema.network))
    assert torch.equal(weights_of(last), weights_of(trainer.network))
    assert not torch.equal(weights_of(best), weights_of(last))


def test_the_final_evaluation_uses_the_best_weights(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.evaluate()
    best = trainer.run.metrics()[0]["loss"]
    with torch.no_grad():
        for parameter in trainer.network.parameters():
            parameter.mul_(0.0)
    trainer.step.settings = replace(trainer.settings, eval_limit=40)
    trainer.task = replace(trainer.task, spec=replace(trainer.task.spec, final_eval_limit=40))
    trainer.evaluator.task = trainer.task
    found = trainer.evaluate_best()
    assert found.metrics["loss"] == pytest.approx(best, rel=1e-6)
    assert trainer.run.metrics()[-1]["kind"] == "final"


def test_the_final_evaluation_uses_the_calibration_of_the_best_weights(tmp_path):
    rows = [f"good fine w{i},pos" if i % 3 else f"bad poor w{i},neg" for i in range(300)]
    file = tmp_path / "reviews.csv"
    file.write_text("text,label\n" + "\n".join(rows) + "\n")
    trainer, _ = set_up(tmp_path, file, "classify", model="text_cnn", prior=False)
    trainer.evaluate()
    task = read_toml(trainer.run.path / "best" / "config.toml")["task"]
    trainer.task.artifacts.metadata["temperature"] = 9.0  # of a later evaluation
    found = trainer.evaluate_best()
    assert trainer.task.artifacts.metadata["temperature"] == task["temperature"] != 9.0
    assert found.metrics["loss"] == pytest.approx(trainer.state.best, rel=1e-5)


def test_about_two_hundred_steps_of_a_run_are_logged(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, steps=800)
    for step in (1, 3, 4, 8, 9):
        trainer.state.step, trainer.state.seconds = step, 2.0
        trainer.report(StepResult(loss=1.5, grad_norm=0.5, count=16, lr=0.25))
    logged = trainer.run.metrics()
    assert [line["step"] for line in logged] == [4, 8]
    values = {"kind": "train", "step": 4, "loss": 1.5, "lr": 0.25, "grad_norm": 0.5, "count": 16}
    assert logged[0] == values


def test_the_progress_line_shows_loss_best_metric_baseline_speed_and_time_left(tmp_path, book):
    lines = []
    trainer = tiny_trainer(tmp_path, book, steps=100, baseline={"bits_per_byte": 2.5})
    trainer.reporter.status = lines.append
    trainer.state.step, trainer.state.seconds, trainer.state.best = 10, 20.0, 1.25
    trainer.report(StepResult(loss=1.5, grad_norm=0.5, count=16, lr=0.25))
    assert lines[0].startswith(
        "step 10/100  train loss 1.500  best valid loss 1.25  (baseline bits per byte 2.5)  "
        "lr 2.5e-01  grad norm 0.50  8 tokens/s  "
    )
    assert lines[0].endswith(" GB  ETA 3:00")


def test_the_best_metric_and_that_of_the_baseline_are_shown_with_their_labels(tmp_path, book):
    both = {"loss": 2.0, "bits_per_byte": 2.5}
    trainer = tiny_trainer(tmp_path, book, baseline=both, best_metric="bits_per_byte")
    assert trainer.format_best() == "(baseline bits per byte 2.5)  "
    trainer.state.best = 3.0
    assert trainer.format_best() == "best bits per byte 3  (baseline bits per byte 2.5)  "
    trainer.baseline = {}
    assert trainer.format_best() == "best bits per byte 3  "


def test_the_time_of_the_final_evaluation_is_estimated_from_its_size(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.state.evals, trainer.state.eval_seconds = 2, 8.0  # 4 seconds per 40 tokens
    size = trainer.task.dataset.valid.size
    assert trainer.estimate_final_seconds() == pytest.approx(0.1 * size)
    trainer.state.predictions, trainer.state.seconds = 90, 30.0
    assert trainer.speed() == 3.0


def test_a_deadline_records_how_long_an_evaluation_takes(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.budget = deadline(tmp_path, Clock(), seconds=1000.0)
    trainer.evaluate()
    assert trainer.budget.total_eval_seconds == trainer.state.eval_seconds > 0
    expected = trainer.state.eval_seconds + trainer.estimate_final_seconds() + 3
    assert trainer.budget.reserve == pytest.approx(expected)


def test_only_the_first_request_to_stop_is_reported_and_the_run_is_saved(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book, reporter)
    assert not trainer.is_over()
    assert trainer.stop()
    assert trainer.is_over()
    assert not trainer.stop()
    assert len(reporter.lines) == 1
    assert trainer.train() is None
    assert reporter.lines[-1] == f"stopped and saved; to continue: glass resume {trainer.run.path}"
    assert trainer.run.metrics() == []


@pytest.mark.parametrize(
    ("number", "raises"), [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGHUP, False)]
)
def test_the_second_signal_stops_at_once_unless_it_is_a_hangup(number, raises, request):
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, inherited))
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    calls = []

    def stop():
        calls.append(number)
        return len(calls) == 1

    with stop_on_signal(stop):
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt) if raises else contextlib.nullcontext():
            signal.raise_signal(number)
    assert len(calls) == 2
    assert {n: signal.getsignal(n) for n in handlers} == handlers


def test_a_signal_that_the_process_ignores_stays_ignored():
    before, calls = signal.signal(signal.SIGHUP, signal.SIG_IGN), []
    try:
        with stop_on_signal(lambda: calls.append(1) or True):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert calls == [1]


def test_settings_that_change_during_training_are_recorded(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.change_settings(accumulate=2)
    trainer.change_settings(patience=3)
    assert trainer.state.changed == {"accumulate": 2, "patience": 3}
    assert trainer.step.settings.accumulate == trainer.evaluator.settings.accumulate == 2
    assert trainer.evaluator.settings.patience == 3
    assert trainer.settings.lr == 1e-3


def test_returning_to_a_checkpoint_replays_the_schedule_from_its_step(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    (tmp_path / "schedule.log").write_text("0 0.0 0\n1 0.25 0\n2 0.5 1\n3 0.75 0\n")
    trainer.budget = deadline(tmp_path, Clock())
    trainer.state.step = 2
    trainer.save()
    trainer.budget.begin(3)
    trainer.state.step, trainer.state.best, trainer.state.best_step = 4, 1.5, 3
    recovery.reload_checkpoint(trainer)
    assert (trainer.state.step, trainer.state.best, trainer.state.best_step) == (2, 1.5, 3)
    assert (trainer.budget.fraction, trainer.budget.tenth) == (0.25, 2)


def test_more_micro_batches_are_still_used_after_the_run_is_resumed(tmp_path, book, monkeypatch):
    trainer = tiny_trainer(tmp_path, book)
    trainer.save()
    monkeypatch.setattr(recovery, "find_micro_batch_count", lambda *_: 2)
    recovery.shrink_micro_batches(trainer)
    assert (trainer.settings.accumulate, trainer.state.changed) == (2, {"accumulate": 2})
    saved = json.loads((trainer.run.path / "last" / "training.json").read_text())
    assert saved["changed"] == {"accumulate": 2}


# --- checkpoints ----------------------------------------------------------------------------------


def test_every_field_of_the_state_is_restored(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, ema_decay=0.5)
    take_step(trainer)
    state = State(
        step=3, best=1.5, evals=4, evals_since_best=2, evaluated_at=2, eval_seconds=0.5,
        setup_seconds=7.0, seconds=9.0, predictions=77, consecutive_skips=1, lr_scale=0.3,
        changed={"accumulate": 2},
    )  # fmt: skip
    average, rng_state = weights_of(trainer.step.ema.network), torch.get_rng_state()
    trainer.checkpointer.save_last(trainer.step, state)
    take_step(trainer)
    torch.rand(5)
    restored = trainer.checkpointer.reload(trainer.step)
    assert asdict(restored) == asdict(state)
    assert torch.equal(weights_of(trainer.step.ema.network), average)
    assert torch.equal(torch.get_rng_state(), rng_state)


def test_optimizer_moments_are_restored_and_metrics_of_later_steps_dropped(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    take_step(trainer)
    for step in (0, 1, 2):
        trainer.run.log_metrics("train", step=step, loss=1.0)
    trainer.save()
    (optimizer,) = trainer.step.optimizers.values()
    weight = trainer.network.token.weight
    moments = {name: value.clone() for name, value in optimizer.state[weight].items()}
    kept = weights_of(trainer.network)
    take_step(trainer)
    trainer.state = trainer.checkpointer.reload(trainer.step)
    assert torch.equal(weights_of(trainer.network), kept)
    assert moments.keys() == {"step", "exp_avg", "exp_avg_sq"}
    for name, value in moments.items():
        assert torch.equal(optimizer.state[weight][name], value), name
    assert [line["step"] for line in trainer.run.metrics()] == [0, 1]


def test_the_loss_scale_is_restored(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, precision="float16")
    trainer.step.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    take_step(trainer)
    trainer.save()
    trainer.step.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    trainer.checkpointer.reload(trainer.step)
    assert trainer.step.scaler.get_scale() == 8.0


def test_the_last_checkpoint_is_described_for_error_messages(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    assert trainer.checkpointer.describe_checkpoint() == "there is no checkpoint"
    trainer.state.step = 1234
    trainer.save()
    assert trainer.checkpointer.describe_checkpoint() == (
        f"the checkpoint from step 1,234 is intact; to continue: glass resume {trainer.run.path}"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": -1},
        {"seconds": math.inf},
        {"lr_scale": 0.0},
        {"lr_scale": 1.1},
        {"evals": -1},
        {"consecutive_skips": -2},
    ],
)
def test_an_impossible_state_is_rejected(wrong):
    with pytest.raises(GlassError, match=next(iter(wrong))):
        State(**wrong)
    assert State(lr_scale=1.0).evaluated_at == -1


# --- baselines ------------------------------------------------------------------------------------


class FakeDataset:
    """A dataset that records the fractions fitted; fitting all of it takes `seconds`."""

    def __init__(self, size, clock, seconds):
        self.size, self.clock, self.seconds, self.fractions = size, clock, seconds, []

    def fit(self, network, fraction):
        self.fractions.append(fraction)
        self.clock.now += self.seconds * fraction
        return fraction


@pytest.mark.parametrize(
    ("size", "is_table", "seconds", "total", "fractions"),
    [
        (50_000, False, None, 1.0, [1.0]),  # all of it
        (4_000_000, False, None, 1.0, [0.5]),  # as much as memory allows
        (4_000_000, True, None, 1.0, [1.0]),
        (50_000, False, 10.0, 1.0, [1.0]),  # too small to need a trial
        (1_000_000, False, 10.0, 5.0, [0.005, 0.1, 1.0]),
        (1_000_000, False, 10.0, 20.0, [0.005, 0.1, 0.28]),  # 0.7 of 8 seconds; all would take 20
        (1_000_000, False, 2.0, 100.0, [0.005, 0.1]),  # nothing more than the trial fits
        (8_000_000, False, 10.0, 1.0, [0.000625, 0.0125, 0.25]),
    ],
)
def test_a_baseline_is_fitted_on_as_much_data_as_time_and_memory_allow(
    set_clock, size, is_table, seconds, total, fractions
):
    clock = Clock()
    dataset = FakeDataset(size, clock, total)
    set_clock(clock, "training.fitting")
    task = SimpleNamespace(dataset=dataset, spec=SimpleNamespace(is_table=is_table))
    found = fitting.fit(task, None, seconds)
    assert dataset.fractions == pytest.approx(fractions)
    assert found == pytest.approx(fractions[-1])


@pytest.mark.parametrize(("took", "limit"), [(0.01, 500), (2.0, 40), (100.0, 10)])
def test_a_baseline_is_evaluated_on_as_much_data_as_time_allows(set_clock, took, limit):
    clock, task = Clock(), FakeTask([])
    evaluate = task.evaluate

    def slow(network, limit=None, context=None):
        clock.now += took
        assert context == 9
        return evaluate(network, limit, context)

    task.evaluate = slow
    set_clock(clock, "training.baseline")
    network = copy.deepcopy(CASES["gpt2"].network)
    assert baseline.estimate_eval_limit(task, network, 500, 9, end=110.0) == limit
    assert task.limits == [10]  # a tenth of a full evaluation is timed


def test_a_model_beats_the_baseline_in_the_direction_of_the_metric(tmp_path):
    for name, ours, theirs in (("generate", 1.0, 2.0), ("classify", 0.9, 0.8)):
        task = SimpleNamespace(spec=TASKS[name])
        metric = TASKS[name].metric.name
        better, worse = {metric: ours}, {metric: theirs}
        compare = lambda first, second, task=task: baseline.compare_with_baseline(
            task, first, None, second, Run(tmp_path)
        )
        assert compare(better, worse).is_better
        assert not compare(worse, better).is_better
        assert not compare(better, better).is_better
        assert compare(better, worse).summarize().startswith("better than the baseline (")
        assert compare(worse, better).summarize().startswith("NOT better than the baseline (")


def test_a_baseline_is_saved_with_its_metrics(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book)
    found = baseline.fit_baseline(trainer.task, trainer.run, cpu_settings(steps=3), 8, reporter)
    assert baseline.load_baseline_metrics(trainer.run, trainer.task) == found
    assert (found["model"], found["fraction"]) == ("markov", 1.0)
    assert reporter.lines[-1].startswith("baseline (n-gram counts, --model markov): bits per byte ")
    file = trainer.run.path / "baseline" / "metrics.json"
    file.write_text('{"loss": 2}')
    with pytest.raises(GlassError, match="it has no number for 'bits_per_byte'"):
        baseline.load_baseline_metrics(trainer.run, trainer.task)
    file.unlink()
    assert baseline.load_baseline_metrics(trainer.run, trainer.task) == {}


@pytest.mark.parametrize(
    ("budget", "fraction", "seconds"),
    [
        ({"minutes": 2.0}, 0.1, 12), ({"minutes": 2.0}, 0.2, 24), ({}, 0.1, 30),
        ({"minutes": 60.0}, 0.1, 90), ({"steps": 5}, 0.1, 90), ({"epochs": 1.0}, 0.2, 90),
    ],
)  # fmt: skip
def test_what_is_fitted_before_training_takes_a_fraction_of_the_budget(budget, fraction, seconds):
    assert fitting.limit_seconds(TrainingSettings(**budget), fraction) == pytest.approx(seconds)


def test_half_of_the_time_for_a_baseline_is_for_fitting_it(tmp_path, book, monkeypatch):
    trainer, seconds, limits = tiny_trainer(tmp_path, book), [], []
    fit, estimate = baseline.fit, baseline.estimate_eval_limit
    monkeypatch.setattr(
        baseline, "fit", lambda task, network, left: seconds.append(left) or fit(task, network)
    )

    def record(task, network, limit, context, end):
        limits.append((limit, context))
        return estimate(task, network, limit, context, end)

    monkeypatch.setattr(baseline, "estimate_eval_limit", record)
    settings = cpu_settings(minutes=2.0)
    baseline.fit_baseline(trainer.task, trainer.run, settings, 8, NullReporter())
    assert seconds == [6]  # of a tenth of two minutes
    assert limits == [(trainer.task.spec.final_eval_limit or 5000, 8)]


def test_a_baseline_and_its_model_are_compared_on_the_examples_of_both(tmp_path, monkeypatch):
    """The baseline was evaluated on the first 30 of 50 examples, and was right on 20 of them."""
    rows = lambda right, count: np.array([[i < right, 1.0] for i in range(count)])
    ours, theirs = Sample(np.arange(50), rows(24, 50)), Sample(np.arange(30), rows(20, 30))
    sampled = SampledMetric(lambda scores, _: scores, lambda sums: sums[:, 0] / sums[:, 1])
    spec = replace(TASKS["classify"], sampled_metric=sampled)
    monkeypatch.setattr(baseline, "load_baseline_sample", lambda _run, _columns: theirs)
    found = baseline.compare_with_baseline(
        SimpleNamespace(spec=spec),
        {"accuracy": 24 / 50},
        ours,
        {"accuracy": 20 / 30},
        Run(tmp_path),
    )
    assert (found.value, found.baseline["accuracy"]) == (24 / 30, 20 / 30)
    assert found.is_better
    low, high = found.difference
    assert 0 < low < 4 / 30 < high


def test_a_baseline_is_evaluated_again_in_windows_of_the_same_length(tmp_path, book, monkeypatch):
    trainer, contexts = tiny_trainer(tmp_path, book), []
    baseline.fit_baseline(trainer.task, trainer.run, cpu_settings(steps=3), 8, NullReporter())
    evaluate_task = Task.evaluate

    def record(self, network, limit=None, context=None, **options):
        contexts.append((limit, context))
        return evaluate_task(self, network, limit, context, **options)

    monkeypatch.setattr(Task, "evaluate", record)
    for context in (None, 4):
        evaluate.evaluate_network(
            trainer.network, trainer.task, trainer.run.cache,
            baseline=trainer.run.path / "baseline", context=context,
        )  # fmt: skip
    assert contexts == [(None, None), (None, 8), (None, 4), (None, 4)]


def test_the_calibration_of_a_baseline_is_not_that_of_the_model(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f"a {('good', 'bad')[i % 2]} film {i},{'xy'[i % 2]}" for i in range(300)]
    file.write_text("text,label\n" + "\n".join(rows))
    run = Run.create(tmp_path / "run")
    task = open_task("classify", file, run.cache)
    before = copy.deepcopy(task.artifacts.metadata)
    baseline.fit_baseline(task, run, cpu_settings(steps=3), None, NullReporter())
    assert task.artifacts.metadata == before
    saved = checkpoint.load(run.path / "baseline")[2]
    assert saved.keys() - before.keys() == {"name", "temperature"}


# --- requests -------------------------------------------------------------------------------------


def make_request(task="generate", *, settings=(), from_scratch=True, model=None, **options):
    return Request.of(
        task, (), None, list(settings), options, model=model, from_scratch=from_scratch
    )


def test_settings_take_precedence_over_options_and_the_defaults_of_the_task():
    assert make_request().training.lr == 0.02  # that of the default model
    assert make_request(model="gpt2").training.lr == 1.5e-3
    assert make_request(lr=0.5).training.lr == 0.5
    assert make_request(settings=["train.lr=0.25"], lr=0.5).training.lr == 0.25
    assert make_request("translate", model="translator").training.beta2 == 0.98
    assert make_request("translate").training.beta2 == 0.95
    assert make_request(settings=["model.dim=8", "train.steps=4"]).model_settings == ["dim=8"]
    found = make_request(seed=7, valid_fraction=0.3)
    assert (found.data.seed, found.training.seed, found.data.valid_fraction) == (7, 7, 0.3)


def test_a_trained_model_has_a_fifth_of_the_default_learning_rate():
    assert make_request(from_scratch=False).training.lr == pytest.approx(3e-4)
    assert make_request(from_scratch=False, lr=0.5).training.lr == 0.5
    assert make_request(from_scratch=False, lora=4).training.lr == 1.5e-3
    assert make_request(from_scratch=False, settings=["train.lora=4"]).training.lr == 1.5e-3
    assert make_request(from_scratch=False, lora=0).training.lr == pytest.approx(3e-4)


@pytest.mark.parametrize("options", [{}, {"lora": 4}])
def test_a_lora_rank_of_0_is_fine_tuning_without_lora(options):
    found = make_request(from_scratch=False, settings=["train.lora=0"], **options).training
    assert (found.lora, found.lr) == (0, pytest.approx(3e-4))


def test_an_option_replaces_the_lora_rank_of_a_recipe():
    recipe = Recipe("generate", train={"lora": 4})
    found, _ = split_options(TASKS["generate"], recipe, {"lora": 0}, from_scratch=False)
    assert (found.lora, found.lr) == (0, pytest.approx(3e-4))


def test_a_budget_replaces_one_of_lower_precedence():
    found = make_request(steps=5, settings=["train.minutes=2.0"]).training
    assert (found.steps, found.minutes) == (None, 2.0)
    recipe = Recipe("generate", train={"epochs": 3.0, "lr": 0.5})
    found, _ = split_options(TASKS["generate"], recipe, {"steps": 9})
    assert (found.steps, found.epochs, found.lr) == (9, None, 0.5)
    found, _ = split_options(TASKS["generate"], recipe, {"steps": None})
    assert (found.steps, found.epochs) == (None, 3.0)


def test_options_take_precedence_over_a_recipe(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        'task = "classify"\n[data]\nvocab = 500\n[model]\nname = "bert"\ndim = 16\n'
        "[train]\nsteps = 4\nlr = 0.5\n"
    )
    found = Request.of(None, (), file, [], {"lr": 0.25})
    assert (found.spec.name, found.data.vocab, found.recipe_model) == (
        "classify", 500, {"name": "bert", "dim": 16}
    )  # fmt: skip
    assert (found.training.steps, found.training.lr) == (4, 0.25)
    with pytest.raises(GlassError, match="is a recipe for classify, not for generate"):
        Request.of("generate", (), file, [], {})
    data = tmp_path / "data.csv"
    data.write_text("text,label\na,b\n")
    assert Request.of(str(data), (), file, [], {}).data.files == (data,)
    file.write_text('task = "classify"\ntrain = 3\n')
    with pytest.raises(GlassError, match="train must be a table"):
        read_recipe(file)
    file.write_text('task = "classify"\n[model]\nname = {name = "bert"}\n')
    with pytest.raises(GlassError, match="the name of the model must be a string"):
        read_recipe(file)


def test_the_optimizer_of_a_recipe_has_its_own_defaults(tmp_path):
    file = tmp_path / "recipe.toml"
    for text, lr in (('optimizer = "adamw"', 1.5e-3), ('optimizer = "adamw"\nlr = 0.5', 0.5)):
        file.write_text(f'task = "generate"\n[train]\n{text}\n')
        found = Request.of(None, (), file, [], {}).training
        assert (found.optimizer, found.lr) == ("adamw", lr)
    assert Request.of(None, (), file, ["train.optimizer=muon"], {}).training.optimizer == "muon"


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("generate", {"batch_tokens": 9}, "is counted in examples: set train.batch_size, not"),
        ("classify", {"batch_size": 9}, "is counted in tokens: set train.batch_tokens, not"),
        ("generate", {"threads": 4096}, "threads must be at most"),
        ("generate", {"optimizer": "adamv"}, "unknown optimizer 'adamv'"),
        ("generate", {"device": "abacus"}, "this machine has no device 'abacus'"),
        ("generate", {"valid": ["no-such-file"]}, "no-such-file does not exist"),
        ("generate", {"lrr": 1}, "unknown setting 'lrr'"),
    ],
)
def test_error_names_the_invalid_option(monkeypatch, task, options, message):
    monkeypatch.setattr("glassformer.training.request.os.cpu_count", lambda: 8)
    with pytest.raises(GlassError, match=message):
        make_request(task, **options)


@pytest.mark.parametrize(
    ("task", "from_scratch", "options", "message"),
    [
        ("classify", True, {"extend": True}, "adds tokens to a trained model's tokenizer"),
        ("classify", False, {"extend": True, "lora": 2}, "needs trainable token embeddings"),
        ("classify", False, {"vocab": 99}, "has a tokenizer: leave out --tokenizer"),
        ("classify", False, {"tokenizer": "words"}, "has a tokenizer: leave out --tokenizer"),
        ("generate", True, {"group": "who"}, "--group is for classify, not for generate"),
        ("generate", True, {"valid": ["-", "-"]}, "standard input can be read only once"),
    ],
)
def test_options_without_effect_are_rejected(task, from_scratch, options, message):
    with pytest.raises(GlassError, match=message):
        make_request(task, **options).check(from_scratch=from_scratch)


def test_an_option_is_rejected_only_where_it_has_no_effect():
    extending = make_request("classify", extend=True)
    extending.check(from_scratch=False)
    with pytest.raises(GlassError, match="extend"):
        extending.check(from_scratch=True)
    sized = make_request("classify", group="who", vocab=99)
    sized.check(from_scratch=True)
    with pytest.raises(GlassError, match="vocab"):
        sized.check(from_scratch=False)


@pytest.mark.parametrize(("cores", "threads"), [(1, 64), (16, 64), (32, 128), (None, 64)])
def test_the_limit_of_threads_is_four_per_core_and_at_least_64(monkeypatch, cores, threads):
    monkeypatch.setattr("glassformer.training.request.os.cpu_count", lambda: cores)
    assert max_threads() == threads


# --- setup ----------------------------------------------------------------------------------------


def test_model_settings_take_precedence_over_the_recipe_and_that_over_the_task():
    spec = TASKS["generate"]
    found = make_config("gpt2", spec, {}, [])
    assert (found.dim, found.depth, found.heads, found.context, found.dropout) == (
        192, 4, 6, 128, 0.0
    )  # fmt: skip
    found = make_config("gpt2", spec, {"dim": 48, "depth": 2}, ["depth=3"])
    assert (found.dim, found.depth) == (48, 3)
    with pytest.raises(GlassError, match="'bert' is a model for fill-mask, not for generate"):
        make_config("bert", spec, {}, [])
    assert resolve_architecture("bert", TASKS["classify"]) == "bert_classifier"
    assert resolve_architecture("gpt2", TASKS["generate"]) == "gpt2"


def test_the_size_of_the_vocabulary_comes_from_the_data(tmp_path, book):
    task = open_task("generate", book, tmp_path / "cache")
    config = add_data_sizes(MODELS["gpt2"].Config(dim=24), task)
    assert config.vocab == task.artifacts.tokenizer.vocab
    assert config.dim == 24


def test_dim_is_the_one_closest_to_a_number_of_parameters():
    kind = MODELS["gpt2"]
    config = kind.Config(vocab=50, context=16, depth=2, heads=3)

    def count(dim):
        return sum(p.numel() for p in kind(replace(config, dim=dim)).parameters())

    sizes = {dim: count(dim) for dim in range(6, 120, 6)}  # each of the 3 heads has an even size
    for parameters in (1, 5_000, 20_000, 60_001, 100_000):
        found = scale_to_parameters("gpt2", config, parameters).dim
        assert found == min(sizes, key=lambda dim: abs(sizes[dim] - parameters)), parameters
    assert start.count_parameters("gpt2", replace(config, dim=12)) == sizes[12]
    wide = MODELS["translator"].Config(vocab=50, dim=16, depth=1, heads=2, hidden=16)
    found = scale_to_parameters("translator", wide, 20_000)
    assert found.hidden == 4 * found.dim


@pytest.mark.parametrize(
    ("settings", "copies"),
    [({}, 4), ({"ema_decay": 0.9}, 5), ({"lora": 2}, 1), ({"freeze": ("a",)}, 1)],
)
def test_a_network_needs_memory_for_its_gradients_and_moments(monkeypatch, settings, copies):
    kind = MODELS["gpt2"]
    config = kind.Config(vocab=50, context=16, dim=12, depth=1, heads=2)
    needed = 4 * start.count_parameters("gpt2", config) * copies / 1e9
    monkeypatch.setattr(start, "total_memory", lambda: 1.001 * needed)
    start.check_memory("gpt2", config, cpu_settings(**settings))
    monkeypatch.setattr(start, "total_memory", lambda: 0.999 * needed)
    with pytest.raises(GlassError, match="use a smaller model"):
        start.check_memory("gpt2", config, cpu_settings(**settings))


def test_truncated_texts_are_reported(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f"{'word ' * (40 if i < 30 else 3)}{i},{'ab'[i % 2]}" for i in range(100)]
    file.write_text("text,label\n" + "\n".join(rows))
    task, reporter = open_task("classify", file, tmp_path / "cache"), RecordingReporter()
    network = SimpleNamespace(context=20, has=lambda _trait: False)
    setup.make_batches(network, task, cpu_settings(), reporter)
    long = int((task.dataset.texts["train"].lengths > 20).sum())
    assert 10 < long <= 30
    assert reporter.lines == [
        f"{long} texts are longer than the context of 20 tokens and will be truncated; "
        "to use more of each text: --set model.context=40"
    ]


def test_the_ratio_of_half_precision_is_its_time_divided_by_that_of_float32(monkeypatch):
    seconds = {torch.float32: 2.0, torch.bfloat16: 5.0}
    clock = Clock()

    class Timed:
        def __init__(self, dtype):
            self.dtype = dtype

        def __matmul__(self, other):
            clock.now += seconds[self.dtype]

    network = SimpleNamespace(device=torch.device("cpu"))
    with monkeypatch.context() as patch:
        patch.setattr(autotune.time, "perf_counter", clock)
        patch.setattr(autotune.torch, "ones", lambda *_sizes, dtype: Timed(dtype))
        assert bfloat16_ratio(network) == 2.5


def test_memory_is_measured_in_gigabytes():
    assert 0.02 < peak_memory() < total_memory() < 1e5


# --- run folders ----------------------------------------------------------------------------------


def test_metrics_of_steps_that_will_be_repeated_are_dropped(tmp_path):
    run = Run.create(tmp_path / "run")
    for step in (1, 2, 3):
        run.log_metrics("train", step=step, loss=float(step))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    run.drop_metrics_after(2)
    assert [line["step"] for line in run.metrics()] == [1, 2]
    assert run.metrics()[1] == {"kind": "train", "step": 2, "loss": 2.0}


def test_an_appended_file_may_grow_but_not_shrink_or_change(tmp_path):
    run = Run.create(tmp_path / "run")
    for name in ("train.log", "config.toml"):
        (run.path / name).write_text("one\n")
    (run.path / "cache" / "train.ids").write_text("ids")
    run.write_checksums()
    assert run.find_damage() == []
    (run.path / "train.log").write_text("one\ntwo\n")
    assert run.find_damage() == []
    (run.path / "train.log").write_text("onf\ntwo\n")
    assert run.find_damage() == [
        f"{run.path}/train.log is corrupted: its SHA-256 differs from the recorded one"
    ]
    (run.path / "train.log").write_text("on")
    (run.path / "config.toml").write_text("one\ntwo\n")
    assert len(run.find_damage()) == 2
    assert run.find_damage(("config",)) == [
        f"{run.path}/config.toml is corrupted: expected 4 bytes, got 8"
    ]
    (run.path / "cache" / "train.ids").unlink()
    with pytest.raises(GlassError, match=r"train\.ids is missing"):
        run.verify("cache/")


def test_writing_checksums_again_updates_the_hash_of_a_changed_file(tmp_path):
    run = Run.create(tmp_path / "run")
    file = run.path / "README.md"
    file.write_text("one")
    run.write_checksums()
    file.write_text("three")
    run.write_checksums()
    assert run.find_damage() == []


def test_an_overwritten_run_is_restored_if_the_new_one_is_discarded(tmp_path):
    old = Run.create(tmp_path / "run")
    (old.path / "request.json").write_text("{}")
    (old.path / "mine").write_text("old")
    new = Run.create(tmp_path / "run", overwrite=True)
    assert not (new.path / "mine").exists()
    assert new.cache.is_dir()
    new.discard()
    assert (new.path / "mine").read_text() == "old"
    assert not new.backup.exists()


def test_a_changed_environment_is_found(tmp_path):
    run = Run.create(tmp_path / "run")
    run.write_config({"task": {"name": "x"}}, None)
    assert run.compare_environment() == []
    recorded = json.loads((run.path / "env.json").read_text())
    assert recorded.keys() == {"glassformer", "torch", "python", "system", "threads"}
    torch_version, python_version = recorded["torch"], recorded["python"]
    recorded["torch"] = "1.0"
    del recorded["python"]
    (run.path / "env.json").write_text(json.dumps(recorded))
    assert run.compare_environment() == [
        ("torch", "1.0", torch_version),
        ("python", "unknown", python_version),
    ]


# --- extending and finishing a run ----------------------------------------------------------------


def test_a_run_is_extended_to_more_steps_or_minutes(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, steps=5)
    trainer.state = State(step=5, setup_seconds=20.0, seconds=40.0, evals_since_best=4, evals=6)
    with pytest.raises(GlassError, match="step 5 is already done"):
        extend_budget(trainer, 5, None)
    extend_budget(trainer, 9, None)
    assert trainer.budget == StepBudget(9)
    assert (trainer.settings.steps, trainer.settings.minutes) == (9, None)
    assert trainer.state.evals_since_best == 0
    extend_budget(trainer, None, 2.0)
    assert (trainer.settings.steps, trainer.settings.minutes) == (None, pytest.approx(3.0))
    assert trainer.budget.remaining == pytest.approx(120, abs=10)
    saved = json.loads((trainer.run.path / "last" / "training.json").read_text())
    assert saved["changed"] == {
        "steps": None,
        "minutes": pytest.approx(3.0),
        "max_epochs": None,
    }


def test_a_finished_run_has_a_result_plots_and_a_readme(tmp_path, book, monkeypatch):
    reporter = RecordingReporter()
    metrics = {"bits_per_byte": 2.0}
    trainer = tiny_trainer(tmp_path, book, reporter, baseline=metrics, steps=2, evaluate_every=1)
    monkeypatch.setattr(report, "peak_memory", lambda: 1.234)
    result = report.train_and_report(trainer, reporter)
    size = sum(p.numel() for p in trainer.network.parameters())
    assert (result["task"], result["model"], result["parameters"]) == ("generate", "gpt2", size)
    assert (result["steps"], result["memory"], result["baseline"]) == (
        2, 1.23, {**metrics, "difference_interval": None}
    )  # fmt: skip
    assert result["run"] == str(trainer.run.path)
    assert result["tokens"] == trainer.task.dataset.valid.size
    assert sorted(p.name for p in (trainer.run.path / "plots").iterdir()) == [
        "bits_per_byte.png", "loss.png", "lr.png"
    ]  # fmt: skip
    readme = (trainer.run.path / "README.md").read_text()
    assert readme.startswith("# generate with gpt2\n\n| name | value |\n")
    assert "| steps | 2 |" in readme
    assert re.search(r"^\| speed \(tokens/s\) \| \d", readme, re.MULTILINE)
    assert re.search(r"^\| training time \(s\) \| \d", readme, re.MULTILINE)
    assert "| peak memory (GB) | 1.23 |" in readme
    assert "NOT better than the baseline (n-gram counts)" in readme
    assert result["diagnosis"] == "undertrained"
    assert any(line.startswith("undertrained: ") for line in reporter.lines)
    assert trainer.run.find_damage() == []


def test_a_new_budget_replaces_any_saved_one_when_a_run_starts_again(tmp_path, monkeypatch):
    """Also one that was set with `--set`, which would otherwise take precedence."""
    given = []
    monkeypatch.setattr(resume, "train", lambda *_, **options: given.append(options) or {})
    saved = {
        "task": "generate", "data": [], "valid": [], "epochs": 2.0, "lr": 0.5,
        "settings": ["train.steps=5", "model.dim=8", "train.minutes=1", "train.lora=2"],
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(saved))
    resume.restart(tmp_path, NullReporter(), None, None)
    resume.restart(tmp_path, NullReporter(), 9, None)
    resume.restart(tmp_path, NullReporter(), None, 0.5)
    budgets = [[options.get(name) for name in ("steps", "epochs", "minutes")] for options in given]
    assert budgets == [[None, 2.0, None], [9, None, None], [None, None, 0.5]]
    kept = ["model.dim=8", "train.lora=2"]
    assert [options["settings"] for options in given] == [saved["settings"], kept, kept]
    assert all((o["run"], o["lr"], o["overwrite"]) == (tmp_path, 0.5, True) for o in given)


def test_a_run_is_diagnosed_by_its_epochs_and_minutes(tmp_path, book, monkeypatch):
    trainer, seen = tiny_trainer(tmp_path, book), []
    monkeypatch.setattr(report, "diagnose", lambda *args, **options: seen.append((args, options)))
    assert report.diagnose_run(trainer, trainer.network) is None
    assert seen == []  # nothing was trained or evaluated
    for kind, step, loss in (
        ("validation", 0, 3.5), ("train", 5, 9.0), ("validation", 20, 2.5), ("final", 20, 1.0)
    ):  # fmt: skip
        trainer.run.log_metrics(kind, step=step, loss=loss)
    trainer.state.step, trainer.state.seconds = 20, 90.0
    report.diagnose_run(trainer, trainer.network)
    ((args, options),) = seen
    assert args == ((0, 20), (3.5, 2.5))
    epochs = 20 / trainer.batches.per_epoch
    assert options == {"epochs": epochs, "minutes": 1.5, "run": str(trainer.run.path)}


@pytest.mark.parametrize(
    ("task", "settings", "expected"),
    [
        ("generate", ["model.context=2048"], ("sparse", ["train.batch_size=1"])),
        ("generate", ["model.context=4096", "train.batch_size=4"], ("sparse", [])),
        ("generate", ["model.context=2047"], (None, [])), ("generate", ["model.dim=8"], (None, [])),
        ("classify", ["model.context=4096"], (None, [])),
        (None, ["model.context=4096"], (None, [])),
    ],
)  # fmt: skip
def test_long_contexts_have_another_default_model(task, settings, expected):
    assert train.choose_for_context(task, settings, NullReporter()) == expected


@pytest.mark.parametrize("role", ["data", "valid", "base"])
def test_a_run_folder_cannot_contain_what_the_run_reads(tmp_path, book, role):
    run = tmp_path / "run"
    (run / "sub").mkdir(parents=True)
    file = run / "sub" / "book.txt"
    file.write_text(book.read_text())
    checkpoint.save(run / "sub" / "base", CASES["gpt2"].network, Characters("abc"))
    data = [file if role == "data" else book]
    options = {"valid": {"valid": [file]}, "base": {"base": run / "sub" / "base"}}.get(role, {})
    with pytest.raises(GlassError, match=r"is inside the run folder .* and could be overwritten"):
        train.train("generate", *data, run=run, overwrite=True, reporter=NullReporter(), **options)
    assert file.read_text() == book.read_text()


def test_paths_are_made_absolute_but_standard_input_is_not():
    assert train.make_absolute("-") == "-"
    assert train.make_absolute("a/b") == str(Path.cwd() / "a" / "b")


# --- plots and comparisons ------------------------------------------------------------------------


def test_a_spike_exceeds_the_median_by_six_times_half_of_the_spread():
    steady = [1.0 + 0.1 * (i % 2) for i in range(20)]  # median 1.1, half of the spread 0.05
    assert plots.find_spikes([*steady, 1.39]) == []
    assert plots.find_spikes([*steady, 1.41]) == [20]
    level = [1.0] * 20  # no spread: a hundredth of the median is used instead
    assert plots.find_spikes([*level, 1.059]) == []
    assert plots.find_spikes([*level, 1.061]) == [20]
    assert plots.find_spikes([9.0, *level[1:]]) == []
    assert plots.find_spikes([*level, 2.0, 1.0, 2.0]) == [20, 22]


def test_plots_show_training_validation_skipped_steps_and_the_baseline(tmp_path, monkeypatch):
    made, subplots = [], plots.subplots
    monkeypatch.setattr(plots, "subplots", lambda **o: made.append(subplots(**o)) or made[-1])
    metrics = [
        {"kind": "train", "step": 1, "loss": 3.0, "lr": 0.1},
        {"kind": "skipped", "step": 2},
        {"kind": "train", "step": 3, "loss": 2.0, "lr": 0.2},
        {"kind": "validation", "step": 3, "loss": 2.5, "bits_per_byte": 4.0},
        {"kind": "final", "step": 3, "loss": 9.0, "bits_per_byte": 9.0},
    ]
    task = SimpleNamespace(spec=TASKS["generate"])
    plots.plot_metrics(metrics, task, "loss", 3.25, tmp_path)
    loss, rate, bits = (
        {line.get_label(): [tuple(map(float, xy)) for xy in line.get_xydata()] for line in lines}
        for lines in (axes.get_lines() for _, axes in made)
    )
    assert (loss["training"], loss["validation"]) == ([(1, 3), (3, 2)], [(3, 2.5)])
    assert {x for x, _ in loss["skipped: not finite"]} == {2}
    assert rate == {"training": [(1, 0.1), (3, 0.2)]}
    assert bits["validation"] == [(3, 4)]
    assert {y for _, y in bits[TASKS["generate"].baseline_name]} == {3.25}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bits_per_byte.png", "loss.png", "lr.png"]


def test_the_final_evaluation_is_not_part_of_a_curve():
    lines = [
        {"kind": "train", "step": 1, "loss": 1.0},
        {"kind": "validation", "step": 2, "loss": 1.0},
        {"kind": "validation", "step": 3, "f1": 1.0},
        {"kind": "final", "step": 3, "loss": 1.0},
    ]
    assert [line["step"] for line in plots.select_evaluations(lines, "loss")] == [2]


ROWS = [
    {"name": "a", "accuracy": 0.5, "f1": 0.25, "loss": 1.5, "parameters": 12345, "steps": 7,
     "speed": 1234.5, "memory": 0.5, "seconds": 61.0},
]  # fmt: skip


COSTS = {name: value for name, value in ROWS[0].items() if name != "name"}


def test_a_table_of_models_shows_metrics_first_then_costs():
    spec = TASKS["classify"]
    head, row = compare_report.format_table(spec, ROWS)
    costs = ["parameters", "steps", "texts/s", "GB", "seconds"]
    assert head == ["model", "accuracy", "f1", "loss", *costs]
    assert row == ["a", "0.5", "0.25", "1.5", "12,345", "7", "1,234", "0.5", "61"]
    without = [*ROWS, {name: value for name, value in ROWS[0].items() if name != "f1"}]
    assert compare_report.choose_columns(spec, without)[:2] == ["accuracy", "loss"]
    full = [ROWS[0] | {"perplexity": 1.0, "bits_per_byte": 1.0}]
    assert compare_report.choose_columns(TASKS["generate"], full)[:4] == [
        "bits_per_byte", "perplexity", "f1", "parameters"
    ]  # fmt: skip


def test_a_comparison_is_plotted_against_the_seconds_of_training(tmp_path, monkeypatch):
    made, subplots = [], compare_report.subplots
    monkeypatch.setattr(
        compare_report, "subplots", lambda **o: made.append(subplots(**o)) or made[-1]
    )
    paths = {}
    for name, curve in (("a", [(10, 0.25), (20, 0.5)]), ("b", [(1, 0.75)])):
        run = Run.create(tmp_path / name)
        for step, (seconds, value) in enumerate(curve):
            run.log_metrics("validation", step=step, seconds=seconds, accuracy=value)
        run.log_metrics("final", step=9, seconds=99, accuracy=0.0)
        paths[name] = [run.path]
    rows = [{"name": "b", "accuracy": 0.7}, {"name": "a", "accuracy": 0.6}]
    compare_report.plot_comparison(rows, paths, TASKS["classify"], tmp_path / "x.png")
    ((_, axes),) = made
    fitted, trained = axes.get_lines()
    assert (fitted.get_label(), set(fitted.get_ydata())) == ("b  0.7", {0.7})
    assert trained.get_label() == "a  0.6"
    assert trained.get_xydata().tolist() == [[10, 0.25], [20, 0.5]]
    assert axes.get_xlabel() == "seconds of training"


def test_a_report_names_the_budget_and_the_data():
    def report(*data, **settings):
        return compare_report.format_report(
            ROWS, TASKS["classify"], data, TrainingSettings(**settings)
        )

    text = report("/x/my file.csv", steps=30, parameters=20_000)
    assert text.startswith("# classify: 1 models, 30 steps and about 20,000 parameters each\n")
    assert "| a | 0.5 | 0.25 | 1.5 |" in text
    assert "Data: 'my file.csv';" in text
    assert "seed 0;" in text
    text = report(minutes=2.0, seed=5)
    assert text.startswith("# classify: 1 models, 2 minutes each\n")
    assert "Data: the built-in sample;" in text
    assert "seed 5;" in text
    assert report(epochs=1.0).startswith("# classify: 1 models, 1 epoch each\n")


def test_an_unfinished_comparison_continues_in_its_folder(tmp_path):
    arguments = {"task": "classify", "data": [], "models": ["a", "b"], "text": ("x",)}
    first = compare.find_folder(arguments, tmp_path)
    assert first == tmp_path / "compare-1"
    compare.open_comparison(first, arguments)
    assert compare.find_folder(arguments, tmp_path) == first
    other = {**arguments, "task": "generate"}
    assert compare.find_folder(other, tmp_path) == tmp_path / "compare-2"
    (first / "README.md").write_text("done")
    assert compare.find_folder(arguments, tmp_path) == tmp_path / "compare-2"
    with pytest.raises(GlassError, match="contains another comparison"):
        compare.open_comparison(first, other)


def test_the_best_model_comes_first(tmp_path, monkeypatch):
    for task, metric, order in (
        ("classify", "accuracy", "ba"),
        ("generate", "bits_per_byte", "ab"),
    ):
        names = {"a": TASKS[task].models[0], "b": TASKS[task].models[-1]}
        values = {names["a"]: 0.5, names["b"]: 0.75}
        monkeypatch.setattr(
            compare, "train_contender",
            lambda one, path, arguments, values=values, metric=metric: {
                **COSTS, metric: values[one.model]
            },
        )  # fmt: skip
        _, rows = compare.compare(
            task, models=names.values(), run=tmp_path / task, reporter=NullReporter(), steps=3
        )
        assert [row["name"] for row in rows] == [names[letter] for letter in order]
        assert (tmp_path / task / "compare.png").exists()


def test_the_trainer_of_a_fitted_model_takes_no_steps(tmp_path, book):
    run = Run.create(tmp_path / "run")
    task = open_task("generate", book, run.cache)
    kind = MODELS["markov"]
    network = kind(kind.Config(vocab=task.artifacts.tokenizer.vocab))
    trainer = setup.make_fitted_trainer(
        network, task, TrainingSettings(device="cpu"), Checkpointer(run, task), NullReporter()
    )
    assert trainer.is_over()
    assert trainer.state.predictions == task.dataset.n_targets
    assert trainer.settings.precision == "float32"
    assert np.isfinite(trainer.speed())


# --- from a request to the first step -------------------------------------------------------------


def set_up(tmp_path, file, task="generate", base=None, model=None, settings=(), **options):
    """Return a trainer before its first step, and the reported lines."""
    given = {"steps": 3, "device": "cpu", "precision": "float32", "baseline": False, **options}
    request = Request.of(
        task, [file], None, list(settings), given, model=model, from_scratch=base is None
    )
    origin = Start.of(request, base, model)
    run = Run.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
    reporter = RecordingReporter()
    data = replace(request.data, model=origin.architecture, base_tokenizer=origin.tokenizer)
    opened = train.prepare(request.spec, data, run, reporter)
    start_time = time.monotonic() - 5.0
    return setup.set_up(origin, opened, request.training, run, reporter, start_time), reporter.lines


SMALL = ["model.dim=8", "model.depth=1", "model.heads=2"]


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_freed_memory_is_returned_where_the_system_can_do_that(monkeypatch, platform):
    calls = []
    library = SimpleNamespace(malloc_trim=calls.append) if platform == "linux" else None
    monkeypatch.setattr(memory.sys, "platform", platform)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name: library)
    memory.release_memory()
    assert calls == ([0] if platform == "linux" else [])
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name: SimpleNamespace())  # as with musl
    memory.release_memory()


def test_all_settings_are_saved_before_the_first_step(tmp_path, book):
    trainer, lines = set_up(
        tmp_path, book, model="gpt2", settings=[*SMALL, "model.context=16"], seed=4, prior=False
    )
    tables = read_toml(trainer.run.path / "config.toml")
    assert tables["task"]["name"] == "generate"
    vocab = trainer.task.artifacts.tokenizer.vocab
    assert tables["model"] == {
        "name": "gpt2", "vocab": vocab, "context": 16, "dim": 8, "depth": 1, "heads": 2,
        "activation": "gelu_tanh", "eps": 1e-5, "dropout": 0.0,
    }  # fmt: skip
    assert (tables["train"]["steps"], tables["train"]["seed"], tables["train"]["lr"]) == (
        3,
        4,
        1.5e-3,
    )
    assert tables["train"]["threads"] == torch.get_num_threads()
    tokenizer = trainer.task.artifacts.tokenizer.to_json()
    assert (trainer.run.path / "tokenizer.json").read_text() == tokenizer
    assert 5 <= trainer.state.setup_seconds < 300
    assert trainer.network.training
    assert (trainer.batches.context, trainer.batches.seed, trainer.batches.batch_size) == (
        16,
        4,
        16,
    )
    size = sum(p.numel() for p in trainer.network.parameters())
    assert lines[-1] == f"gpt2: {size:,} parameters; 3 steps; run folder {trainer.run.path}"
    torch.manual_seed(4)
    fresh = type(trainer.network)(trainer.network.config)
    assert torch.equal(weights_of(fresh), weights_of(trainer.network))
    again = load_trainer(trainer.run, NullReporter())
    assert torch.equal(weights_of(again.network), weights_of(trainer.network))
    assert (again.settings, again.state) == (trainer.settings, trainer.state)
    assert again.budget == StepBudget(3)


def test_settings_that_changed_during_training_apply_after_loading(tmp_path, book):
    trainer, _ = set_up(tmp_path, book, settings=[*SMALL, "model.context=16"], lr=0.5)
    trainer.change_settings(steps=9, accumulate=2)
    trainer.save()
    again = load_trainer(trainer.run, NullReporter())
    found = again.settings
    assert (found.steps, found.accumulate, found.lr) == (9, 2, 0.5)
    assert again.budget == StepBudget(9)
    assert again.evaluator.settings == found


def test_a_number_of_parameters_sets_dim_unless_there_is_a_base_model(tmp_path, book):
    trainer, _ = set_up(tmp_path, book, model="gpt2", settings=SMALL, parameters=9_000, prior=False)
    assert trainer.network.config.dim > 8
    assert sum(p.numel() for p in trainer.network.parameters()) == pytest.approx(9_000, rel=0.3)
    trainer.save()
    base = trainer.run.path / "last"
    other, lines = set_up(tmp_path, book, base=base, parameters=90_000, prior=False)
    assert other.network.config.dim == trainer.network.config.dim
    assert f"starting from {base}" in lines
    assert torch.equal(weights_of(other.network), weights_of(trainer.network))
    with pytest.raises(GlassError, match="can only be fine-tuned as gpt2, not as llama"):
        set_up(tmp_path, book, base=base, model="llama")
    adapted, lines = set_up(tmp_path, book, base=base, lora=2)
    trained = sum(p.numel() for p in adapted.network.parameters() if p.requires_grad)
    assert f", {trained:,} of them trainable; 3 steps" in lines[-1]
    assert (adapted.checkpointer.adapter.rank, adapted.checkpointer.adapter.base) == (2, str(base))
    with pytest.raises(GlassError, match="specify it with --from"):
        set_up(tmp_path, book, lora=2)


def test_a_run_to_start_from_gives_its_best_weights(tmp_path, book):
    settings = [*SMALL, "model.context=16"]
    trainer, _ = set_up(tmp_path, book, model="gpt2", settings=settings, prior=False)
    best = copy.deepcopy(trainer.network)
    with torch.no_grad():
        for parameter in best.parameters():
            parameter.add_(1.0)
    trainer.checkpointer.save_best(best)
    tuned, lines = set_up(tmp_path, book, base=trainer.run.path, prior=False)
    assert torch.equal(weights_of(tuned.network), weights_of(best))
    assert f"starting from {trainer.run.path / 'best'}" in lines


def test_a_recipe_changes_settings_of_a_base_model(tmp_path, book):
    checkpoint.save(tmp_path / "base", CASES["gpt2"].network, Characters("abc"))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('task = "generate"\n[model]\ncontext = 8\n')
    request = Request.of(None, [book], recipe, [], {}, from_scratch=False)
    config = start.Start.of(request, tmp_path / "base", None).config
    assert config == replace(CASES["gpt2"].network.config, context=8)


def test_a_task_may_initialize_a_new_network_but_not_one_with_trained_weights(tmp_path, book):
    task, calls = open_task("generate", book, tmp_path / "cache"), []
    initialize = lambda dataset, network: calls.append((dataset, network))
    task = replace(task, spec=replace(task.spec, initialize=initialize))
    origin = Start("gpt2", CASES["gpt2"].network.config)
    network = origin.build(task, cpu_settings(), NullReporter())
    assert calls == [(task.dataset, network)]
    trained = replace(origin, base=tmp_path, network=network)
    copied = trained.build(task, cpu_settings(seed=9), NullReporter())
    assert len(calls) == 1
    assert torch.equal(weights_of(copied), weights_of(network))


@pytest.mark.parametrize(
    ("case", "task", "settings", "fits"),
    [
        ("gpt2", "generate", {}, True), ("gpt2", "generate", {"prior": True}, True),
        ("gpt2", "generate", {"prior": False}, False), ("gpt2", "generate", {"lora": 2}, False),
        ("llama", "generate", {}, True), ("classifier", "classify", {"prior": False}, False),
        ("bert", "fill-mask", {}, False), ("summarizer", "summarize", {}, False),
    ],
)  # fmt: skip
def test_a_prior_is_fitted_if_task_and_network_support_it(case, task, settings, fits):
    opened = SimpleNamespace(spec=TASKS[task])
    found = prior.should_fit_prior(CASES[case].network, opened, TrainingSettings(**settings))
    assert found is fits


def test_a_prior_that_the_network_cannot_have_is_rejected():
    task, settings = SimpleNamespace(spec=TASKS["generate"]), TrainingSettings(prior=True)
    with pytest.raises(GlassError, match="bert cannot have a prior"):
        prior.should_fit_prior(CASES["bert"].network, task, settings)


def test_the_baseline_is_evaluated_in_windows_of_the_network(tmp_path, book, monkeypatch):
    contexts = []
    monkeypatch.setattr(
        setup, "fit_baseline", lambda *arguments: contexts.append(arguments[3]) or {}
    )
    set_up(tmp_path, book, settings=[*SMALL, "model.context=16"], baseline=True, prior=False)
    assert contexts == [16]


def test_sizes_that_were_set_are_not_chosen_and_heads_stay_with_their_dim(tmp_path, book):
    task, config = open_task("generate", book, tmp_path / "cache"), MODELS["speedrun"].Config()
    suggested = MODELS["speedrun"].suggest_sizes(60, task.dataset.size)
    assert suggested["heads"] != config.heads
    assert suggested["depth"] != config.depth

    def choose(*explicit):
        origin = Start("speedrun", config, explicit=frozenset(explicit))
        settings = TrainingSettings(minutes=60.0)
        found = setup.choose_model_sizes(origin, task, settings, NullReporter()).config
        return {name for name in ("dim", "heads", "depth") if
                getattr(found, name) == suggested[name] != getattr(config, name)}  # fmt: skip

    assert choose() == {"dim", "heads", "depth"}
    assert choose("depth") == {"dim", "heads"}
    assert choose("dim") == choose("heads") == {"depth"}


def test_the_speed_of_a_model_counts_only_what_it_was_fitted_on(tmp_path, book, monkeypatch):
    monkeypatch.setattr(setup, "fit", lambda _task, _network: 0.25)
    run, reporter = Run.create(tmp_path / "run"), RecordingReporter()
    task = open_task("generate", book, run.cache)
    network = MODELS["markov"](MODELS["markov"].Config(vocab=task.artifacts.tokenizer.vocab))
    trainer = setup.make_fitted_trainer(
        network, task, TrainingSettings(device="cpu"), Checkpointer(run, task), reporter
    )
    assert trainer.state.predictions == round(task.dataset.n_targets / 4)
    assert reporter.lines == ["fitted on the first 25.0% of the data, to limit memory"]


def test_a_head_is_kept_if_the_labels_are_the_same(tmp_path):
    files = {}
    for name, labels in (("same", "ab"), ("other", "ac")):
        files[name] = tmp_path / f"{name}.csv"
        rows = [f"text number {i},{labels[i % 2]}" for i in range(60)]
        files[name].write_text("text,label\n" + "\n".join(rows))
    first, _ = set_up(
        tmp_path, files["same"], "classify", model="classifier", settings=SMALL, seed=1
    )
    base = first.run.path / "last"
    same, lines = set_up(tmp_path, files["same"], "classify", base=base, seed=2)
    assert torch.equal(same.network.head.weight, first.network.head.weight)
    assert f"starting from {base}" in lines
    other, lines = set_up(tmp_path, files["other"], "classify", base=base, seed=2)
    assert not torch.equal(other.network.head.weight, first.network.head.weight)
    assert torch.equal(other.network.token.weight, first.network.token.weight)
    assert f"starting from {base}; re-initialized: head.weight, head.bias" in lines
    assert same.network.config.dropout == 0.3  # the default of the task


def test_a_resumed_run_uses_at_most_the_maximum_number_of_threads(tmp_path, book, monkeypatch):
    trainer, _ = set_up(tmp_path, book, settings=[*SMALL, "model.context=16"], threads=3)
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    monkeypatch.setattr(resume, "max_threads", lambda: 2)
    load_trainer(trainer.run, NullReporter())
    monkeypatch.setattr(resume, "max_threads", lambda: 64)
    load_trainer(trainer.run, NullReporter())
    assert seen == [2, 3]


@pytest.fixture(autouse=True)
def restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
