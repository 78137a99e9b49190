"""Exact values of the small parts of training: schedules, budgets, choices, files, sentences."""

import copy
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cases import CASES
from glassformer import MODELS, GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.task import METRICS, Scores
from glassformer.training import autotune, baseline, compare, plots, recovery, setup
from glassformer.training import request as requests
from glassformer.training import train as training
from glassformer.training.autotune import Autotune, CannotRunError
from glassformer.training.budget import Deadline, StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import Evaluator
from glassformer.training.memory import TooLongError, peak_memory, total_memory
from glassformer.training.optimizers import adamw, layers_after
from glassformer.training.recipe import Recipe, read_recipe
from glassformer.training.run import Run
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.setup import make_budget, make_config, of_size, resolve, with_sizes
from glassformer.training.step import State, Step, StepResult
from glassformer.training.trainer import Trainer


class Clock:
    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now


def deadline(tmp_path, clock, seconds=100.0, **more):
    return Deadline(seconds, tmp_path / "schedule.log", clock=clock, **more)


def plain(**more):
    return TrainingSettings(**{"device": "cpu", "precision": "float32", **more})


def prepared(name, file, folder):
    folder.mkdir(exist_ok=True)
    spec = TASKS[name]
    return spec.open(spec.prepare(DataRequest(files=(file,)), folder, NullReporter()), folder)


def tiny_trainer(tmp_path, book, reporter=None, baseline=None, **settings):
    """A trainer of a network that takes milliseconds a step."""
    run = Run.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
    task = prepared("generate", book, run.cache)
    options = plain(**{"steps": 20, "batch_size": 2, "eval_limit": 40, **settings})
    torch.manual_seed(0)
    kind = MODELS["gpt2"]
    sizes = {"context": 8, "dim": 8, "depth": 1, "heads": 2, "dropout": 0.0}
    network = kind(kind.Config(vocab=task.artifacts.tokenizer.vocab, **sizes))
    batches = task.dataset.train_batches(options.batch, network.context, options.seed)
    step, budget = Step(network, task.objective, options), StepBudget(options.steps)
    keeper = Checkpointer(run, task)
    return Trainer(step, task, batches, budget, keeper, reporter or NullReporter(), baseline)


def take_step(trainer):
    return trainer.take_step(trainer.budget.begin(trainer.state.step))


def weights_of(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()]).clone()


# --- budgets --------------------------------------------------------------------------------------


def test_a_tenth_of_the_steps_ends_where_it_is_full():
    moments = [StepBudget(25).begin(step) for step in range(25)]
    ends = [step + 1 for step, moment in enumerate(moments) if moment.is_tenth]
    assert ends == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    assert all(moment.should_evaluate == moment.is_tenth for moment in moments)
    assert all(StepBudget(7).begin(step).is_tenth for step in range(7))
    assert not StepBudget(100).begin(0).is_tenth


def test_a_budget_of_steps_knows_how_much_is_left():
    budget = StepBudget(40)
    assert budget.steps(10, pace=9.0) == 40
    assert budget.seconds_left(10, pace=0.5) == 15.0


def test_time_is_kept_for_the_end_but_never_more_than_a_quarter(tmp_path):
    assert deadline(tmp_path, Clock()).reserve == 3.0
    short = deadline(tmp_path, Clock(), seconds=8.0)
    assert short.reserve == 2.0
    long = deadline(tmp_path, Clock(), seconds=1000.0)
    long.plan_end(12.0, 20.0)
    assert long.reserve == 12 + 20 + 3
    long.plan_end(12.0, 500.0)
    assert long.reserve == 12 + 75 + 3
    long.plan_end(900.0, 0.0)
    assert long.reserve == 250


def test_a_deadline_counts_the_steps_that_still_fit(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    clock.now += 10
    assert budget.spent == 10
    assert budget.left == 90
    assert budget.seconds_left(5, pace=3.0) == 90
    assert budget.steps(5, pace=3.0) == 5 + 29  # three seconds are kept for the end
    clock.now += 89
    assert budget.steps(30, pace=3.0) == 30
    clock.now += 89
    assert budget.left == 0


def test_an_evaluation_waits_until_it_is_affordable(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    budget.plan_end(0.9, 0.0)
    seen = []
    for step, at in enumerate([0, 11, 21, 31, 32]):
        clock.now = 100.0 + at
        moment = budget.begin(step)
        seen.append((moment.is_tenth, moment.should_evaluate))
        if moment.should_evaluate:
            budget.add_evaluation(0.9, 0.0)
    assert seen == [(False, False), (True, False), (True, True), (True, True), (False, False)]
    assert budget.evaluated == pytest.approx(1.8)
    lines = budget.log.read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["0", "0", "1", "1", "0"]
    assert float(lines[1].split()[0]) == pytest.approx(11 / (100 - 3.9))


def test_all_evaluations_so_far_count_as_spent(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    budget.evaluated, budget.evaluation = 1.0, 0.6  # 1.6 is more than 0.075 of 21 seconds
    clock.now += 21
    assert not budget.begin(0).should_evaluate
    clock.now += 10  # and less than 0.075 of 31
    assert budget.begin(1).should_evaluate


def test_the_schedule_never_goes_back(tmp_path):
    clock = Clock()
    budget = deadline(tmp_path, clock)
    budget.plan_end(20.0, 0.0)
    clock.now += 40
    assert budget.begin(0).position == pytest.approx(1000 * 40 / 77)
    budget.plan_end(0.0, 0.0)
    assert budget.begin(1).position == pytest.approx(1000 * 40 / 77)


def test_what_was_logged_is_taken_again_even_after_the_deadline(tmp_path):
    (tmp_path / "schedule.log").write_text("0.0 0\n0.5 1\n0.9 0\n")
    budget = deadline(tmp_path, Clock(), spent=500.0)
    assert [budget.is_spent(step) for step in range(4)] == [False, False, False, True]
    budget.resume_at(1)
    moment = budget.begin(1)
    assert (moment.position, moment.is_tenth, moment.should_evaluate) == (500.0, True, True)
    assert not budget.begin(2).should_evaluate
    assert len((tmp_path / "schedule.log").read_text().splitlines()) == 3


def test_a_tenth_that_began_before_a_stop_is_not_counted_again(tmp_path):
    (tmp_path / "schedule.log").write_text("0.0 0\n0.5 1\n")
    budget = deadline(tmp_path, Clock(), spent=52.0)
    budget.resume_at(2)
    assert not budget.begin(2).is_tenth
    budget.resume_at(0)
    assert (budget.share, budget.tenth) == (pytest.approx(52 / 97), 5)


def test_a_budget_goes_on_from_a_state(tmp_path):
    run = Run.create(tmp_path / "run")
    network = CASES["gpt2"].network
    state = State(step=0, evals=4, evaluated=2.0, setup=6.0, seconds=9.0)
    found = make_budget(network, TrainingSettings(minutes=2.0), run, state)
    assert found.seconds == 120
    assert found.spent == pytest.approx(15, abs=5)
    assert found.spent >= 15
    assert (found.setup, found.evaluated, found.evaluation) == (6.0, 2.0, 0.5)
    assert found.log == run.path / "schedule.log"
    assert make_budget(network, TrainingSettings(steps=7), run, state) == StepBudget(7)
    fitted = make_budget(CASES["markov"].network, TrainingSettings(minutes=1.0), run, state)
    assert fitted == StepBudget(0)


# --- the learning rate and the settings -----------------------------------------------------------


def test_the_warm_up_rises_in_equal_steps():
    settings = TrainingSettings(lr=11.0, warmup=0.1)
    assert [lr_at(step, 100, settings) for step in (0, 4, 9, 10)] == pytest.approx([1, 5, 10, 11])


@pytest.mark.parametrize(
    ("total", "warmup", "warm"),
    [(20, 0.05, 4), (100, 0.05, 10), (1000, 0.05, 50), (30, 0.5, 15), (4, 0.05, 0), (100, 0.0, 0)],
)
def test_a_warm_up_lasts_ten_steps_or_a_fifth_of_few(total, warmup, warm):
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
def test_the_rate_falls_to_its_smallest(schedule, expected):
    settings = TrainingSettings(lr=2.0, warmup=0.0, schedule=schedule, min_lr_ratio=0.2)
    for position, share in expected.items():
        assert lr_at(position, 100, settings) == pytest.approx(2 * share)


def test_after_the_warm_up_the_rest_of_the_budget_is_the_whole_of_the_fall():
    settings = TrainingSettings(lr=1.0, warmup=0.2, schedule="linear", min_lr_ratio=0.0)
    assert lr_at(20, 100, settings) == pytest.approx(1.0)
    assert lr_at(60, 100, settings) == pytest.approx(0.5)
    assert lr_at(100, 100, settings) == pytest.approx(0.0)


def test_what_is_not_set_is_as_documented():
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
def test_settings_that_exclude_each_other_are_refused(both):
    with pytest.raises(GlassError, match=r"one budget|freeze says nothing"):
        TrainingSettings(**both)


# --- evaluations ----------------------------------------------------------------------------------


class Judged:
    """A task whose metrics are told beforehand."""

    name = "toy"

    def __init__(self, values, name="loss", size=500, final=None, limit=100):
        self.values, self.metric, self.limits, self.previews = list(values), name, [], 0
        self.spec = SimpleNamespace(eval_limit=limit, final_eval_limit=final)
        self.dataset = SimpleNamespace(eval_size=size)

    def evaluate(self, network, limit=None, context=None):
        self.limits.append(limit)
        value = self.values.pop(0) if self.values else 0.0
        return {self.metric: value}, Scores()

    def preview(self, network):
        self.previews += 1
        return "preview"


def judge(values, name="loss", **settings):
    task, state = Judged(values, name), State()
    evaluator = Evaluator(task, TrainingSettings(best_metric=name, **settings))
    network = copy.deepcopy(CASES["gpt2"].network)
    found = []
    for _ in range(len(values)):
        result = evaluator.evaluate(network, state)
        found.append((result.is_best, state.best, state.evals, state.evals_since_best))
    return found, task


def test_a_smaller_loss_is_better_and_an_equal_one_is_not():
    found, task = judge([3.0, 4.0, 3.0, 2.0])
    assert found == [(True, 3.0, 1, 0), (False, 3.0, 2, 1), (False, 3.0, 3, 2), (True, 2.0, 4, 0)]
    assert task.limits == [100] * 4
    assert task.previews == 4


def test_a_higher_accuracy_is_better():
    found, _ = judge([0.5, 0.4, 0.6], "accuracy")
    assert [best for best, *_ in found] == [True, False, True]
    higher = {"accuracy", "f1", "exact", "bleu", "chrf", "next_accuracy"}
    assert {name for name, metric in METRICS.items() if metric.higher_is_better} == higher
    assert METRICS.keys() - higher == {"loss", "perplexity", "bits_per_byte"}


def test_a_metric_that_is_not_finite_is_never_best():
    found, task = judge([math.nan, math.inf, 5.0, math.nan])
    assert [best for best, *_ in found] == [False, False, True, False]
    assert [since for *_, since in found] == [1, 2, 0, 1]
    assert found[-1][1] == 5.0
    assert task.previews == 1  # nothing is shown of a network that says nothing


def test_an_evaluation_reads_as_much_as_was_asked_for():
    _, task = judge([1.0], eval_limit=7)
    assert task.limits == [7]


@pytest.mark.parametrize(
    ("evals", "since", "patience", "stops"),
    [
        (5, 4, None, False), (5, 5, None, True), (12, 5, None, False), (12, 6, None, True),
        (40, 19, None, False), (40, 20, None, True), (9, 9, 0, False), (3, 1, 2, False),
        (3, 2, 2, True), (3, 3, 2, True), (2, 1, 1, True),
    ],
)  # fmt: skip
def test_patience_is_half_of_all_evaluations_or_what_was_asked_for(evals, since, patience, stops):
    evaluator = Evaluator(Judged([]), TrainingSettings(patience=patience))
    state = State(evals=evals, evals_since_best=since)
    assert evaluator.should_stop_early(state) is stops


@pytest.mark.parametrize(
    ("seconds", "final", "limit"),
    [
        (None, None, None), (None, 300, 300), (9.0, None, 450), (9.0, 300, 300),
        (4.0, 300, 200), (0.5, 300, 100), (-2.0, None, 100),
    ],
)  # fmt: skip
def test_the_last_evaluation_reads_what_fits_and_no_less_than_those_before(seconds, final, limit):
    task = Judged([1.0], final=final)
    evaluator = Evaluator(task, TrainingSettings())
    state = State(evals=2, evaluated=4.0)  # two seconds for 100: 0.02 each
    assert evaluator.pace(state) == pytest.approx(0.02)
    evaluator.evaluate_at_end(CASES["gpt2"].network, seconds, state)
    assert task.limits == [limit]


def test_an_evaluation_of_less_than_its_limit_has_the_pace_of_what_there_is():
    evaluator = Evaluator(Judged([], size=40), TrainingSettings())
    assert evaluator.pace(State(evals=1, evaluated=2.0)) == pytest.approx(0.05)
    assert evaluator.pace(State()) == 0
    assert [evaluator.units(limit) for limit in (None, 7, 99)] == [40, 7, 40]


def test_a_metric_that_there_is_not_is_named():
    with pytest.raises(GlassError, match="did you mean 'accuracy'"):
        Evaluator(Judged([]), TrainingSettings(best_metric="acuracy")).metric  # noqa: B018
    with pytest.raises(GlassError, match="toy has no metric 'bleu'; it has loss"):
        Evaluator(Judged([]), TrainingSettings(best_metric="bleu")).value_of({"loss": 1.0, "x": 2})


# --- what is decided by measuring -----------------------------------------------------------------


class Measured:
    """Autotune whose steps take as long as told, in each precision."""

    def __init__(self, monkeypatch, times, ratio=0.5):
        self.calls = []
        monkeypatch.setattr(autotune, "bfloat16_ratio", lambda _network: ratio)

        def pace(_self, settings, rounds):
            self.calls.append((settings.precision, rounds))
            if isinstance(times[settings.precision], Exception):
                raise times[settings.precision]
            return times[settings.precision]

        monkeypatch.setattr(Autotune, "pace", pace)
        batches = SimpleNamespace(per_epoch=7)
        self.tune = Autotune(CASES["gpt2"].network, Judged([]), batches, NullReporter())

    def __call__(self, **settings):
        self.calls.clear()
        return self.tune.decide(TrainingSettings(**settings))


@pytest.mark.parametrize(("half", "chosen"), [(0.85, "bfloat16"), (0.95, "float32")])
def test_half_precision_must_be_clearly_faster(monkeypatch, half, chosen):
    measured = Measured(monkeypatch, {"float32": 1.0, "bfloat16": half})
    assert measured(steps=5).precision == chosen
    assert measured.calls == [("float32", 1), ("bfloat16", 2), ("float32", 2)]


def test_little_time_is_spent_on_choosing_a_precision(monkeypatch):
    measured = Measured(monkeypatch, {"float32": 1.0, "bfloat16": 0.5})
    assert measured(minutes=3.0, eval_limit=1).precision == "bfloat16"  # 4 s are above 3.6
    assert measured.calls == [("float32", 1), ("bfloat16", 1)]
    measured(minutes=4.0, eval_limit=1)  # and below 4.8
    assert measured.calls == [("float32", 1), ("bfloat16", 2), ("float32", 2)]


def test_half_precision_that_is_slow_or_cannot_run_is_not_chosen(monkeypatch):
    slow = Measured(monkeypatch, {"float32": 1.0}, ratio=1.5)
    assert slow(steps=5).precision == "float32"
    assert slow.calls == []
    slow(minutes=1.0, eval_limit=1)
    assert slow.calls == [("float32", 1)]
    slow(steps=5, shrink_on_oom=True)
    assert slow.calls == [("float32", 1)]
    broken = Measured(monkeypatch, {"float32": 1.0, "bfloat16": CannotRunError("no kernel")})
    assert broken(steps=5).precision == "float32"


def test_a_precision_that_was_asked_for_is_tried_where_it_may_fail(monkeypatch):
    measured = Measured(monkeypatch, {"float32": 1.0, "bfloat16": 9.0})
    assert measured(steps=5, precision="bfloat16").precision == "bfloat16"
    assert measured.calls == [("bfloat16", 1)]
    assert measured(steps=5, precision="float32").precision == "float32"
    assert measured.calls == []
    measured(minutes=1.0, eval_limit=1, precision="float32")
    assert measured.calls == [("float32", 1)]


def test_epochs_become_steps_and_no_budget_is_five_minutes(monkeypatch):
    measured = Measured(monkeypatch, {"float32": 1.0})
    found = measured(epochs=2.5, precision="float32")
    assert (found.steps, found.epochs, found.minutes) == (18, None, None)  # 17.5 batches
    assert measured(epochs=0.01, precision="float32").steps == 1
    assert measured(precision="float32", eval_limit=1).minutes == 5.0
    found = measured(steps=4, precision="float32")
    assert (found.steps, found.minutes, found.eval_limit) == (4, None, None)
    assert found.threads == torch.get_num_threads()
    assert measured(steps=4, precision="float32", threads=3).threads == 3


@pytest.mark.parametrize(("took", "limit"), [(0.0, 100), (0.5, 60), (5.0, 25)])
def test_an_evaluation_takes_a_hundredth_of_the_time(monkeypatch, took, limit):
    clock, task = Clock(), Judged([])
    measured = Measured(monkeypatch, {"float32": 1.0})
    evaluate = task.evaluate

    def slow(network, limit=None, context=None):
        clock.now += took
        return evaluate(network, limit, context)

    task.evaluate = slow
    monkeypatch.setattr("glassformer.training.autotune.time.perf_counter", clock)
    tune = replace(measured.tune, task=task)
    found = tune.decide(TrainingSettings(minutes=2.0, precision="float32"))
    assert task.limits == [25]  # a quarter of it tells how long it takes
    assert found.eval_limit == limit  # 1.2 seconds, at 0.02 for each


# --- steps that fail ------------------------------------------------------------------------------


class Memory:
    """A step that fits into memory only in so many pieces, or with so short a context."""

    def __init__(self, pieces=1, context=1000, **settings):
        self.pieces, self.context, self.tried = pieces, context, []
        self.settings = TrainingSettings(**settings)
        self.network = SimpleNamespace(context=64)

    def fits(self, batch, pieces):
        length = next(iter(batch.values())).shape[1]
        self.tried.append((pieces, length))
        return pieces >= self.pieces and length <= self.context


def room_for(step, rows=12, length=64):
    def at(_step):
        return {"ids": torch.zeros(rows, length)}

    task = SimpleNamespace(
        dataset=SimpleNamespace(
            train_batches=lambda batch, context, seed: SimpleNamespace(
                at=lambda _: {"ids": torch.zeros(rows, context)}
            )
        )
    )
    return recovery.pieces_that_fit(step, task, at(0), NullReporter(), "nothing is left")


def test_pieces_are_doubled_until_they_fit():
    step = Memory(pieces=5, shrink_on_oom=True)
    assert room_for(step) == 8
    assert [pieces for pieces, _ in step.tried] == [2, 4, 8]
    step = Memory(pieces=12, accumulate=3, shrink_on_oom=True)
    assert room_for(step) == 12
    assert [pieces for pieces, _ in step.tried] == [6, 12]
    step = Memory(pieces=11, accumulate=8, shrink_on_oom=True)
    assert room_for(step) == 12  # no more than there are rows


def test_pieces_are_told_where_nothing_may_change_by_itself():
    with pytest.raises(GlassError, match=r"12 x 64 .*--set train.accumulate=4; nothing is left"):
        room_for(Memory(pieces=3))


@pytest.mark.parametrize(("context", "fits"), [(40, 32), (16, 16), (9, 8), (7, 0)])
def test_the_longest_half_of_a_context_that_fits_is_told(context, fits):
    with pytest.raises(TooLongError) as error:
        room_for(Memory(context=context, shrink_on_oom=True))
    assert error.value.fits == fits
    way = f"{fits} do: --set model.context={fits}" if fits else "no shorter one does"
    assert str(error.value).startswith("one text of 64 tokens needs more memory")
    assert way in str(error.value)


def test_only_steps_in_a_row_make_it_go_back(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book, reporter)
    trainer.save()
    for skipped in (1, 2):
        trainer.state.skipped = skipped
        recovery.skip_step(trainer, "the loss")
    assert trainer.state.scale == 1
    trainer.state.step, trainer.state.skipped = 9, 3
    recovery.skip_step(trainer, "the loss")
    assert (trainer.state.scale, trainer.state.skipped, trainer.state.step) == (0.3, 0, 0)
    assert reporter.lines[-1] == (
        "3 steps in a row were not finite: back to step 0, with a rate of 3.0e-04"
    )
    saved = json.loads((trainer.run.path / "last" / "training.json").read_text())
    assert saved["scale"] == 0.3
    trainer.state.skipped = 3
    with pytest.raises(GlassError, match=r"train\.lr=1\.0e-04"):
        recovery.skip_step(trainer, "the loss")


def test_a_smaller_rate_is_taken_after_going_back(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, warmup=0.0, lr=0.01)
    trainer.state.scale = 0.5
    assert take_step(trainer).lr == pytest.approx(0.005)


def test_a_step_that_is_taken_ends_a_row_of_skipped_ones(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.state.skipped = 2
    result = take_step(trainer)
    assert (trainer.state.skipped, trainer.state.predictions) == (0, 16)
    assert result.count == 16
    weight = trainer.network.blocks[0].attention.query.weight
    weight.register_hook(lambda gradient: gradient * math.nan)
    assert take_step(trainer).not_finite
    assert (trainer.state.skipped, trainer.state.predictions, trainer.state.step) == (1, 16, 2)


# --- a step ---------------------------------------------------------------------------------------


def test_a_step_tells_the_mean_loss_before_it(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, accumulate=2)
    batch = trainer.batches.at(0)
    with torch.no_grad():
        logits = trainer.network(batch["ids"])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    result = take_step(trainer)
    assert result.loss == pytest.approx(float(expected), rel=1e-5)
    assert all(p.grad is None for p in trainer.network.parameters())


def test_the_smoothing_of_labels_reaches_the_loss(tmp_path, book):
    plain_loss = take_step(tiny_trainer(tmp_path, book)).loss
    trainer = tiny_trainer(tmp_path, book, label_smoothing=0.5)
    batch = trainer.batches.at(0)
    with torch.no_grad():
        logs = trainer.network(batch["ids"]).log_softmax(dim=-1)
    answer = -logs.gather(2, batch["targets"][..., None]).mean()
    expected = 0.5 * float(answer) - 0.5 * float(logs.mean())
    found = take_step(trainer).loss
    assert found == pytest.approx(expected, rel=1e-4)
    assert found != pytest.approx(plain_loss, rel=1e-6)


def test_averaged_weights_count_from_the_first_step(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, ema_decay=0.999, lr=0.1, warmup=0.0)
    before = weights_of(trainer.network)
    take_step(trainer)
    after = weights_of(trainer.network)
    keep = 2 / 11  # of (1 + n) / (10 + n), at n = 1
    average = weights_of(trainer.step.ema.network)
    torch.testing.assert_close(average, keep * before + (1 - keep) * after)
    assert trainer.evaluated_network is trainer.step.ema.network
    plain_one = tiny_trainer(tmp_path, book)
    assert plain_one.evaluated_network is plain_one.network


def test_the_same_step_takes_the_same_batch_whatever_came_before(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    seen = []
    at = trainer.batches.at
    trainer.batches = SimpleNamespace(at=lambda step: seen.append(step) or at(step))
    for _ in range(3):
        take_step(trainer)
    assert seen == [0, 1, 2]


def test_layers_nearer_the_text_have_a_smaller_scale():
    network = CASES["gpt2"].network
    names = ["token.weight", "position.weight", "blocks.0.attention.query.weight",
             "blocks.1.feedforward.up.bias", "norm.weight"]  # fmt: skip
    assert [layers_after(network, name) for name in names] == [2, 2, 1, 0, 0]
    optimizer = adamw(
        copy.deepcopy(network), TrainingSettings(layer_lr_decay=0.5, lr=0.3, beta2=0.7), None
    )
    assert {table["scale"] for table in optimizer.param_groups} == {1.0, 0.5, 0.25}
    assert {table["betas"] for table in optimizer.param_groups} == {(0.9, 0.7)}


def test_only_the_named_group_is_trained_and_nothing_that_is_frozen():
    network = copy.deepcopy(CASES["gpt2"].network)
    settings = TrainingSettings(freeze=("blocks.0.*",))
    held = {id(p) for t in adamw(network, settings, "blocks").param_groups for p in t["params"]}
    for name, parameter in network.named_parameters():
        assert (id(parameter) in held) == name.startswith("blocks.1."), name
        assert parameter.requires_grad != name.startswith("blocks.0."), name
    with pytest.raises(GlassError, match="no weight is called"):
        adamw(network, TrainingSettings(freeze=("blocks.7.*",)), None)
    with pytest.raises(GlassError, match="nothing is left to learn"):
        adamw(network, TrainingSettings(freeze=("*",)), None)


def test_a_body_is_frozen_by_its_own_names():
    network = copy.deepcopy(CASES["gpt2_classifier"].network)
    adamw(network, TrainingSettings(freeze=("token.*",)), None)
    assert not network.body.token.weight.requires_grad
    assert network.body.position.weight.requires_grad


# --- the loop -------------------------------------------------------------------------------------


def events(tmp_path, book, **settings):
    """At which steps a run was evaluated and saved."""
    trainer = tiny_trainer(tmp_path, book, **settings)
    evaluated, saved = [], []
    evaluate, save = trainer.evaluate, trainer.save
    trainer.evaluate = lambda: (evaluated.append(trainer.state.step), evaluate())
    trainer.save = lambda: (saved.append(trainer.state.step), save())
    trainer.loop()
    return evaluated, saved


def test_it_is_evaluated_and_saved_when_asked_and_at_the_end(tmp_path, book):
    evaluated, saved = events(tmp_path, book, steps=7, evaluate_every=3, save_every=2)
    assert evaluated == [3, 6, 7]
    assert saved == [2, 4, 6, 7]


def test_it_is_saved_as_often_as_it_is_evaluated_and_once_at_the_end(tmp_path, book):
    evaluated, saved = events(tmp_path, book, steps=6, evaluate_every=3)
    assert evaluated == [3, 6]
    assert saved == [3, 6]


def test_an_evaluation_is_written_down(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book, reporter)
    take_step(trainer)
    trainer.evaluate()
    (line,) = trainer.run.metrics()
    assert (line["kind"], line["step"], line["tokens"]) == ("validation", 1, 41)
    assert trainer.state.best == line["loss"]
    assert (trainer.state.evaluated_at, trainer.state.evals) == (1, 1)
    assert 0 < trainer.state.evaluated < 60
    assert reporter.lines[-1].startswith("step 1: loss ")
    assert reporter.lines[-1].endswith("  (best)")
    assert (trainer.run.path / "best" / "model.safetensors").exists()
    trainer.evaluate()
    assert not reporter.lines[-1].endswith("(best)")
    assert len(trainer.run.metrics()) == 2


def test_the_evaluation_at_the_end_is_of_the_best_weights(tmp_path, book):
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


def test_about_two_hundred_steps_are_noted(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, steps=800)
    for step in (1, 3, 4, 8, 9):
        trainer.state.step, trainer.state.seconds = step, 2.0
        trainer.report(StepResult(loss=1.5, norm=0.5, count=16, lr=0.25))
    noted = trainer.run.metrics()
    assert [line["step"] for line in noted] == [4, 8]
    values = {"kind": "train", "step": 4, "loss": 1.5, "lr": 0.25, "grad_norm": 0.5, "count": 16}
    assert noted[0] == values


def test_a_line_of_progress_tells_what_matters(tmp_path, book):
    told = []
    trainer = tiny_trainer(tmp_path, book, steps=100, baseline={"bits_per_byte": 2.5})
    trainer.reporter.line = told.append
    trainer.state.step, trainer.state.seconds, trainer.state.best = 10, 20.0, 1.25
    trainer.report(StepResult(loss=1.5, norm=0.5, count=16, lr=0.25))
    assert told[0].startswith(
        "step 10/100  loss 1.500  best loss 1.25 (counting: bits_per_byte 2.5)  3:00 left  "
        "rate 2.5e-01  gradient 0.50  8 tokens/s  "
    )


def test_the_standing_names_the_baselines_metric_only_if_it_is_another(tmp_path, book):
    both = {"loss": 2.0, "bits_per_byte": 2.5}
    trainer = tiny_trainer(tmp_path, book, baseline=both, best_metric="bits_per_byte")
    assert trainer.standing() == "(counting: 2.5)  "
    trainer.state.best = 3.0
    assert trainer.standing() == "best bits per byte 3 (counting: 2.5)  "
    trainer.baseline = {}
    assert trainer.standing() == "best bits per byte 3 "


def test_the_last_evaluation_is_expected_to_take_its_share(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.state.evals, trainer.state.evaluated = 2, 8.0  # 4 seconds for 40 tokens
    size = trainer.task.dataset.valid.size
    assert trainer.final_seconds() == pytest.approx(0.1 * size)
    trainer.state.predictions, trainer.state.seconds = 90, 30.0
    assert trainer.speed() == 3.0


def test_a_deadline_is_told_how_long_an_evaluation_takes(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.budget = deadline(tmp_path, Clock(), seconds=1000.0)
    trainer.evaluate()
    assert trainer.budget.evaluated == trainer.state.evaluated > 0
    expected = trainer.state.evaluated + trainer.final_seconds() + 3
    assert trainer.budget.reserve == pytest.approx(expected)


def test_the_first_request_to_stop_is_told_from_the_second(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book, reporter)
    assert not trainer.is_over()
    assert trainer.stop()
    assert trainer.is_over()
    assert not trainer.stop()
    assert len(reporter.lines) == 1
    assert trainer.train() is None
    assert reporter.lines[-1] == f"stopped and saved; go on with: glass resume {trainer.run.path}"
    assert trainer.run.metrics() == []


def test_settings_that_change_on_the_way_are_remembered(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    trainer.change(accumulate=2)
    trainer.change(patience=3)
    assert trainer.state.changed == {"accumulate": 2, "patience": 3}
    assert trainer.step.settings.accumulate == trainer.evaluator.settings.accumulate == 2
    assert trainer.evaluator.settings.patience == 3
    assert trainer.settings.lr == 1e-3


# --- checkpoints ----------------------------------------------------------------------------------


def test_everything_that_a_state_holds_comes_back(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, ema_decay=0.5)
    take_step(trainer)
    state = State(
        step=3, best=1.5, evals=4, evals_since_best=2, evaluated_at=2, evaluated=0.5, setup=7.0,
        seconds=9.0, predictions=77, skipped=1, scale=0.3, changed={"accumulate": 2},
    )  # fmt: skip
    average, random = weights_of(trainer.step.ema.network), torch.get_rng_state()
    trainer.checkpointer.save_last(trainer.step, state)
    take_step(trainer)
    torch.rand(5)
    again = trainer.checkpointer.reload(trainer.step)
    assert asdict(again) == asdict(state)
    assert torch.equal(weights_of(trainer.step.ema.network), average)
    assert torch.equal(torch.get_rng_state(), random)


def test_moments_come_back_and_figures_of_later_steps_go(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    take_step(trainer)
    for step in (0, 1, 2):
        trainer.run.note("train", step=step, loss=1.0)
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


def test_what_is_left_is_told(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book)
    assert trainer.checkpointer.what_is_left() == "there is no checkpoint"
    trainer.state.step = 1234
    trainer.save()
    assert trainer.checkpointer.what_is_left() == (
        f"the checkpoint of step 1,234 is whole: glass resume {trainer.run.path}"
    )


@pytest.mark.parametrize("wrong", [{"step": -1}, {"seconds": math.inf}, {"scale": 0.0},
                                   {"scale": 1.1}, {"evals": -1}, {"skipped": -2}])  # fmt: skip
def test_a_state_that_cannot_be_is_refused(wrong):
    with pytest.raises(GlassError, match=next(iter(wrong))):
        State(**wrong)
    assert State(scale=1.0).evaluated_at == -1


# --- baselines ------------------------------------------------------------------------------------


class Counted:
    """A dataset that notes which share of it was counted, at so many seconds for all of it."""

    def __init__(self, size, clock, seconds):
        self.size, self.clock, self.seconds, self.shares = size, clock, seconds, []

    def fit(self, network, share):
        self.shares.append(share)
        self.clock.now += self.seconds * share
        return share


@pytest.mark.parametrize(
    ("size", "table", "seconds", "total", "shares"),
    [
        (50_000, False, None, 1.0, [1.0]),  # all of it
        (4_000_000, False, None, 1.0, [0.5]),  # as much as memory allows
        (4_000_000, True, None, 1.0, [1.0]),
        (50_000, False, 10.0, 1.0, [1.0]),  # so little that no trial is needed
        (1_000_000, False, 10.0, 5.0, [0.005, 0.1, 1.0]),
        (1_000_000, False, 10.0, 20.0, [0.005, 0.1, 0.28]),  # 0.7 of 8 seconds, at 20 for all
        (1_000_000, False, 2.0, 100.0, [0.005, 0.1]),  # the trial was all that fits
        (8_000_000, False, 10.0, 1.0, [0.000625, 0.0125, 0.25]),
    ],
)
def test_a_baseline_counts_as_much_as_fits(monkeypatch, size, table, seconds, total, shares):
    clock = Clock()
    dataset = Counted(size, clock, total)
    monkeypatch.setattr("glassformer.training.baseline.time.monotonic", clock)
    task = SimpleNamespace(dataset=dataset, spec=SimpleNamespace(is_table=table))
    found = baseline.fit(task, None, seconds)
    assert dataset.shares == pytest.approx(shares)
    assert found == pytest.approx(shares[-1])


@pytest.mark.parametrize(("took", "limit"), [(0.01, 500), (2.0, 40), (100.0, 10)])
def test_a_baseline_is_evaluated_on_as_much_as_fits(monkeypatch, took, limit):
    clock, task = Clock(), Judged([])
    evaluate = task.evaluate

    def slow(network, limit=None, context=None):
        clock.now += took
        assert context == 9
        return evaluate(network, limit, context)

    task.evaluate = slow
    monkeypatch.setattr("glassformer.training.baseline.time.monotonic", clock)
    network = copy.deepcopy(CASES["gpt2"].network)
    assert baseline.affordable(task, network, 500, 9, until=110.0) == limit
    assert task.limits == [10]  # a tenth of an evaluation


def test_a_baseline_is_beaten_in_the_direction_of_its_metric():
    for name, ours, theirs in (("generate", 1.0, 2.0), ("classify", 0.9, 0.8)):
        task = SimpleNamespace(spec=TASKS[name])
        metric = TASKS[name].metric.name
        better, worse = {metric: ours}, {metric: theirs}
        assert baseline.beats(task, better, worse)
        assert not baseline.beats(task, worse, better)
        assert not baseline.beats(task, better, better)
        assert ": better than " in baseline.sentence(task, better, worse)
        assert ": NOT better than " in baseline.sentence(task, worse, better)
    task = SimpleNamespace(spec=TASKS["classify"])
    assert baseline.sentence(task, {"accuracy": 0.8}, {"accuracy": 0.9}) == (
        "accuracy 0.8: NOT better than weighing phrases (NB-SVM) (accuracy 0.9); for this data, "
        "as it stands, counting is enough: --model nb_svm"
    )


def test_a_baseline_is_saved_with_its_metrics(tmp_path, book):
    reporter = RecordingReporter()
    trainer = tiny_trainer(tmp_path, book)
    found = baseline.fit_baseline(trainer.task, trainer.run, plain(steps=3), 8, reporter)
    assert baseline.known_baseline(trainer.run, trainer.task) == found
    assert (found["model"], found["share"]) == ("markov", 1.0)
    assert reporter.lines[-1].startswith("counting n-grams: bits per byte ")
    file = trainer.run.path / "baseline" / "figures.json"
    file.write_text('{"loss": 2}')
    with pytest.raises(GlassError, match="does not say bits_per_byte"):
        baseline.known_baseline(trainer.run, trainer.task)
    file.unlink()
    assert baseline.known_baseline(trainer.run, trainer.task) == {}


# --- what was asked for ---------------------------------------------------------------------------


def asked(task="generate", *, settings=(), anew=True, **options):
    return requests.Request.of(task, (), None, list(settings), options, anew=anew)


def test_what_is_set_wins_over_what_suits_the_task():
    assert asked().learning.lr == 1.5e-3
    assert asked(lr=0.5).learning.lr == 0.5
    assert asked(settings=["train.lr=0.25"], lr=0.5).learning.lr == 0.25
    assert asked("translate").learning.beta2 == 0.98
    assert asked(settings=["model.dim=8", "train.steps=4"]).settings == ["dim=8"]
    found = asked(seed=7, valid_fraction=0.3)
    assert (found.data.seed, found.learning.seed, found.data.valid_fraction) == (7, 7, 0.3)


def test_what_has_learnt_already_learns_at_a_fifth_of_the_rate():
    assert asked(anew=False).learning.lr == pytest.approx(3e-4)
    assert asked(anew=False, lr=0.5).learning.lr == 0.5
    assert asked(anew=False, lora=4).learning.lr == 1.5e-3
    assert asked(anew=False, settings=["train.lora=4"]).learning.lr == 1.5e-3
    assert asked(anew=False, lora=0).learning.lr == pytest.approx(3e-4)


def test_one_budget_takes_the_place_of_another():
    found = asked(steps=5, settings=["train.minutes=2.0"]).learning
    assert (found.steps, found.minutes) == (None, 2.0)
    recipe = Recipe("generate", train={"epochs": 3.0, "lr": 0.5})
    found, _ = requests.sort_options(TASKS["generate"], recipe, {"steps": 9})
    assert (found.steps, found.epochs, found.lr) == (9, None, 0.5)
    found, _ = requests.sort_options(TASKS["generate"], recipe, {"steps": None})
    assert (found.steps, found.epochs) == (None, 3.0)


def test_a_recipe_is_read_and_what_is_asked_for_wins(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        'task = "classify"\n[data]\nvocab = 500\n[model]\nname = "bert"\ndim = 16\n'
        "[train]\nsteps = 4\nlr = 0.5\n"
    )
    found = requests.Request.of(None, (), file, [], {"lr": 0.25})
    assert (found.spec.name, found.data.vocab, found.table) == (
        "classify", 500, {"name": "bert", "dim": 16}
    )  # fmt: skip
    assert (found.learning.steps, found.learning.lr) == (4, 0.25)
    with pytest.raises(GlassError, match="is a recipe for classify, not for generate"):
        requests.Request.of("generate", (), file, [], {})
    data = tmp_path / "data.csv"
    data.write_text("text,label\na,b\n")
    assert requests.Request.of(str(data), (), file, [], {}).data.files == (data,)
    file.write_text('task = "classify"\ntrain = 3\n')
    with pytest.raises(GlassError, match="train must be a table"):
        read_recipe(file)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("generate", {"batch_tokens": 9}, "counts a batch in examples: set train.batch_size"),
        ("classify", {"batch_size": 9}, "counts a batch in tokens: set train.batch_tokens"),
        ("generate", {"threads": 4096}, "threads must be at most"),
        ("generate", {"optimizer": "adamv"}, "no optimizer 'adamv'"),
        ("generate", {"device": "abacus"}, "there is no device 'abacus' here"),
        ("generate", {"valid": ["no-such-file"]}, "there is no file no-such-file"),
        ("generate", {"lrr": 1}, "there is no setting 'lrr'"),
    ],
)
def test_what_cannot_be_asked_for_is_named(monkeypatch, task, options, message):
    monkeypatch.setattr(requests.os, "cpu_count", lambda: 8)
    with pytest.raises(GlassError, match=message):
        asked(task, **options)


@pytest.mark.parametrize(
    ("task", "anew", "options", "message"),
    [
        ("classify", True, {"extend": True}, "extend adds to the tokenizer of a model"),
        ("classify", False, {"extend": True, "lora": 2}, "new ones cannot be learnt"),
        ("classify", False, {"vocab": 99}, "has a tokenizer: no --tokenizer"),
        ("classify", False, {"tokenizer": "words"}, "has a tokenizer: no --tokenizer"),
        ("generate", True, {"group": "who"}, "generate has no groups of rows"),
        ("generate", True, {"valid": ["-", "-"]}, "standard input can be read only once"),
    ],
)
def test_what_would_be_passed_over_is_refused(task, anew, options, message):
    with pytest.raises(GlassError, match=message):
        asked(task, **options).check(anew=anew)


def test_what_makes_sense_is_not_refused():
    asked("classify", extend=True).check(anew=False)
    asked("classify", group="who", vocab=99).check(anew=True)
    asked("generate", valid=["-"]).check(anew=True)


@pytest.mark.parametrize(("cores", "threads"), [(1, 64), (16, 64), (32, 128), (None, 64)])
def test_threads_are_at_most_four_for_each_core(monkeypatch, cores, threads):
    monkeypatch.setattr(requests.os, "cpu_count", lambda: cores)
    assert requests.most_threads() == threads


# --- setting up -----------------------------------------------------------------------------------


def test_a_models_settings_are_those_of_the_task_then_the_recipes_then_what_is_set():
    spec = TASKS["generate"]
    found = make_config("gpt2", spec, {}, [])
    assert (found.dim, found.depth, found.heads, found.context, found.dropout) == (
        192, 4, 6, 128, 0.0
    )  # fmt: skip
    found = make_config("gpt2", spec, {"dim": 48, "depth": 2}, ["depth=3"])
    assert (found.dim, found.depth) == (48, 3)
    with pytest.raises(GlassError, match=r"not by 'bert', which does fill-mask"):
        make_config("bert", spec, {}, [])
    assert resolve("bert", TASKS["classify"]) == "bert_classifier"
    assert resolve("gpt2", TASKS["generate"]) == "gpt2"


def test_the_data_decides_some_sizes(tmp_path, book):
    task = prepared("generate", book, tmp_path / "cache")
    config = with_sizes(MODELS["gpt2"].Config(dim=24), task)
    assert config.vocab == task.artifacts.tokenizer.vocab
    assert config.dim == 24


def test_a_width_is_that_nearest_to_a_number_of_parameters():
    kind = MODELS["gpt2"]
    config = kind.Config(vocab=50, context=16, depth=2, heads=3)

    def count(dim):
        return sum(p.numel() for p in kind(replace(config, dim=dim)).parameters())

    sizes = {dim: count(dim) for dim in range(6, 120, 6)}  # even heads
    for parameters in (1, 5_000, 20_000, 60_001, 100_000):
        found = of_size("gpt2", config, parameters).dim
        assert found == min(sizes, key=lambda dim: abs(sizes[dim] - parameters)), parameters
    assert setup.count_parameters("gpt2", replace(config, dim=12)) == sizes[12]
    wide = MODELS["translator"].Config(vocab=50, dim=16, depth=1, heads=2, hidden=16)
    found = of_size("translator", wide, 20_000)
    assert found.hidden == 4 * found.dim


@pytest.mark.parametrize(
    ("settings", "copies"),
    [({}, 4), ({"ema_decay": 0.9}, 5), ({"lora": 2}, 1), ({"freeze": ("a",)}, 1)],
)
def test_a_network_needs_room_for_its_gradients_and_moments(monkeypatch, settings, copies):
    kind = MODELS["gpt2"]
    config = kind.Config(vocab=50, context=16, dim=12, depth=1, heads=2)
    needed = 4 * setup.count_parameters("gpt2", config) * copies / 1e9
    monkeypatch.setattr(setup, "total_memory", lambda: 1.001 * needed)
    setup.check_memory("gpt2", config, plain(**settings))
    monkeypatch.setattr(setup, "total_memory", lambda: 0.999 * needed)
    with pytest.raises(GlassError, match="take a smaller model"):
        setup.check_memory("gpt2", config, plain(**settings))


def test_texts_that_are_cut_are_told(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f"{'word ' * (40 if i < 30 else 3)}{i},{'ab'[i % 2]}" for i in range(100)]
    file.write_text("text,label\n" + "\n".join(rows))
    task, reporter = prepared("classify", file, tmp_path / "cache"), RecordingReporter()
    network = SimpleNamespace(context=20)
    setup.first_batches(network, task, plain(), reporter)
    long = int((task.dataset.texts["train"].lengths > 20).sum())
    assert 10 < long <= 30
    assert reporter.lines == [
        f"{long} texts are longer than the context of 20 and are cut; "
        "--set model.context=40 reads more of them"
    ]


def test_memory_is_counted_in_gigabytes():
    assert 0.02 < peak_memory() < total_memory() < 1e5


# --- run folders ----------------------------------------------------------------------------------


def test_a_run_forgets_what_is_gone_through_again(tmp_path):
    run = Run.create(tmp_path / "run")
    for step in (1, 2, 3):
        run.note("train", step=step, loss=float(step))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    run.forget_after(2)
    assert [line["step"] for line in run.metrics()] == [1, 2]
    assert run.metrics()[1] == {"kind": "train", "step": 2, "loss": 2.0}


def test_a_file_that_grows_may_be_longer_but_not_shorter_or_other(tmp_path):
    run = Run.create(tmp_path / "run")
    for name in ("train.log", "config.toml"):
        (run.path / name).write_text("one\n")
    (run.path / "cache" / "train.ids").write_text("ids")
    run.seal()
    assert run.damage() == []
    (run.path / "train.log").write_text("one\ntwo\n")
    assert run.damage() == []
    (run.path / "train.log").write_text("onf\ntwo\n")
    assert run.damage() == [f"{run.path}/train.log is damaged: its content is not what was written"]
    (run.path / "train.log").write_text("on")
    (run.path / "config.toml").write_text("one\ntwo\n")
    assert len(run.damage()) == 2
    assert run.damage(("config",)) == [f"{run.path}/config.toml is damaged: 8 bytes, not 4"]
    (run.path / "cache" / "train.ids").unlink()
    with pytest.raises(GlassError, match=r"train\.ids is missing"):
        run.require("cache/")


def test_a_file_that_changed_is_hashed_again(tmp_path):
    run = Run.create(tmp_path / "run")
    file = run.path / "README.md"
    file.write_text("one")
    run.seal()
    file.write_text("three")
    run.seal()
    assert run.damage() == []


def test_a_new_run_takes_the_place_of_an_old_one_and_gives_it_back(tmp_path):
    old = Run.create(tmp_path / "run")
    (old.path / "request.json").write_text("{}")
    (old.path / "mine").write_text("old")
    new = Run.create(tmp_path / "run", overwrite=True)
    assert not (new.path / "mine").exists()
    assert new.cache.is_dir()
    new.give_up()
    assert (new.path / "mine").read_text() == "old"
    assert not new.aside.exists()


def test_what_the_numbers_depend_on_is_compared(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run")
    run.describe({"task": {"name": "x"}}, None)
    assert run.changed() == []
    noted = json.loads((run.path / "env.json").read_text())
    assert noted.keys() == {"glassformer", "torch", "python", "system", "threads"}
    noted["torch"] = "1.0"
    del noted["python"]
    (run.path / "env.json").write_text(json.dumps(noted))
    assert run.changed() == [("torch", "1.0"), ("python", "unknown")]


# --- going on -------------------------------------------------------------------------------------


def test_more_steps_or_minutes_are_another_end(tmp_path, book):
    trainer = tiny_trainer(tmp_path, book, steps=5)
    trainer.state = State(step=5, setup=20.0, seconds=40.0, evals_since_best=4, evals=6)
    with pytest.raises(GlassError, match="5 steps are done already"):
        training.extend(trainer, 5, None)
    training.extend(trainer, 9, None)
    assert trainer.budget == StepBudget(9)
    assert (trainer.settings.steps, trainer.settings.minutes) == (9, None)
    assert trainer.state.evals_since_best == 0
    training.extend(trainer, None, 2.0)
    assert (trainer.settings.steps, trainer.settings.minutes) == (None, pytest.approx(3.0))
    assert trainer.budget.left == pytest.approx(120, abs=10)
    saved = json.loads((trainer.run.path / "last" / "training.json").read_text())
    assert saved["changed"] == {"steps": None, "minutes": pytest.approx(3.0)}


def test_a_run_that_was_done_tells_what_came_of_it(tmp_path, book, monkeypatch):
    reporter = RecordingReporter()
    metrics = {"bits_per_byte": 2.0}
    trainer = tiny_trainer(tmp_path, book, reporter, baseline=metrics, steps=2, evaluate_every=1)
    monkeypatch.setattr(training, "peak_memory", lambda: 1.234)
    result = training.finish(trainer, reporter)
    size = sum(p.numel() for p in trainer.network.parameters())
    assert (result["task"], result["model"], result["parameters"]) == ("generate", "gpt2", size)
    assert (result["steps"], result["memory"], result["baseline"]) == (2, 1.23, metrics)
    assert result["run"] == str(trainer.run.path)
    assert result["tokens"] == trainer.task.dataset.valid.size
    assert sorted(p.name for p in (trainer.run.path / "plots").iterdir()) == [
        "bits_per_byte.png", "loss.png", "lr.png"
    ]  # fmt: skip
    card = (trainer.run.path / "README.md").read_text()
    assert card.startswith("# generate with gpt2\n\n| what | value |\n")
    assert "| steps | 2 |" in card
    assert "NOT better than counting n-grams" in card
    assert any(line.startswith("it saw its data 0.0 times") for line in reporter.lines)
    assert trainer.run.damage() == []


def test_names_of_files_are_made_absolute_but_standard_input_is_not():
    assert training.absolute("-") == "-"
    assert training.absolute("a/b") == str(Path.cwd() / "a" / "b")


# --- pictures and comparisons ---------------------------------------------------------------------


def test_a_leap_is_six_times_what_the_losses_before_differ_by():
    steady = [1.0 + 0.1 * (i % 2) for i in range(20)]  # the middle is 1.1, half of the spread 0.05
    assert plots.spikes([*steady, 1.39]) == []
    assert plots.spikes([*steady, 1.41]) == [20]
    level = [1.0] * 20  # a hundredth of the middle at least
    assert plots.spikes([*level, 1.059]) == []
    assert plots.spikes([*level, 1.061]) == [20]
    assert plots.spikes([9.0, *level[1:]]) == []
    assert plots.spikes([*level, 2.0, 1.0, 2.0]) == [20, 22]


def test_the_figures_of_the_end_are_no_part_of_a_curve():
    lines = [
        {"kind": "train", "step": 1, "loss": 1.0},
        {"kind": "validation", "step": 2, "loss": 1.0},
        {"kind": "validation", "step": 3, "f1": 1.0},
        {"kind": "final", "step": 3, "loss": 1.0},
    ]
    assert [line["step"] for line in plots.evaluations(lines, "loss")] == [2]


ROWS = [
    {"name": "a", "accuracy": 0.5, "f1": 0.25, "loss": 1.5, "parameters": 12345, "steps": 7,
     "speed": 1234.5, "memory": 0.5, "seconds": 61.0},
]  # fmt: skip


COSTS = {name: value for name, value in ROWS[0].items() if name != "name"}


def test_a_table_of_models_shows_the_metric_first_then_the_costs():
    spec = TASKS["classify"]
    head, row = compare.table(spec, ROWS)
    costs = ["parameters", "steps", "texts/s", "GB", "seconds"]
    assert head == ["model", "accuracy", "f1", "loss", *costs]
    assert row == ["a", "0.5", "0.25", "1.5", "12,345", "7", "1,234", "0.5", "61"]
    without = [*ROWS, {name: value for name, value in ROWS[0].items() if name != "f1"}]
    assert compare.columns(spec, without)[:2] == ["accuracy", "loss"]
    full = [ROWS[0] | {"perplexity": 1.0, "bits_per_byte": 1.0}]
    assert compare.columns(TASKS["generate"], full)[:4] == [
        "bits_per_byte", "perplexity", "f1", "parameters"
    ]  # fmt: skip


def test_a_report_names_the_budget_and_the_data():
    asked = {"data": ["/x/my file.csv"], "steps": 30, "minutes": None, "parameters": 20_000}
    text = compare.report(ROWS, TASKS["classify"], asked)
    assert text.startswith("# classify: 1 models, 30 steps and about 20,000 parameters each\n")
    assert "| a | 0.5 | 0.25 | 1.5 |" in text
    assert "Data: 'my file.csv';" in text
    assert "seed 0;" in text
    text = compare.report(ROWS, TASKS["classify"], {"data": [], "minutes": 2.0, "seed": 5})
    assert text.startswith("# classify: 1 models, 2.0 minutes each\n")
    assert "Data: the built-in sample;" in text
    assert "seed 5;" in text


def test_the_same_comparison_goes_on_where_it_was_begun(tmp_path):
    arguments = {"task": "classify", "data": [], "models": ["a", "b"], "text": ("x",)}
    first = compare.folder_for(arguments, tmp_path)
    assert first == tmp_path / "compare-1"
    compare.begun(first, arguments)
    assert compare.folder_for(arguments, tmp_path) == first
    assert compare.folder_for({**arguments, "task": "generate"}, tmp_path) == tmp_path / "compare-2"
    (first / "README.md").write_text("done")
    assert compare.folder_for(arguments, tmp_path) == tmp_path / "compare-2"
    with pytest.raises(GlassError, match="holds another comparison"):
        compare.begun(first, {**arguments, "task": "generate"})


def test_the_best_model_comes_first(tmp_path, monkeypatch):
    for task, metric, order in (
        ("classify", "accuracy", "ba"),
        ("generate", "bits_per_byte", "ab"),
    ):
        names = {"a": TASKS[task].models[0], "b": TASKS[task].models[-1]}
        values = {names["a"]: 0.5, names["b"]: 0.75}
        monkeypatch.setattr(
            compare, "contend",
            lambda one, path, arguments, values=values, metric=metric: {
                **COSTS, metric: values[one.model]
            },
        )  # fmt: skip
        _, rows = compare.compare(
            task, models=names.values(), run=tmp_path / task, reporter=NullReporter(), steps=3
        )
        assert [row["name"] for row in rows] == [names[letter] for letter in order]
        assert (tmp_path / task / "compare.png").exists()


def test_a_trainer_of_what_is_fitted_has_nothing_left_to_do(tmp_path, book):
    run = Run.create(tmp_path / "run")
    task = prepared("generate", book, run.cache)
    kind = MODELS["markov"]
    network = kind(kind.Config(vocab=task.artifacts.tokenizer.vocab))
    trainer = setup.fitted_trainer(
        network, task, TrainingSettings(device="cpu"), Checkpointer(run, task), NullReporter()
    )
    assert trainer.is_over()
    assert trainer.state.predictions == task.dataset.predictions
    assert trainer.settings.precision == "float32"
    assert np.isfinite(trainer.speed())


# --- from a request to the first step -------------------------------------------------------------


def set_up(tmp_path, file, task="generate", base=None, model=None, settings=(), **options):
    """A trainer at its first step, and what was said on the way."""
    given = {"steps": 3, "device": "cpu", "precision": "float32", "baseline": False, **options}
    request = requests.Request.of(task, [file], None, list(settings), given, anew=base is None)
    start = setup.Start.of(request, base, model)
    run, reporter = (
        Run.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}"),
        RecordingReporter(),
    )
    data = replace(request.data, model=start.architecture, base_tokenizer=start.tokenizer)
    ready = training.prepare(request.spec, data, run, reporter)
    began = training.time.monotonic() - 5.0
    return setup.set_up(start, ready, request.learning, run, reporter, began), reporter.lines


SMALL = ["model.dim=8", "model.depth=1", "model.heads=2"]


def test_what_was_decided_is_written_down_before_the_first_step(tmp_path, book):
    trainer, lines = set_up(tmp_path, book, settings=[*SMALL, "model.context=16"], seed=4)
    tables = training.read_toml(trainer.run.path / "config.toml")
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
    assert 5 <= trainer.state.setup < 300
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
    again = training.continued(trainer.run, NullReporter())
    assert torch.equal(weights_of(again.network), weights_of(trainer.network))
    assert (again.settings, again.state) == (trainer.settings, trainer.state)
    assert again.budget == StepBudget(3)


def test_a_number_of_parameters_decides_the_width_but_not_of_a_model_that_there_is(tmp_path, book):
    trainer, _ = set_up(tmp_path, book, settings=SMALL, parameters=9_000)
    assert trainer.network.config.dim > 8
    assert sum(p.numel() for p in trainer.network.parameters()) == pytest.approx(9_000, rel=0.3)
    trainer.save()
    base = trainer.run.path / "last"
    other, lines = set_up(tmp_path, book, base=base, parameters=90_000)
    assert other.network.config.dim == trainer.network.config.dim
    assert f"starts from {base}" in lines
    assert torch.equal(weights_of(other.network), weights_of(trainer.network))
    with pytest.raises(GlassError, match="becomes gpt2, not llama"):
        set_up(tmp_path, book, base=base, model="llama")
    adapted, lines = set_up(tmp_path, book, base=base, lora=2)
    learn = sum(p.numel() for p in adapted.network.parameters() if p.requires_grad)
    assert f", of which {learn:,} learn; 3 steps" in lines[-1]
    assert (adapted.checkpointer.adapter.rank, adapted.checkpointer.adapter.base) == (2, str(base))
    with pytest.raises(GlassError, match="name it with --from"):
        set_up(tmp_path, book, lora=2)


def test_a_head_is_kept_where_the_labels_are_the_same(tmp_path):
    files = {}
    for name, labels in (("same", "ab"), ("other", "ac")):
        files[name] = tmp_path / f"{name}.csv"
        rows = [f"text number {i},{labels[i % 2]}" for i in range(60)]
        files[name].write_text("text,label\n" + "\n".join(rows))
    first, _ = set_up(tmp_path, files["same"], "classify", settings=SMALL, seed=1)
    base = first.run.path / "last"
    same, lines = set_up(tmp_path, files["same"], "classify", base=base, seed=2)
    assert torch.equal(same.network.head.weight, first.network.head.weight)
    assert f"starts from {base}" in lines
    other, lines = set_up(tmp_path, files["other"], "classify", base=base, seed=2)
    assert not torch.equal(other.network.head.weight, first.network.head.weight)
    assert torch.equal(other.network.token.weight, first.network.token.weight)
    assert f"starts from {base}; anew: head.weight, head.bias" in lines
    assert same.network.config.dropout == 0.3  # that of the task


def test_a_run_with_more_threads_than_there_may_be_takes_as_many_as_there_may(
    tmp_path, book, monkeypatch
):
    trainer, _ = set_up(tmp_path, book, settings=[*SMALL, "model.context=16"], threads=3)
    seen = []
    monkeypatch.setattr(training.torch, "set_num_threads", seen.append)
    monkeypatch.setattr(training, "most_threads", lambda: 2)
    training.continued(trainer.run, NullReporter())
    monkeypatch.setattr(training, "most_threads", lambda: 64)
    training.continued(trainer.run, NullReporter())
    assert seen == [2, 3]


@pytest.fixture(autouse=True)
def threads_stay_as_they_are():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
