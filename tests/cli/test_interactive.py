"""The interactive session of `glass generate`, and prompts from standard input."""

import json
import os
import pty
import select
import subprocess
import time

import pytest
from click.testing import CliRunner

from cases import CASES
from faults import COMMAND
from glassformer import Model
from glassformer.cli import glass, interactive
from inspection.test_worksheet import TOKENIZER


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interactive")
    for name in ("gpt2", "classifier"):
        Model(CASES[name].network, TOKENIZER).save(folder / name)
    return folder / "gpt2"


def session(run, text, *arguments, code=0):
    line = ["generate", str(run), "--interactive", "-n", "4", *arguments]
    result = CliRunner().invoke(glass, line, input=text)
    assert result.exit_code == code, result.output
    return result


def texts(result):
    return [json.loads(line)["text"] for line in result.stdout.splitlines()]


def test_every_line_is_a_prompt(run):
    result = session(run, "a cat\n\nthe dog", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["prompt"] for row in rows] == ["a cat", "the dog"]
    model = CliRunner().invoke(glass, ["generate", str(run), "a cat", "-n", "4", "-t", "0"])
    assert session(run, "a cat\n", "-t", "0").stdout == model.stdout
    assert session(run, "").stdout == ""


def test_commands_change_options_until_they_are_restored(run):
    lines = ["a cat", "/max-new-tokens 9", "a cat", "/max-new-tokens", "a cat"]
    first, longer, last = texts(session(run, "\n".join(lines), "-t", "0", "--json"))
    assert last == first
    assert longer.startswith(first)
    assert len(longer) > len(first)
    lines = ["/temperature 2", "/seed 1", "a cat", "a cat", "/seed 2", "a cat", "/samples 3", "a"]
    result = texts(session(run, "\n".join(lines), "--json"))
    assert result[0] == result[1] != result[2]
    assert len(result) == 6
    stopped = session(run, f"/stop {first[1]}\na cat\n", "-t", "0", "--json")
    assert texts(stopped) == [first.partition(first[1])[0]]


def test_an_error_in_a_line_does_not_end_the_session(run):
    lines = ["/temprature 1", "/temperature hot", "/temperature -1", "/top-k 1.5", "/", "a cat"]
    result = session(run, "\n".join(lines), "--json")
    assert len(texts(result)) == 1
    for message in (
        "unknown command '/temprature'; did you mean '/temperature'?",
        "'hot' is not a valid float",
        "temperature must be at least 0.0 and at most 100.0, got -1.0",
        "'1.5' is not a valid integer",
        "unknown command '/'; try /help",
    ):
        assert f"{message}" in result.stderr
    assert result.stderr.count("glass: ") == 5


def test_errors_while_generating_are_reported(run, monkeypatch):
    def stream(self, prompt, **options):
        raise {"long": RuntimeError("not enough memory"), "bug": RuntimeError("oh")}[prompt]

    monkeypatch.setattr(Model, "stream", stream)
    assert "out of memory: try a shorter prompt" in session(run, "long\n").stderr
    assert str(session(run, "bug\n", code=1).exception) == "oh"


def test_help_lists_the_options_with_their_values(run):
    result = session(run, "/top-k 7\n/stop end\n/help\n")
    for text in ("/top-k 7 ", "/stop end ", "/max-new-tokens 4 ", "Sampling temperature;"):
        assert text in result.stderr
    assert result.stdout == ""


def test_wrong_uses_end_before_the_session(run):
    assert "leave out PROMPT" in session(run, "", "a cat", code=2).stderr
    result = session(run.parent / "classifier", "a\n", code=1)
    message = "not trained to generate; it classifies: glass classify RUN"
    assert message in str(result.exception)


def test_ctrl_c_clears_a_line_and_ends_the_session_on_an_empty_one(monkeypatch):
    typed = iter(["half a li", "", None, "a cat"])
    buffer = ""

    def read(_prompt):
        nonlocal buffer
        if (buffer := next(typed)) == "a cat":
            return buffer
        raise EOFError if buffer is None else KeyboardInterrupt

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(interactive.readline, "get_line_buffer", lambda: buffer)
    assert interactive.read_prompt() is None  # the second Ctrl-C
    assert interactive.read_prompt() is None  # Ctrl-D
    assert interactive.read_prompt() == "a cat"


def test_ctrl_c_stops_a_continuation_and_ctrl_d_ends_the_session(run):
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "generate", str(run), "-i", "-n", "1000000000"],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # its own terminal
    )  # fmt: skip
    os.close(terminal)
    wait_for(main, "> ")
    os.write(main, b"a cat\n")
    wait_for(main, "\na cat")
    time.sleep(0.2)
    os.write(main, b"\x03")
    wait_for(main, "\n> ")
    os.write(main, b"\x04")
    assert process.wait(60) == 0
    os.close(main)


def wait_for(terminal, text, seconds=60):
    """Read the output of a terminal until it contains a text."""
    output, end = "", time.monotonic() + seconds
    while text not in output:
        assert select.select([terminal], [], [], max(end - time.monotonic(), 0))[0], output
        output += os.read(terminal, 4096).decode(errors="replace")


def test_a_piped_prompt_has_no_final_newline(run):
    line = ["generate", str(run), "-", "-n", "1", "--json"]
    for text, prompt in (("a cat\n", "a cat"), ("a cat", "a cat"), ("a\ncat\n\n", "a\ncat\n")):
        result = CliRunner().invoke(glass, line, input=text)
        assert json.loads(result.stdout)["prompt"] == prompt


def test_a_prompt_that_is_not_utf8_is_an_error(run):
    result = subprocess.run(
        [*COMMAND, "generate", str(run), "-"], input=b"\xff\xfe", capture_output=True, check=False,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:strict"},
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith(b"glass: standard input is not valid UTF-8: ")
