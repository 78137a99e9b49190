"""Streams that close, pipes that break, terminals that go away: the work goes on."""

import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from faults import COMMAND, saved_step, wait_for_steps
from glassformer.core.reporter import ProgressBar, Reporter, discard_output, is_terminal

TINY = ["model.dim=16", "model.depth=1", "model.heads=2", "model.context=16", "train.batch_size=4"]
TRAIN = [
    *COMMAND, "train", "generate", "book.txt", "--run", "run", "--steps", "12", "--threads", "1",
    "--device", "cpu", *(x for s in TINY for x in ("--set", s)),
]  # fmt: skip


@pytest.fixture
def home(tmp_path):
    (tmp_path / "book.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    return tmp_path


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", ">&- 2>&- <&-", "2>&1 | true", "| true"])
def test_a_closed_stream_does_not_stop_training(home, closed):
    line = " ".join(f"'{part}'" for part in TRAIN)
    script = f"set -o pipefail; {line} {closed}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert saved_step(home / "run") == 12
    assert (home / "run" / "plots" / "loss.png").exists()


def test_output_that_nobody_reads_ends_a_command_quietly(home):
    subprocess.run(TRAIN, cwd=home, capture_output=True, check=True)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "generate", "run", "the", "-n", "2000"],
        cwd=home, stdout=write, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def start_endless(home, **more):
    endless = [*TRAIN[: TRAIN.index("12")], "1000000", *TRAIN[TRAIN.index("12") + 1 :]]
    process = subprocess.Popen([*endless, "--save-every", "1"], cwd=home, text=True, **more)
    wait_for_steps(home / "run", process)
    return process


def test_a_terminal_that_is_closed_saves_and_stops(home):
    process = start_endless(home, stderr=subprocess.PIPE)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)  # from the kernel and from the shell
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "stopped and saved; to continue: glass resume run" in said
    assert saved_step(home / "run") > 0


def test_under_nohup_a_closed_terminal_changes_nothing(home):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = start_endless(home, stderr=subprocess.DEVNULL, preexec_fn=ignore)
    process.send_signal(signal.SIGHUP)
    previous_ids = saved_step(home / "run")
    while saved_step(home / "run") <= previous_ids:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 130


class Broken:
    """A stream whose reader is gone."""

    def write(self, _text):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


def test_progress_never_raises(monkeypatch, tmp_path):
    unwritable = (tmp_path / "file").open("w")
    unwritable.close()
    for stream in (None, Broken(), unwritable):
        monkeypatch.setattr("sys.stderr", stream)
        live = Reporter(every=0.0)
        live("a line")
        live.line("another")
        live.clear()
        ProgressBar(live, "bar", 3).add(1)
        if stream is not None:
            assert live.stream is None
            discard_output(stream)
    assert not is_terminal(unwritable)
    assert not is_terminal(SimpleNamespace(write=print))


def test_a_log_that_cannot_hold_every_character_is_written_on(monkeypatch, tmp_path):
    with (tmp_path / "log").open("w", encoding="ascii") as log:
        monkeypatch.setattr("sys.stderr", log)
        live = Reporter()
        live("三百 done")
        live("more")
        log.write("and the user's own\n")
    assert (tmp_path / "log").read_text() == "?? done\nmore\nand the user's own\n"
    assert not is_terminal(None)
