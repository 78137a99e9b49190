"""Closed streams, broken pipes and closed terminals do not stop training."""

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
def test_closed_streams_do_not_stop_training(home, closed):
    line = " ".join(f"'{part}'" for part in TRAIN)
    script = f"set -o pipefail; {line} {closed}"
    result = subprocess.run(
        ["bash", "-c", script], cwd=home, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    assert saved_step(home / "run") == 12
    assert (home / "run" / "plots" / "loss.png").exists()


def test_a_broken_pipe_ends_a_command_without_an_error_message(home):
    subprocess.run(TRAIN, cwd=home, capture_output=True, check=True)
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [*COMMAND, "generate", "run", "the", "-n", "2000"],
        cwd=home, stdout=write, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write)
    assert (result.returncode, result.stderr) == (1, "")


def start_endless_training(home, **options):
    command = [*TRAIN[: TRAIN.index("12")], "1000000", *TRAIN[TRAIN.index("12") + 1 :]]
    process = subprocess.Popen([*command, "--save-every", "1"], cwd=home, text=True, **options)
    wait_for_steps(home / "run", process)
    return process


def set_hangup(action):
    """The action on SIGHUP that a process inherits; the tests themselves may run under nohup."""
    return lambda: signal.signal(signal.SIGHUP, action)


def test_closing_the_terminal_saves_and_stops_training(home):
    default = set_hangup(signal.SIG_DFL)
    process = start_endless_training(home, stderr=subprocess.PIPE, preexec_fn=default)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)  # from the kernel and from the shell
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "stopped and saved; to continue: glass resume run" in stderr
    assert saved_step(home / "run") > 0


def test_closing_the_terminal_under_nohup_does_not_stop_training(home):
    ignore = set_hangup(signal.SIG_IGN)
    process = start_endless_training(home, stderr=subprocess.DEVNULL, preexec_fn=ignore)
    process.send_signal(signal.SIGHUP)
    previous_step = saved_step(home / "run")
    while saved_step(home / "run") <= previous_step:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 130


class BrokenStream:
    """A stream whose reader has closed the pipe."""

    def write(self, _text):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


def test_reporter_never_raises(monkeypatch, tmp_path):
    closed = (tmp_path / "file").open("w")
    closed.close()
    for stream in (None, BrokenStream(), closed):
        monkeypatch.setattr("sys.stderr", stream)
        reporter = Reporter(status_interval=0.0)
        reporter("a line")
        reporter.status("another")
        reporter.clear()
        ProgressBar(reporter, "bar", 3).add(1)
        if stream is not None:
            assert reporter.stream is None
            discard_output(stream)
    assert not is_terminal(closed)
    assert not is_terminal(SimpleNamespace(write=print))


def test_reporter_replaces_characters_that_the_log_cannot_encode(monkeypatch, tmp_path):
    with (tmp_path / "log").open("w", encoding="ascii") as log:
        monkeypatch.setattr("sys.stderr", log)
        reporter = Reporter()
        reporter("三百 done")
        reporter("more")
        log.write("and the user's own\n")
    assert (tmp_path / "log").read_text() == "?? done\nmore\nand the user's own\n"
    assert not is_terminal(None)
