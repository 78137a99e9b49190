"""Whatever happens to a run, nothing is lost."""

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

from faults import COMMAND, full_at_every, hashes, killed_until_done, wait_for_steps
from glassformer import MODELS, GlassError, Trace, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core import folder
from glassformer.core.errors import is_memory_error
from glassformer.core.folder import write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.generate import NextToken, Windows
from glassformer.training import recovery, setup
from glassformer.training import train as training
from glassformer.training.run import Run, damage
from glassformer.training.settings import TrainingSettings
from glassformer.training.trainer import Trainer

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "model.context=32", "train.batch_size=4"]
EXACT = {"device": "cpu", "precision": "float32", "threads": 1}


def train(book, run, **options):
    usual = {"steps": 12, "save_every": 3, "evaluate_every": 4, "tell": NullReporter(), **EXACT}
    return training.train("generate", book, run=run, settings=TINY, **{**usual, **options})


# --- killed ---------------------------------------------------------------------------------------


def test_a_killed_run_ends_with_the_same_weights(tmp_path):
    kills, same = killed_until_done(tmp_path, kills=3, seed=0)
    assert kills == 3
    assert same


@pytest.mark.parametrize(
    "more", [{}, {"ema_decay": 0.9, "accumulate": 2}, {"precision": "float16"}]
)
def test_a_run_in_five_pieces_equals_one_run(tmp_path, book, monkeypatch, more):
    train(book, tmp_path / "whole", **more)
    step, stops = Trainer.take_step, iter((2, 5, 7, 11))
    at = next(stops)

    def stopping(self, moment):
        done = step(self, moment)
        self.is_stopping = self.state.step == at
        return done

    monkeypatch.setattr(Trainer, "take_step", stopping)
    result = train(book, tmp_path / "pieces", **more)
    assert "seconds" not in result
    for following in (*stops, 99):
        assert json.loads((tmp_path / "pieces/last/training.json").read_text())["step"] == at
        at = following
        training.resume(tmp_path / "pieces", NullReporter())
    assert hashes(tmp_path / "pieces") == hashes(tmp_path / "whole")
    figures = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in Run(tmp_path / n).metrics()]
        for n in ("whole", "pieces")
    ]
    assert figures[0] == figures[1]


def test_a_run_that_had_not_begun_begins_again(tmp_path, book, monkeypatch):
    def killed(*_args):
        os._exit(9)

    whole = tmp_path / "whole"
    train(book, whole)
    process = os.fork()
    if process == 0:
        monkeypatch.setattr(training, "prepare", killed)
        train(book, tmp_path / "run")
    os.waitpid(process, 0)
    assert not (tmp_path / "run" / "config.toml").exists()
    told = RecordingReporter()
    training.resume(tmp_path / "run", told)
    assert "it begins again" in told.lines[0]
    assert hashes(tmp_path / "run") == hashes(whole)


def test_a_change_of_version_is_told(tmp_path, book):
    train(book, tmp_path / "run")
    file = tmp_path / "run" / "env.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"torch": "1.0"}))
    told = RecordingReporter()
    training.resume(tmp_path / "run", told)
    assert "torch was 1.0: the last bits of the numbers may differ" in told.lines


def test_a_device_that_is_gone_is_told_and_replaced(tmp_path, book):
    train(book, tmp_path / "run", steps=4)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace('device = "cpu"', 'device = "xpu"'))
    Run(tmp_path / "run").seal()
    told = RecordingReporter()
    training.resume(tmp_path / "run", told, steps=6)
    assert "device was xpu: the last bits of the numbers may differ" in told.lines


def test_a_second_interrupt_leaves_at_once_and_breaks_nothing(tmp_path, book):
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
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert load(tmp_path / "run" / LAST)
    done = json.loads((tmp_path / "run/last/training.json").read_text())["step"]
    with pytest.raises(GlassError, match="steps are done already"):
        training.resume(tmp_path / "run", NullReporter(), steps=1)
    assert training.resume(tmp_path / "run", NullReporter(), steps=done + 3)["steps"] == done + 3


def test_a_clock_that_was_moved_makes_no_run_younger_than_now(tmp_path, book):
    train(book, tmp_path / "run")
    ahead = time.time() + 10**6
    os.utime(tmp_path / "run" / "config.toml", (ahead, ahead))
    done = subprocess.run(
        [*COMMAND, "runs", str(tmp_path), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["hours"] == 0


def test_two_at_once_are_refused(tmp_path, book):
    train(book, tmp_path / "run")
    with Run(tmp_path / "run").held():
        for attempt in (
            lambda: training.resume(tmp_path / "run", NullReporter()),
            lambda: train(book, tmp_path / "run", overwrite=True),
        ):
            with pytest.raises(GlassError, match="another process is training in"):
                attempt()
        code = "from glassformer.cli import main; main()"
        line = [sys.executable, "-c", code, "resume", str(tmp_path / "run")]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert (done.returncode, "another process" in done.stderr) == (1, True)
    training.resume(tmp_path / "run", NullReporter())


# --- the disk -------------------------------------------------------------------------------------


def test_a_disk_that_is_full_at_any_write_loses_nothing(tmp_path, book):
    assert full_at_every(tmp_path, partial(train, book), every=9) > 10


def test_a_file_that_may_not_grow_is_told_with_what_is_left(tmp_path, book):
    train(book, tmp_path / "run", steps=6)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    line = [*COMMAND, "resume", "run", "--steps", "9"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "the checkpoint of step 6 is whole: glass resume run" in done.stderr
    training.resume(tmp_path / "run", NullReporter(), steps=9)
    assert json.loads((tmp_path / "run/last/training.json").read_text())["step"] == 9


def test_a_folder_that_is_taken_away_is_named(tmp_path, book, monkeypatch):
    step = Trainer.take_step

    def taking(self, moment):
        done = step(self, moment)
        if self.state.step == 5:
            shutil.rmtree(self.run.path)
        return done

    monkeypatch.setattr(Trainer, "take_step", taking)
    with pytest.raises(GlassError, match=r"No such file or directory.*run.*there is no checkpoint"):
        train(book, tmp_path / "run")


def test_a_run_cannot_be_where_a_file_is(tmp_path, book):
    with pytest.raises(OSError, match="Not a directory"):
        train(book, book / "run")


# --- damage ---------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found_and_named(tmp_path, book):
    run = tmp_path / "run"
    train(book, run)
    assert damage(run) == []
    choose = random.Random(0)
    files = [p for p in sorted(run.rglob("*")) if p.is_file()]
    for i in range(200):
        file = files[i % len(files)]
        content = file.read_bytes()
        if not content:
            continue
        at = choose.randrange(len(content))
        flipped = bytearray(content)
        flipped[at] ^= 1 << choose.randrange(8)
        file.write_bytes(flipped)
        found = damage(run)
        named = file if file.name not in ("manifest.json", "checksums.json") else file.parent
        assert any(str(named) in line for line in found), (file, at)
        file.write_bytes(content)
    assert damage(run) == []


def test_a_damaged_checkpoint_points_to_the_other(tmp_path, book):
    run = tmp_path / "run"
    train(book, run)
    file = run / BEST / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(GlassError, match=r"best.*is corrupted.*run/last may be whole"):
        load(run)
    assert load(run / LAST)
    with (run / "cache" / "train.ids").open("r+b") as store:
        store.write(b"xx")
    with pytest.raises(GlassError, match=r"train\.ids is damaged"):
        training.resume(run, NullReporter())


# --- numbers --------------------------------------------------------------------------------------


def nan_in_loss(trainer):
    losses = trainer.task.objective.losses
    trainer.task.objective.losses = lambda *args, **more: (
        loss * float("nan") for loss in losses(*args, **more)
    )


def nan_in_gradient(trainer):
    weight = trainer.network.blocks[0].attention.query.weight
    weight.register_hook(lambda gradient: gradient * float("nan"))


def nan_in_weight(trainer):
    with torch.no_grad():
        trainer.network.norm.weight[0] = float("nan")


def nan_in_data(trainer):
    losses = trainer.task.objective.losses

    def poisoned(network, batch, **more):
        with Trace(network, edit={"token": lambda x: x * float("nan")}):
            return iter([*losses(network, batch, **more)])

    trainer.task.objective.losses = poisoned


@pytest.mark.parametrize(
    ("inject", "named"),
    [
        (nan_in_loss, "the loss"),
        (nan_in_gradient, "the gradient of blocks.0.attention.query.weight"),
        (nan_in_weight, "the weight norm.weight"),
        (nan_in_data, "the loss"),
    ],
)
def test_what_is_not_finite_changes_no_weight_and_is_named(tmp_path, book, inject, named):
    told, seen = RecordingReporter(), []

    class EnoughError(Exception):
        pass

    def stopped(trainer, _tell):
        for _ in range(3):
            trainer.take_step(trainer.budget.begin(trainer.state.step))
        inject(trainer)
        (optimizer,) = trainer.step.optimizers.values()
        previous_ids = {n: v.clone() for n, v in trainer.network.state_dict().items()}
        moments = [v.clone() for s in optimizer.state.values() for v in s.values()]
        for _ in range(2):
            result = trainer.take_step(trainer.budget.begin(trainer.state.step))
            recovery.skip_step(trainer, result.not_finite)
        after = trainer.network.state_dict()
        assert all(
            torch.equal(previous_ids[n], after[n]) or "norm.weight" in n for n in previous_ids
        )
        now = [v for s in optimizer.state.values() for v in s.values()]
        assert all(torch.equal(a, b) for a, b in zip(moments, now, strict=True))
        seen.append(trainer.state.skipped)
        raise EnoughError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "finish", stopped)
        with pytest.raises(EnoughError):
            train(book, tmp_path / "run", reporter=told)
    assert seen == [2]
    assert any(f"step 4 is not taken: {named} is not finite" in line for line in told.lines)


def test_three_bad_steps_go_back_with_a_smaller_rate_and_then_stop(tmp_path, book, monkeypatch):
    losses, bad_steps = NextToken.losses, set(range(5, 8))
    told, seen = RecordingReporter(), [0]

    def poisoned(self, network, batch, **more):
        for loss in losses(self, network, batch, **more):
            yield loss * float("nan") if seen[0] in bad_steps else loss

    at, note = Windows.at, Run.note

    def remembered(self, step):
        seen[0] = step
        return at(self, step)

    def noted(self, kind, *, step, **values):
        note(self, kind, step=step, **values)
        if kind == "skipped" and step == 8 and healed:
            bad_steps.clear()

    healed = True
    monkeypatch.setattr(Windows, "at", remembered)
    monkeypatch.setattr(NextToken, "losses", poisoned)
    monkeypatch.setattr(Run, "note", noted)
    train(book, tmp_path / "healed", reporter=told)
    assert any("back to step 3, with a rate of" in line for line in told.lines)
    state = json.loads((tmp_path / "healed/last/training.json").read_text())
    assert (state["step"], state["scale"]) == (12, 0.3)
    healed, bad_steps = False, set(range(5, 12))
    with pytest.raises(GlassError, match=r"smaller rate too; the checkpoint of step 3.*rate"):
        train(book, tmp_path / "ill")
    assert load(tmp_path / "ill" / LAST)


def test_a_weight_that_is_not_finite_is_not_saved(tmp_path, book, monkeypatch):
    told, step = RecordingReporter(), Trainer.take_step

    def poisoned(self, moment):
        done = step(self, moment)
        if self.state.step == 6 and self.state.scale == 1:
            nan_in_weight(self)
        return done

    monkeypatch.setattr(Trainer, "take_step", poisoned)
    train(book, tmp_path / "run", reporter=told)
    assert "step 6 is not saved: a weight is not finite" in told.lines
    assert any("back to step 3" in line for line in told.lines)
    assert all(p.isfinite().all() for p in load(tmp_path / "run").network.parameters())


# --- memory ---------------------------------------------------------------------------------------


def small_memory(monkeypatch, tokens):
    """Memory for so many tokens at once, and not more."""
    losses = NextToken.losses

    def limited(self, network, batch, **more):
        if batch["ids"].numel() > tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        yield from losses(self, network, batch, **more)

    monkeypatch.setattr(NextToken, "losses", limited)


def test_a_batch_that_is_too_large_is_cut_into_pieces(tmp_path, book, monkeypatch):
    train(book, tmp_path / "whole")
    small_memory(monkeypatch, 40)
    with pytest.raises(
        GlassError, match=r"batch of 4 x 32 tokens .* in 4 pieces it fits.*--shrink-on-oom"
    ):
        train(book, tmp_path / "refused")
    told = RecordingReporter()
    train(book, tmp_path / "run", shrink_on_oom=True, reporter=told)
    assert any("read in 4 pieces, with the same result" in line for line in told.lines)
    assert "accumulate = 4" in (tmp_path / "run" / "config.toml").read_text()  # before step 1
    for ours, theirs in zip(
        load(tmp_path / "run").network.parameters(),
        load(tmp_path / "whole").network.parameters(), strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_memory_that_runs_out_on_the_way_goes_on_from_the_last_checkpoint(
    tmp_path, book, monkeypatch
):
    step = Trainer.take_step

    def later(self, moment):
        if self.state.step == 7 and self.settings.accumulate == 1:
            small_memory(monkeypatch, 80)
        return step(self, moment)

    monkeypatch.setattr(Trainer, "take_step", later)
    result = train(book, tmp_path / "run", shrink_on_oom=True)
    assert result["steps"] == 12
    state = json.loads((tmp_path / "run/last/training.json").read_text())
    assert state["changed"] == {"accumulate": 2}


def test_a_context_that_is_too_long_is_named_or_made_shorter(tmp_path, book, monkeypatch):
    small_memory(monkeypatch, 20)
    with pytest.raises(GlassError, match=r"one text of 32 tokens.*16 do: --set model.context=16"):
        train(book, tmp_path / "refused", minutes=0.01, steps=None)
    assert not (tmp_path / "refused").exists()
    small_memory(monkeypatch, 20)
    train(book, tmp_path / "run", shrink_on_oom=True)
    assert load(tmp_path / "run").config.context == 16
    assert is_memory_error(MemoryError())
    assert not is_memory_error(RuntimeError("another"))


# --- what a review found --------------------------------------------------------------------------


def test_an_old_run_stays_until_the_new_one_has_begun(tmp_path, book):
    run = tmp_path / "run"
    train(book, run)
    previous_ids = hashes(run)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(GlassError, match="the files are empty"):
        train(tmp_path / "empty.txt", run, overwrite=True)
    assert hashes(run) == previous_ids
    with pytest.raises(GlassError, match="would take its place"):
        train(book, run, overwrite=True, base=run)
    train(book, run, overwrite=True, seed=1)
    assert hashes(run) != previous_ids
    assert {p.name for p in tmp_path.iterdir()} == {"run", "book.txt", "empty.txt"}
    (tmp_path / "work" / "cache").mkdir(parents=True)
    with pytest.raises(GlassError, match="is no run"):
        train(book, tmp_path / "work", overwrite=True)


def test_a_new_end_survives_a_kill(tmp_path, book, monkeypatch):
    train(book, tmp_path / "run")
    process = os.fork()
    if process == 0:
        monkeypatch.setattr(Trainer, "loop", lambda _self: os._exit(9))
        training.resume(tmp_path / "run", NullReporter(), steps=20)
    os.waitpid(process, 0)
    assert training.resume(tmp_path / "run", NullReporter())["steps"] == 20


def test_a_run_that_learns_no_more_stays_where_it_is(tmp_path, book):
    options = {"lr": 0.0, "patience": 1, "steps": 40}
    done = train(book, tmp_path / "run", **options)
    assert done["steps"] == 8
    assert training.resume(tmp_path / "run", NullReporter())["steps"] == 8


def test_a_folder_that_is_gone_is_not_made_again(tmp_path, book, monkeypatch):
    step = Trainer.take_step

    def taking(self, moment):
        done = step(self, moment)
        if self.state.step == 3:
            shutil.rmtree(self.run.path)
        return done

    monkeypatch.setattr(Trainer, "take_step", taking)
    monkeypatch.setattr(Run, "note", lambda *_args, **_more: None)
    with pytest.raises(GlassError, match="is gone"):
        train(book, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": -1.0}, {"lr": float("nan")}, {"beta2": 1.0}, {"steps": None, "minutes": 1e999},
        {"seed": -1}, {"lora": -3}, {"vocab": -5}, {"clip": -1.0},
        {"lora": 2, "freeze": ["token*"]},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense_are_named(tmp_path, book, wrong):
    with pytest.raises(GlassError, match=next(iter(set(wrong) - {"steps"}))):
        train(book, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


# --- the last step, memory that is held, numbers that make no sense -------------------------------


@pytest.mark.parametrize("steps", [1, 12])
def test_a_last_step_that_is_not_finite_is_followed_by_the_evaluation(
    tmp_path, book, monkeypatch, steps
):
    step = Trainer.take_step

    def poisoned(self, moment):
        if self.state.step == steps - 1:
            nan_in_gradient(self)
        return step(self, moment)

    monkeypatch.setattr(Trainer, "take_step", poisoned)
    told = RecordingReporter()
    result = train(book, tmp_path / "run", steps=steps, reporter=told, evaluate_every=None)
    assert result["steps"] == steps
    assert any(f"step {steps} is not taken" in line for line in told.lines)
    judged = [m["step"] for m in Run(tmp_path / "run").metrics() if "seconds" in m]
    assert judged[-2:] == [steps, steps]  # at the last step, and of the best weights
    assert load(tmp_path / "run" / BEST)


class Heavy:
    """Stands for the tensors of a pass."""


def count_what_is_held(monkeypatch, too_much):
    """Let passes run out of memory; how many that are over are still held when one begins."""
    losses, alive, held = NextToken.losses, weakref.WeakSet(), []

    def limited(self, network, batch, **more):
        held.append(len(alive))
        heavy = Heavy()
        alive.add(heavy)
        if too_much(batch["ids"].numel(), len(held)):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        yield from losses(self, network, batch, **more)

    monkeypatch.setattr(NextToken, "losses", limited)
    return held


def test_what_did_not_fit_is_let_go_before_less_is_tried(tmp_path, book, monkeypatch):
    held = count_what_is_held(monkeypatch, lambda tokens, _passes: tokens > 8)
    told = RecordingReporter()
    train(book, tmp_path / "run", shrink_on_oom=True, reporter=told)
    assert sum("fits into memory" in line for line in told.lines) == 1
    assert load(tmp_path / "run").config.context == 8
    assert len(held) > 12
    assert not any(held)
    counted = [line for line in told.lines if line.startswith("counting n-grams")]
    assert len(counted) == 1  # the baseline does not depend on the context


def test_memory_that_runs_out_on_the_way_lets_go_of_what_did_not_fit(tmp_path, book, monkeypatch):
    held = count_what_is_held(monkeypatch, lambda tokens, passes: tokens > 80 and passes > 20)
    train(book, tmp_path / "run", shrink_on_oom=True, steps=30)
    assert len(held) > 20
    assert not any(held)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.threads=1000000", "threads must be at least 1 and at most 4,096"),
        ("train.threads=4000", r"threads must be at most \d+ on this machine"),
        ("train.batch_size=1000000000000", "batch_size must be at least 1 and at most"),
        ("model.dim=9000000", "parameters need about .* GB to be trained"),
        ("model.dim=100000000", "dim must be at least 1 and at most"),
        ("train.parameters=1000000000000", "parameters need about .* GB to be trained"),
    ],
)
def test_sizes_that_no_machine_has_are_refused_at_once(
    tmp_path, book, monkeypatch, setting, message
):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    previous_ids = torch.get_num_threads()
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
    assert torch.get_num_threads() == previous_ids


def test_a_wide_and_deep_network_is_refused_before_it_is_allocated(tmp_path, book):
    settings = ["model.dim=16384", "model.depth=1000", "model.heads=16"]
    previous_ids = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GlassError, match=r"3,2.* parameters need about .* GB"):
        training.train(
            "generate",
            book,
            run=tmp_path / "run",
            settings=settings,
            steps=3,
            reporter=NullReporter(),
        )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - previous_ids < 500_000


def test_weights_that_do_not_learn_need_no_room_for_it(monkeypatch):
    monkeypatch.setattr(setup, "total_memory", lambda: 0.0005)  # GB
    shape = MODELS["gpt2"].Config(vocab=100, context=16, dim=48, depth=2, heads=4)
    count = setup.count_parameters("gpt2", shape)
    assert 4 * count < 0.0005e9 < 16 * count
    for fits in ({"lora": 2}, {"freeze": ("token.*",)}, {"device": "cuda"}):
        setup.check_memory("gpt2", shape, TrainingSettings(**{"device": "cpu", **fits}))
    with pytest.raises(GlassError, match="GB to be trained"):
        setup.check_memory("gpt2", shape, TrainingSettings(device="cpu"))


def test_a_run_in_which_some_weights_get_no_gradient_goes_on(tmp_path, book):
    """The classifier's bias of keys never moves a score."""
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
    assert training.resume(tmp_path / "run", NullReporter(), steps=4)["steps"] == 4


@pytest.mark.parametrize("parameters", [20_000, 500_000])
def test_a_number_of_parameters_is_met_as_nearly_as_a_width_can(parameters):
    kind = MODELS["gpt2"]
    shape = kind.Config(vocab=50, context=16, depth=2, heads=4)
    found = setup.of_size("gpt2", shape, parameters)
    off = {
        dim: abs(setup.count_parameters("gpt2", replace(shape, dim=dim)) - parameters)
        for dim in range(8, 400, 8)
    }
    assert found.dim == min(off, key=off.get)


def test_predictions_are_counted_by_the_step_that_takes_them(tmp_path, book):
    result = train(book, tmp_path / "run", steps=5)
    state = json.loads((tmp_path / "run/last/training.json").read_text())
    assert state["predictions"] == 5 * 4 * 32
    assert result["speed"] > 0


def test_a_full_disk_is_told_with_the_file(tmp_path, book, monkeypatch):
    train(book, tmp_path / "run", steps=4)
    fsync_path = folder.fsync_path

    def full(path):
        if path.name == ".metrics.jsonl.new":
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync_path(path)

    monkeypatch.setattr(folder, "fsync_path", full)
    with pytest.raises(GlassError, match=r"metrics\.jsonl.*No space left on device"):
        training.resume(tmp_path / "run", NullReporter(), steps=6)


def test_a_run_of_more_threads_than_there_may_be_goes_on_with_fewer(tmp_path, book, monkeypatch):
    train(book, tmp_path / "run", steps=2)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("threads = 1", "threads = 3000"))
    Run(tmp_path / "run").seal()
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert training.resume(tmp_path / "run", NullReporter(), steps=3)["steps"] == 3
    assert seen == [64]


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
        ("baseline/figures.json", "[]"),
        ("config.toml", "x = 3\n"),
        ("cache/train.starts.npy", "\x93NUMPY"),
        ("cache/train.starts.npy", None),
        ("cache/train.width.npy", "x"),
        ("cache/train.ids", "\xff\xff"),
    ],
    ids=str,
)
def test_a_run_folder_that_was_tampered_with_is_refused_in_one_line(tmp_path, book, name, content):
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
    Run(run).seal()
    with pytest.raises(GlassError) as error:
        training.resume(run, NullReporter(), steps=4)
    assert "\n" not in str(error.value)
    assert str(run) in str(error.value)


@pytest.mark.parametrize("content", ["[]", '{"data": 3}', '{"task": 3, "data": []}', "{"])
def test_a_request_that_was_tampered_with_is_refused(tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "request.json").write_text(content)
    with pytest.raises(GlassError, match=r"request\.json"):
        training.resume(tmp_path / "run", NullReporter())


def test_moments_of_another_network_are_refused(tmp_path, book):
    train(book, tmp_path / "run", steps=2)
    file = tmp_path / "run" / "last" / "training.safetensors"
    tensors = load_file(file)
    for wrong in (
        {n: v for n, v in tensors.items() if n != "optimizer.0.exp_avg"},
        {**tensors, "optimizer.0.exp_avg": torch.zeros(3)},
        {**tensors, "optimizer.99.step": torch.zeros(())},
        {**tensors, "nothing": torch.zeros(3)},
        {**tensors, "random.cpu": torch.zeros(3, dtype=torch.uint8)},
        {n: v for n, v in tensors.items() if n != "random.cpu"},
    ):
        save_file(wrong, file)
        (file.parent / "manifest.json").unlink()
        write_manifest(file.parent)
        with pytest.raises(GlassError, match=r"training\.safetensors is corrupted"):
            training.resume(tmp_path / "run", NullReporter(), steps=4)
