"""Budgets: a number of steps, or a deadline on a simulated clock."""

import shutil

import pytest

from faults import saved_step
from glassformer import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.training import budget as budgets
from glassformer.training import train as training
from glassformer.training.budget import OVERHEAD_SECONDS, Deadline, StepBudget
from glassformer.training.resume import resume
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.trainer import Trainer

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "model.context=32", "train.batch_size=4"]
EXACT = {"device": "cpu", "precision": "float32", "threads": 1, "baseline": False}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def make_deadline(tmp_path, clock, seconds=100.0, **options):
    return Deadline(seconds, tmp_path / "schedule.log", clock=clock, **options)


def test_step_budget_ends_after_the_last_step_and_has_ten_tenths():
    budget = StepBudget(25)
    assert [budget.is_spent(step) for step in (0, 24, 25, 26)] == [False, False, True, True]
    steps = [budget.begin(step) for step in range(25)]
    assert sum(progress.ends_tenth for progress in steps) == 10
    assert steps[-1].ends_tenth
    assert [(m.position, m.total) for m in steps[:2]] == [(0, 25), (1, 25)]


def test_schedule_of_a_deadline_follows_the_clock_however_long_steps_take(tmp_path):
    settings, clock = TrainingSettings(minutes=1.0), Clock()
    budget, lrs = make_deadline(tmp_path, clock), []
    for step, seconds in enumerate([1, 1, 20, 0.1, 30, 5, 5, 40, 9]):
        if budget.is_spent(step):
            break
        progress = budget.begin(step)
        fraction = (clock.now - 100) / (100 - budget.reserve)
        assert progress.position / progress.total == pytest.approx(fraction)
        lrs.append(lr_at(progress.position, progress.total, settings))
        clock.now += seconds
    assert clock.now - 100 == pytest.approx(102.1)  # the last step began before the deadline
    assert lrs[0] < lrs[1] < lrs[2] > lrs[-1]


def test_setup_time_counts_for_the_budget_but_not_for_the_schedule(tmp_path):
    """The schedule begins with its warmup at the first step."""
    clock = Clock()
    budget = make_deadline(tmp_path, clock, spent=40.0, setup_seconds=40.0)
    assert budget.remaining == pytest.approx(60.0)
    assert budget.begin(0).position == 0
    clock.now += 30
    assert budget.begin(1).position / budgets.SCHEDULE_UNITS == pytest.approx(
        30 / (60 - OVERHEAD_SECONDS)
    )
    clock.now += 30
    assert budget.is_spent(2)
    assert make_deadline(tmp_path, Clock(), spent=500.0).remaining == 0


def test_a_deadline_ends_early_after_its_last_step(tmp_path):
    clock = Clock()
    budget = make_deadline(tmp_path, clock, max_steps=4)
    positions = []
    for step in range(10):
        if budget.is_spent(step):
            break
        positions.append(budget.begin(step).position)
        clock.now += 1
    assert positions == pytest.approx([0, 250, 500, 750])
    assert budget.estimate_steps(2, 1.0) == 4
    assert budget.seconds_left(2, 1.0) == 2
    slow = make_deadline(tmp_path / "slow", clock, max_steps=1000)
    assert slow.estimate_steps(2, 1.0) == pytest.approx(99, abs=2)
    assert slow.seconds_left(2, 1.0) == pytest.approx(100)


def test_at_least_one_step_is_taken(tmp_path):
    budget = make_deadline(tmp_path, Clock(), spent=500.0)
    assert not budget.is_spent(0)
    assert budget.begin(0).position == budgets.SCHEDULE_UNITS
    assert budget.is_spent(1)


def test_time_left_never_increases(tmp_path):
    clock, left = Clock(), []
    budget = make_deadline(tmp_path, clock)
    for step, seconds in enumerate([1, 30, 0.1, 0.1, 7]):
        budget.begin(step)
        clock.now += seconds
        budget.record_evaluation(seconds, 3 * seconds)
        left.append(budget.seconds_left(step + 1, seconds_per_step=seconds))
    assert left == sorted(left, reverse=True)
    assert left[0] < 100


def test_evaluations_take_a_small_fraction_of_the_time(tmp_path):
    clock = Clock()
    budget, eval_seconds, step = make_deadline(tmp_path, clock, seconds=1000.0), 0.0, 0
    budget.reserve_time(12.0, final_seconds=100.0)
    while not budget.is_spent(step):
        progress = budget.begin(step)
        clock.now += 1.0
        step += 1
        if progress.should_evaluate:
            clock.now += 12.0
            eval_seconds += 12.0
            budget.record_evaluation(12.0, 100.0)
    assert 0 < eval_seconds <= 0.075 * (clock.now - 100)
    final_seconds = 75  # 100, limited to its fraction of the budget
    assert budget.reserve == pytest.approx(12 + final_seconds + OVERHEAD_SECONDS)
    assert clock.now - 100 + budget.reserve == pytest.approx(1000, abs=14)


def test_logged_steps_are_replayed(tmp_path):
    clock = Clock()
    first, steps = make_deadline(tmp_path, clock), []
    for step in range(6):
        steps.append(first.begin(step))
        clock.now += 3.0
    resumed = make_deadline(tmp_path, Clock(), spent=6.0)  # killed after step 6, saved after step 2
    resumed.resume_at(2)
    assert [resumed.begin(step) for step in range(2, 6)] == steps[2:]
    assert not resumed.is_spent(5)
    assert resumed.begin(6).position >= steps[-1].position


def test_incomplete_last_line_of_the_log_is_removed(tmp_path):
    log = tmp_path / "schedule.log"
    log.write_text("0 0.0 0\n1 0.25 1\n2 0.3")
    budget = make_deadline(tmp_path, Clock())
    assert budget.replay == {0: (0.0, False), 1: (0.25, True)}
    assert log.read_text() == "0 0.0 0\n1 0.25 1\n"


@pytest.mark.parametrize(
    "content", ["0 2.0 0\n", "0 nan 0\n", "0 x 0\n", "x 0.5 0\n", "0.5 0\n", "\n"]
)
def test_corrupted_log_is_rejected(tmp_path, content):
    (tmp_path / "schedule.log").write_text(content)
    with pytest.raises(GlassError, match=r"schedule\.log"):
        make_deadline(tmp_path, Clock())


# --- in a run -------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch, set_clock):
    """A clock that advances by `clock.step` seconds at every training step, and never otherwise."""
    clock, take_step = Clock(), Trainer.take_step
    clock.step = 0.5

    def advance_and_take_step(self, progress):
        clock.now += clock.step
        return take_step(self, progress)

    monkeypatch.setattr(Trainer, "take_step", advance_and_take_step)
    modules = ("budget", "trainer", "train", "setup", "evaluator", "prior", "baseline", "fitting")
    set_clock(clock, *(f"training.{module}" for module in modules))
    monkeypatch.setattr(
        Deadline.__init__, "__kwdefaults__", {"spent": 0.0, "setup": 0.0, "clock": clock}
    )
    return clock


def train(book, run, **options):
    options = {"minutes": 0.5, "reporter": NullReporter(), **EXACT, **options}
    return training.train("generate", book, run=run, settings=TINY, **options)


@pytest.mark.parametrize("seconds", [0.2, 1.5])
def test_a_run_ends_at_its_deadline(tmp_path, book, clock, seconds):
    clock.step = seconds
    start_time = clock.now
    result = train(book, tmp_path / "run")
    assert clock.now - start_time == pytest.approx(30 - OVERHEAD_SECONDS, abs=seconds)
    assert result["steps"] == pytest.approx((30 - OVERHEAD_SECONDS) / seconds, abs=1)
    assert "minutes = 0.5" in (tmp_path / "run" / "config.toml").read_text()
    lines = (tmp_path / "run" / "schedule.log").read_text().splitlines()
    assert len(lines) == result["steps"]
    start_time = clock.now
    more = resume(tmp_path / "run", NullReporter(), minutes=0.25)
    assert more["steps"] > result["steps"]
    assert clock.now - start_time == pytest.approx(15 - OVERHEAD_SECONDS, abs=2 * seconds)


class KilledError(BaseException):
    pass


def kill_between_checkpoints(monkeypatch, run, after):
    """Raise KilledError in the first step after a number of steps that is not in a checkpoint.

    Returns a list that will hold the step at which this happens.
    """
    take_step, killed_at = Trainer.take_step, []

    def take_step_or_die(self, progress):
        if self.state.step > after and saved_step(run) < self.state.step:
            killed_at.append(self.state.step)
            raise KilledError
        return take_step(self, progress)

    monkeypatch.setattr(Trainer, "take_step", take_step_or_die)
    return killed_at


def assert_same_end(reference, run):
    """Assert that two runs have the same weights and the same schedule, bit for bit."""
    for name in ("last/model.safetensors", "best/model.safetensors", "schedule.log"):
        assert (reference / name).read_bytes() == (run / name).read_bytes(), name


def test_a_killed_run_with_a_deadline_ends_with_the_same_weights(
    tmp_path, book, clock, monkeypatch
):
    train(book, tmp_path / "reference", minutes=0.2)
    with monkeypatch.context() as patch:
        killed_at = kill_between_checkpoints(patch, tmp_path / "run", after=10)
        with pytest.raises(KilledError):
            train(book, tmp_path / "run", minutes=0.2)
    assert 0 < saved_step(tmp_path / "run") < killed_at[0]  # some steps must be repeated
    resume(tmp_path / "run", NullReporter())
    assert_same_end(tmp_path / "reference", tmp_path / "run")


def test_a_run_extended_by_minutes_and_killed_ends_with_the_same_weights(
    tmp_path, book, clock, monkeypatch
):
    train(book, tmp_path / "reference", minutes=None, steps=7)
    shutil.copytree(tmp_path / "reference", tmp_path / "run")
    resume(tmp_path / "reference", NullReporter(), minutes=0.2)

    with monkeypatch.context() as patch:
        killed_at = kill_between_checkpoints(patch, tmp_path / "run", after=10)
        with pytest.raises(KilledError):
            resume(tmp_path / "run", NullReporter(), minutes=0.2)
    assert 7 < saved_step(tmp_path / "run") < killed_at[0]  # some steps must be repeated
    resume(tmp_path / "run", NullReporter())
    assert_same_end(tmp_path / "reference", tmp_path / "run")


def test_a_resumed_run_has_the_rest_of_its_time(tmp_path, book, clock, monkeypatch):
    take_step = Trainer.take_step

    def stop_at_10(self, progress):
        result = take_step(self, progress)
        self.is_stopping = self.state.step == 10
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", stop_at_10)
        train(book, tmp_path / "run")
    clock.now += 10_000  # a long pause
    start_time = clock.now
    resume(tmp_path / "run", NullReporter())
    assert clock.now - start_time == pytest.approx(30 - OVERHEAD_SECONDS - 10 * clock.step, abs=1)
