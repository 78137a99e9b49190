"""Runs survive kills, full disks, corrupted files, NaN and running out of memory."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from faults import COMMAND, fill_disk_at_every_write, hash_weights, kill_until_done, wait_for_steps
from glassformer import MODELS, GlassError, Trace, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core import folder
from glassformer.core.errors import is_memory_error
from glassformer.core.folder import write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.generate import GenerateObjective, Windows
from glassformer.training import recovery, start
from glassformer.training import train as training
from glassformer.training.resume import resume
from glassformer.training.run import Run, find_damage
from glassformer.training.settings import TrainingSettings
from glassformer.training.trainer import Trainer

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "model.context=32", "train.batch_size=4"]
EXACT = {"device": "cpu", "precision": "float32", "threads": 1}


def train(book, run, **options):
    defaults = {"steps": 12, "save_every": 3, "evaluate_every": 4, "reporter": NullReporter()}
    options = {**defaults, **EXACT, **options}
    return training.train("generate", book, run=run, settings=TINY, **options)


# --- kills and stops ------------------------------------------------------------------------------


def test_a_killed_run_ends_with_the_same_weights(tmp_path):
    kills, is_same = kill_until_done(tmp_path, kills=3, seed=0)
    assert kills == 3
    assert is_same


@pytest.mark.parametrize(
    "options", [{}, {"ema_decay": 0.9, "accumulate": 2}, {"precision": "float16"}]
)
def test_a_run_stopped_four_times_equals_an_uninterrupted_run(tmp_path, book, monkeypatch, options):
    train(book, tmp_path / "reference", **options)
    take_step, stops = Trainer.take_step, iter((2, 5, 7, 11))
    stop = next(stops)

    def take_step_and_stop(self, moment):
        result = take_step(self, moment)
        self.is_stopping = self.state.step == stop
        return result

    monkeypatch.setattr(Trainer, "take_step", take_step_and_stop)
    result = train(book, tmp_path / "stopped", **options)
    assert "seconds" not in result
    for next_stop in (*stops, 99):
        assert json.loads((tmp_path / "stopped/last/training.json").read_text())["step"] == stop
        stop = next_stop
        resume(tmp_path / "stopped", NullReporter())
    assert hash_weights(tmp_path / "stopped") == hash_weights(tmp_path / "reference")
    metrics = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in Run(tmp_path / n).metrics()]
        for n in ("reference", "stopped")
    ]
    assert metrics[0] == metrics[1]


def test_a_run_killed_before_its_first_step_starts_again(tmp_path, book, monkeypatch):
    def die(*_args):
        os._exit(9)

    reference = tmp_path / "reference"
    train(book, reference)
    process = os.fork()
    if process == 0:
        monkeypatch.setattr(training, "prepare", die)
        train(book, tmp_path / "run")
    os.waitpid(process, 0)
    assert not (tmp_path / "run" / "config.toml").exists()
    reporter = RecordingReporter()
    resume(tmp_path / "run", reporter)
    assert "starting again" in reporter.lines[0]
    assert hash_weights(tmp_path / "run") == hash_weights(reference)


def test_a_changed_version_is_reported(tmp_path, book):
    train(book, tmp_path / "run")
    file = tmp_path / "run" / "env.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"torch": "1.0"}))
    reporter = RecordingReporter()
    resume(tmp_path / "run", reporter)
    line = next(line for line in reporter.lines if line.startswith("torch was 1.0 and is now "))
    assert "results may differ by rounding errors" in line


def test_a_missing_device_is_reported_and_replaced(tmp_path, book):
    train(book, tmp_path / "run", steps=4)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace('device = "cpu"', 'device = "xpu"'))
    Run(tmp_path / "run").write_checksums()
    reporter = RecordingReporter()
    resume(tmp_path / "run", reporter, steps=6)
    assert "device was xpu and is now cpu: results may differ by rounding errors" in reporter.lines


def test_a_second_interrupt_quits_at_once_and_the_checkpoint_stays_intact(tmp_path, book):
    settings = [x for s in TINY for x in ("--set", s)]
    process = subprocess.Popen(
        [*COMMAND, "train", "generate", str(book), "--run", "run", "--steps", "100000",
         "--save-every", "1", "--threads", "1", *settings],
        cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    wait_for_steps(tmp_path / "run", process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.003)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert load(tmp_path / "run" / LAST)
    done = json.loads((tmp_path / "run/last/training.json").read_text())["step"]
    with pytest.raises(GlassError, match="is already done"):
        resume(tmp_path / "run", NullReporter(), steps=1)
    assert resume(tmp_path / "run", NullReporter(), steps=done + 3)["steps"] == done + 3


def test_age_of_a_run_is_never_negative(tmp_path, book):
    train(book, tmp_path / "run")
    future = time.time() + 10**6
    os.utime(tmp_path / "run" / "config.toml", (future, future))
    done = subprocess.run(
        [*COMMAND, "runs", str(tmp_path), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["hours"] == 0


def test_two_processes_cannot_train_in_the_same_folder(tmp_path, book):
    train(book, tmp_path / "run")
    with Run(tmp_path / "run").lock():
        for attempt in (
            lambda: resume(tmp_path / "run", NullReporter()),
            lambda: train(book, tmp_path / "run", overwrite=True),
        ):
            with pytest.raises(GlassError, match="another process is training in"):
                attempt()
        code = "from glassformer.cli import main; main()"
        line = [sys.executable, "-c", code, "resume", str(tmp_path / "run")]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert (done.returncode, "another process" in done.stderr) == (1, True)
    resume(tmp_path / "run", NullReporter())


# --- full disks and missing folders ---------------------------------------------------------------


def test_a_disk_that_is_full_at_any_write_loses_nothing(tmp_path, book):
    assert fill_disk_at_every_write(tmp_path, partial(train, book), every=9) > 10


def test_a_file_size_limit_is_reported_with_the_last_checkpoint(tmp_path, book):
    train(book, tmp_path / "run", steps=6)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    line = [*COMMAND, "resume", "run", "--steps", "9"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "the checkpoint from step 6 is intact; to continue: glass resume run" in done.stderr
    resume(tmp_path / "run", NullReporter(), steps=9)
    assert json.loads((tmp_path / "run/last/training.json").read_text())["step"] == 9


def test_error_names_a_run_folder_deleted_during_training(tmp_path, book, monkeypatch):
    take_step = Trainer.take_step

    def delete_folder_at_5(self, moment):
        result = take_step(self, moment)
        if self.state.step == 5:
            shutil.rmtree(self.run.path)
        return result

    monkeypatch.setattr(Trainer, "take_step", delete_folder_at_5)
    with pytest.raises(GlassError, match=r"No such file or directory.*run.*there is no checkpoint"):
        train(book, tmp_path / "run")


def test_a_run_folder_inside_a_file_is_rejected(tmp_path, book):
    with pytest.raises(OSError, match="Not a directory"):
        train(book, book / "run")


# --- corrupted files ------------------------------------------------------------------------------


def test_every_flipped_bit_is_detected_and_its_file_reported(tmp_path, book):
    run = tmp_path / "run"
    train(book, run)
    assert find_damage(run) == []
    generator = random.Random(0)
    files = [p for p in sorted(run.rglob("*")) if p.is_file()]
    for i in range(200):
        file = files[i % len(files)]
        content = file.read_bytes()
        if not content:
            continue
        position = generator.randrange(len(content))
        flipped = bytearray(content)
        flipped[position] ^= 1 << generator.randrange(8)
        file.write_bytes(flipped)
        problems = find_damage(run)
        reported = file if file.name not in ("manifest.json", "checksums.json") else file.parent
        assert any(str(reported) in line for line in problems), (file, position)
        file.write_bytes(content)
    assert find_damage(run) == []


def test_the_error_for_a_corrupted_checkpoint_names_the_other_one(tmp_path, book):
    run = tmp_path / "run"
    train(book, run)
    file = run / BEST / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(GlassError, match=r"best.*is corrupted.*run/last may be intact"):
        load(run)
    assert load(run / LAST)
    with (run / "cache" / "train.ids").open("r+b") as store:
        store.write(b"xx")
    with pytest.raises(GlassError, match=r"train\.ids is corrupted"):
        resume(run, NullReporter())


# --- NaN and infinity -----------------------------------------------------------------------------


def put_nan_into_loss(trainer):
    losses = trainer.task.objective.losses
    trainer.task.objective.losses = lambda *args, **options: (
        loss * float("nan") for loss in losses(*args, **options)
    )


def put_nan_into_gradient(trainer):
    weight = trainer.network.blocks[0].attention.query.weight
    weight.register_hook(lambda gradient: gradient * float("nan"))


def put_nan_into_weight(trainer):
    with torch.no_grad():
        trainer.network.norm.weight[0] = float("nan")


def put_nan_into_embedding(trainer):
    losses = trainer.task.objective.losses

    def nan_losses(network, batch, **options):
        with Trace(network, edit={"token": lambda x: x * float("nan")}):
            return iter([*losses(network, batch, **options)])

    trainer.task.objective.losses = nan_losses


@pytest.mark.parametrize(
    ("inject", "cause"),
    [
        (put_nan_into_loss, "the loss"),
        (put_nan_into_gradient, "the gradient of blocks.0.attention.query.weight"),
        (put_nan_into_weight, "the weight norm.weight"),
        (put_nan_into_embedding, "the loss"),
    ],
)
def test_a_step_that_is_not_finite_changes_no_weight_and_names_the_cause(
    tmp_path, book, inject, cause
):
    reporter, skip_counts = RecordingReporter(), []

    class EnoughError(Exception):
        pass

    def take_steps(trainer, _reporter):
        for _ in range(3):
            trainer.take_step(trainer.budget.begin(trainer.state.step))
        inject(trainer)
        (optimizer,) = trainer.step.optimizers.values()
        before = {n: v.clone() for n, v in trainer.network.state_dict().items()}
        moments = [v.clone() for s in optimizer.state.values() for v in s.values()]
        for _ in range(2):
            result = trainer.take_step(trainer.budget.begin(trainer.state.step))
            recovery.handle_skipped_step(trainer, result.non_finite)
        after = trainer.network.state_dict()
        assert all(torch.equal(before[n], after[n]) or "norm.weight" in n for n in before)
        now = [v for s in optimizer.state.values() for v in s.values()]
        assert all(torch.equal(a, b) for a, b in zip(moments, now, strict=True))
        skip_counts.append(trainer.state.consecutive_skips)
        raise EnoughError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train_and_report", take_steps)
        with pytest.raises(EnoughError):
            train(book, tmp_path / "run", reporter=reporter)
    assert skip_counts == [2]
    assert any(f"skipped step 4: {cause} is not finite" in line for line in reporter.lines)


def test_three_bad_steps_roll_back_with_a_smaller_learning_rate_and_then_stop(
    tmp_path, book, monkeypatch
):
    losses, bad_steps = GenerateObjective.losses, set(range(5, 8))
    reporter, current_step = RecordingReporter(), [0]

    def nan_at_bad_steps(self, network, batch, **options):
        for loss in losses(self, network, batch, **options):
            yield loss * float("nan") if current_step[0] in bad_steps else loss

    at, log_metrics = Windows.at, Run.log_metrics

    def record_step(self, step):
        current_step[0] = step
        return at(self, step)

    def log_and_recover(self, kind, *, step, **values):
        log_metrics(self, kind, step=step, **values)
        if kind == "skipped" and step == 8 and recovers:
            bad_steps.clear()

    recovers = True
    monkeypatch.setattr(Windows, "at", record_step)
    monkeypatch.setattr(GenerateObjective, "losses", nan_at_bad_steps)
    monkeypatch.setattr(Run, "log_metrics", log_and_recover)
    train(book, tmp_path / "recovered", reporter=reporter)
    assert any("back to step 3, with a learning rate of" in line for line in reporter.lines)
    state = json.loads((tmp_path / "recovered/last/training.json").read_text())
    assert (state["step"], state["lr_scale"]) == (12, 0.3)
    recovers, bad_steps = False, set(range(5, 12))
    message = r"even with a smaller learning rate; the checkpoint from step 3.*learning rate"
    with pytest.raises(GlassError, match=message):
        train(book, tmp_path / "failed")
    assert load(tmp_path / "failed" / LAST)


def test_a_weight_that_is_not_finite_is_not_saved(tmp_path, book, monkeypatch):
    reporter, take_step = RecordingReporter(), Trainer.take_step

    def nan_at_6(self, moment):
        result = take_step(self, moment)
        if self.state.step == 6 and self.state.lr_scale == 1:
            put_nan_into_weight(self)
        return result

    monkeypatch.setattr(Trainer, "take_step", nan_at_6)
    train(book, tmp_path / "run", reporter=reporter)
    assert "no checkpoint saved at step 6: a weight is not finite" in reporter.lines
    assert any("back to step 3" in line for line in reporter.lines)
    assert all(p.isfinite().all() for p in load(tmp_path / "run").network.parameters())


# --- memory ---------------------------------------------------------------------------------------


def limit_memory(monkeypatch, tokens):
    """Simulate memory for at most `tokens` tokens at once."""
    losses = GenerateObjective.losses

    def limited_losses(self, network, batch, **options):
        if batch["ids"].numel() > tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        yield from losses(self, network, batch, **options)

    monkeypatch.setattr(GenerateObjective, "losses", limited_losses)


def test_a_batch_that_does_not_fit_in_memory_is_split(tmp_path, book, monkeypatch):
    train(book, tmp_path / "reference")
    limit_memory(monkeypatch, 40)
    with pytest.raises(
        GlassError,
        match=r"batch of 4 x 32 tokens.*fits when split into 4 micro-batches.*--shrink-on-oom",
    ):
        train(book, tmp_path / "rejected")
    reporter = RecordingReporter()
    train(book, tmp_path / "run", shrink_on_oom=True, reporter=reporter)
    message = "split into 4 micro-batches (same result, except for dropout)"
    assert any(message in line for line in reporter.lines)
    assert "accumulate = 4" in (tmp_path / "run" / "config.toml").read_text()  # before step 1
    for ours, theirs in zip(
        load(tmp_path / "run").network.parameters(),
        load(tmp_path / "reference").network.parameters(), strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_running_out_of_memory_during_training_continues_from_the_last_checkpoint(
    tmp_path, book, monkeypatch
):
    take_step = Trainer.take_step

    def limit_memory_at_7(self, moment):
        if self.state.step == 7 and self.settings.accumulate == 1:
            limit_memory(monkeypatch, 80)
        return take_step(self, moment)

    monkeypatch.setattr(Trainer, "take_step", limit_memory_at_7)
    result = train(book, tmp_path / "run", shrink_on_oom=True)
    assert result["steps"] == 12
    state = json.loads((tmp_path / "run/last/training.json").read_text())
    assert state["changed"] == {"accumulate": 2}


def test_a_context_that_does_not_fit_in_memory_is_rejected_or_shortened(
    tmp_path, book, monkeypatch
):
    limit_memory(monkeypatch, 20)
    message = r"one sequence of 32 tokens; a context of 16 fits: --set model.context=16"
    with pytest.raises(GlassError, match=message):
        train(book, tmp_path / "rejected", minutes=0.01, steps=None)
    assert not (tmp_path / "rejected").exists()
    limit_memory(monkeypatch, 20)
    train(book, tmp_path / "run", shrink_on_oom=True)
    assert load(tmp_path / "run").config.context == 16
    assert is_memory_error(MemoryError())
    assert not is_memory_error(RuntimeError("another"))


# --- overwriting, extending and invalid settings --------------------------------------------------


def test_an_overwritten_run_is_kept_until_the_new_one_has_started(tmp_path, book):
    run = tmp_path / "run"
    train(book, run)
    before = hash_weights(run)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(GlassError, match="the files are empty"):
        train(tmp_path / "empty.txt", run, overwrite=True)
    assert hash_weights(run) == before
    with pytest.raises(GlassError, match="could be overwritten"):
        train(book, run, overwrite=True, base=run)
    train(book, run, overwrite=True, seed=1)
    assert hash_weights(run) != before
    assert {p.name for p in tmp_path.iterdir()} == {"run", "book.txt", "empty.txt"}
    (tmp_path / "work" / "cache").mkdir(parents=True)
    with pytest.raises(GlassError, match="is not a run folder"):
        train(book, tmp_path / "work", overwrite=True)


def test_an_extended_budget_survives_a_kill(tmp_path, book, monkeypatch):
    train(book, tmp_path / "run")
    process = os.fork()
    if process == 0:
        monkeypatch.setattr(Trainer, "loop", lambda _self: os._exit(9))
        resume(tmp_path / "run", NullReporter(), steps=20)
    os.waitpid(process, 0)
    assert resume(tmp_path / "run", NullReporter())["steps"] == 20


def test_resuming_a_run_that_stopped_early_takes_no_steps(tmp_path, book):
    options = {"lr": 0.0, "patience": 1, "steps": 40, "prior": False}
    result = train(book, tmp_path / "run", **options)
    assert result["steps"] == 8
    reporter = RecordingReporter()
    assert resume(tmp_path / "run", reporter)["steps"] == 8
    assert reporter.lines[0] == (
        "training already ended at step 8 (early stopping); to train longer: "
        f"glass resume {tmp_path / 'run'} --minutes 5"
    )
    assert not any("all steps are done" in line for line in reporter.lines)


def test_a_deleted_run_folder_is_not_created_again(tmp_path, book, monkeypatch):
    take_step = Trainer.take_step

    def delete_folder_at_3(self, moment):
        result = take_step(self, moment)
        if self.state.step == 3:
            shutil.rmtree(self.run.path)
        return result

    monkeypatch.setattr(Trainer, "take_step", delete_folder_at_3)
    monkeypatch.setattr(Run, "log_metrics", lambda *_args, **_values: None)
    with pytest.raises(GlassError, match="no longer exists"):
        train(book, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -1.0}, {"lr": float("nan")}, {"beta2": 1.0}, {"steps": None, "minutes": 1e999},
        {"seed": -1}, {"lora": -3}, {"vocab": -5}, {"clip": -1.0},
        {"lora": 2, "freeze": ["token*"]},
    ],
    ids=str,
)  # fmt: skip
def test_error_names_the_invalid_setting(tmp_path, book, settings):
    with pytest.raises(GlassError, match=next(iter(set(settings) - {"steps"}))):
        train(book, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


# --- the last step, freed memory, sizes that are too large ----------------------------------------


@pytest.mark.parametrize("steps", [1, 12])
def test_a_last_step_that_is_not_finite_is_followed_by_an_evaluation(
    tmp_path, book, monkeypatch, steps
):
    take_step = Trainer.take_step

    def nan_at_the_last_step(self, moment):
        if self.state.step == steps - 1:
            put_nan_into_gradient(self)
        return take_step(self, moment)

    monkeypatch.setattr(Trainer, "take_step", nan_at_the_last_step)
    reporter = RecordingReporter()
    result = train(book, tmp_path / "run", steps=steps, reporter=reporter, evaluate_every=None)
    assert result["steps"] == steps
    assert any(f"skipped step {steps}" in line for line in reporter.lines)
    evaluated = [m["step"] for m in Run(tmp_path / "run").metrics() if "seconds" in m]
    assert evaluated[-2:] == [steps, steps]  # at the last step, and of the best weights
    assert load(tmp_path / "run" / BEST)


class Activations:
    """Stands for the tensors of a forward pass."""


def count_leaked_passes(monkeypatch, is_too_large):
    """Let passes run out of memory; list how many earlier ones are alive when each one begins."""
    losses, alive, leak_counts = GenerateObjective.losses, weakref.WeakSet(), []

    def limited_losses(self, network, batch, **options):
        leak_counts.append(len(alive))
        activations = Activations()
        alive.add(activations)
        if is_too_large(batch["ids"].numel(), len(leak_counts)):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        yield from losses(self, network, batch, **options)

    monkeypatch.setattr(GenerateObjective, "losses", limited_losses)
    return leak_counts


def test_memory_of_a_failed_pass_is_freed_before_a_smaller_one_is_tried(
    tmp_path, book, monkeypatch
):
    leak_counts = count_leaked_passes(monkeypatch, lambda tokens, _passes: tokens > 8)
    reporter = RecordingReporter()
    train(book, tmp_path / "run", shrink_on_oom=True, reporter=reporter)
    assert sum("shortening it to 8" in line for line in reporter.lines) == 1
    assert load(tmp_path / "run").config.context == 8
    assert len(leak_counts) > 12
    assert not any(leak_counts)
    baselines = [line for line in reporter.lines if line.startswith("baseline (")]
    assert len(baselines) == 1  # the baseline does not depend on the context


def test_memory_of_a_failed_step_is_freed(tmp_path, book, monkeypatch):
    leak_counts = count_leaked_passes(
        monkeypatch, lambda tokens, passes: tokens > 80 and passes > 20
    )
    train(book, tmp_path / "run", shrink_on_oom=True, steps=30)
    assert len(leak_counts) > 20
    assert not any(leak_counts)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.threads=1000000", "threads must be at least 1 and at most 4,096"),
        ("train.threads=4000", r"threads must be at most \d+ on this machine"),
        ("train.batch_size=1000000000000", "batch_size must be at least 1 and at most"),
        ("model.dim=9000000", "parameters needs about .* GB of memory"),
        ("model.dim=100000000", "dim must be at least 1 and at most"),
        ("train.parameters=1000000000000", "parameters needs about .* GB of memory"),
    ],
)
def test_impossible_sizes_are_rejected_at_once(tmp_path, book, monkeypatch, setting, message):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    before = torch.get_num_threads()
    with pytest.raises(GlassError, match=message):
        training.train(
            "generate",
            book,
            run=tmp_path / "run",
            settings=[setting],
            steps=3,
            reporter=NullReporter(),
        )
    assert not (tmp_path / "run").exists()
    assert torch.get_num_threads() == before


def test_a_network_that_is_too_large_is_rejected_before_it_is_allocated(tmp_path, book):
    settings = ["model.dim=16384", "model.depth=1000", "model.heads=16"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GlassError, match=r"training 3,2.* parameters needs about .* GB"):
        training.train(
            "generate",
            book,
            run=tmp_path / "run",
            settings=settings,
            steps=3,
            reporter=NullReporter(),
        )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


def test_frozen_weights_need_no_memory_for_gradients(monkeypatch):
    monkeypatch.setattr(start, "total_memory", lambda: 0.0005)  # GB
    config = MODELS["gpt2"].Config(vocab=100, context=16, dim=48, depth=2, heads=4)
    count = start.count_parameters("gpt2", config)
    assert 4 * count < 0.0005e9 < 16 * count
    for settings in ({"lora": 2}, {"freeze": ("token.*",)}, {"device": "cuda"}):
        start.check_memory("gpt2", config, TrainingSettings(**{"device": "cpu", **settings}))
    with pytest.raises(GlassError, match="GB of memory"):
        start.check_memory("gpt2", config, TrainingSettings(device="cpu"))


def test_a_run_with_weights_that_get_no_gradient_can_be_resumed(tmp_path, book):
    settings = [*TINY, "model.next_sentence=false"]
    training.train(
        "fill-mask",
        book,
        run=tmp_path / "run",
        settings=settings,
        steps=2,
        reporter=NullReporter(),
        **EXACT,
    )
    assert resume(tmp_path / "run", NullReporter(), steps=4)["steps"] == 4


@pytest.mark.parametrize("parameters", [20_000, 500_000])
def test_dim_is_the_one_closest_to_a_number_of_parameters(parameters):
    config = MODELS["gpt2"].Config(vocab=50, context=16, depth=2, heads=4)
    scaled = start.scale_to_parameters("gpt2", config, parameters)
    errors = {
        dim: abs(start.count_parameters("gpt2", replace(config, dim=dim)) - parameters)
        for dim in range(8, 400, 8)
    }
    assert scaled.dim == min(errors, key=errors.get)


def test_predictions_of_all_steps_are_counted(tmp_path, book):
    result = train(book, tmp_path / "run", steps=5)
    state = json.loads((tmp_path / "run/last/training.json").read_text())
    assert state["predictions"] == 5 * 4 * 32
    assert result["speed"] > 0


def test_the_error_for_a_full_disk_names_the_file(tmp_path, book, monkeypatch):
    train(book, tmp_path / "run", steps=4)
    fsync_path = folder.fsync_path

    def fsync_or_fail(path):
        if path.name == ".metrics.jsonl.new":
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync_path(path)

    monkeypatch.setattr(folder, "fsync_path", fsync_or_fail)
    with pytest.raises(GlassError, match=r"metrics\.jsonl.*No space left on device"):
        resume(tmp_path / "run", NullReporter(), steps=6)


def test_a_run_with_too_many_threads_is_resumed_with_fewer(tmp_path, book, monkeypatch):
    train(book, tmp_path / "run", steps=2)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("threads = 1", "threads = 3000"))
    Run(tmp_path / "run").write_checksums()
    thread_counts = []
    monkeypatch.setattr(torch, "set_num_threads", thread_counts.append)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert resume(tmp_path / "run", NullReporter(), steps=3)["steps"] == 3
    assert thread_counts == [64]


# --- hostile run folders --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("last/training.json", "[]"),
        ("last/training.json", '{"step": "x", "scaler": {}}'),
        ("last/training.json", '{"step": -3, "scaler": {}}'),
        ("last/training.json", '{"step": 1, "scaler": {}, "changed": {"batch_size": "x"}}'),
        ("last/training.json", "nothing"),
        ("env.json", "[]"),
        ("metrics.jsonl", "3\n"),
        ("metrics.jsonl", '{"loss": 3}\n'),
        ("metrics.jsonl", '{"step": 1}\n'),
        ("baseline/metrics.json", "[]"),
        ("config.toml", "x = 3\n"),
        ("cache/train.starts.npy", "\x93NUMPY"),
        ("cache/train.starts.npy", None),
        ("cache/train.width.npy", "x"),
        ("cache/train.ids", "\xff\xff"),
    ],
    ids=str,
)
def test_a_tampered_run_folder_is_rejected_in_one_line(tmp_path, book, name, content):
    run = tmp_path / "run"
    train(book, run, steps=2)
    file = run / name
    if content is None:
        file.unlink()
        file.symlink_to(file)
    else:
        file.write_bytes(content.encode("latin-1"))
    for manifest in run.rglob("manifest.json"):
        manifest.unlink()
        write_manifest(manifest.parent)
    Run(run).write_checksums()
    with pytest.raises(GlassError) as error:
        resume(run, NullReporter(), steps=4)
    assert "\n" not in str(error.value)
    assert str(run) in str(error.value)


@pytest.mark.parametrize("content", ["[]", '{"data": 3}', '{"task": 3, "data": []}', "{"])
def test_a_tampered_request_is_rejected(tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "request.json").write_text(content)
    with pytest.raises(GlassError, match=r"request\.json"):
        resume(tmp_path / "run", NullReporter())


def test_optimizer_state_of_another_network_is_rejected(tmp_path, book):
    train(book, tmp_path / "run", steps=2)
    file = tmp_path / "run" / "last" / "training.safetensors"
    tensors = load_file(file)
    for tampered in (
        {n: v for n, v in tensors.items() if n != "optimizer.0.exp_avg"},
        {**tensors, "optimizer.0.exp_avg": torch.zeros(3)},
        {**tensors, "optimizer.99.step": torch.zeros(())},
        {**tensors, "nothing": torch.zeros(3)},
        {**tensors, "random.cpu": torch.zeros(3, dtype=torch.uint8)},
        {n: v for n, v in tensors.items() if n != "random.cpu"},
    ):
        save_file(tampered, file)
        (file.parent / "manifest.json").unlink()
        write_manifest(file.parent)
        with pytest.raises(GlassError, match=r"training\.safetensors is corrupted"):
            resume(tmp_path / "run", NullReporter(), steps=4)
