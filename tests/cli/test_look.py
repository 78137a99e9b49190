"""The commands that look inside, as a person types them."""

import json
import os
import pty
import select
import subprocess
import sys

import pytest
from click.testing import CliRunner

from cases import CASES
from glassformer import Model
from glassformer.cli import glass
from glassformer.core.i18n import language
from glassformer.lessons import LESSONS, load_lesson
from inspection.test_worksheet import TOKENIZER


@pytest.fixture(autouse=True)
def english():
    token = language.set("en")
    yield
    language.reset(token)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look") / "model"
    Model(CASES["gpt2"].network, TOKENIZER).save(folder)
    return str(folder)


def command(*args, code=0):
    done = CliRunner().invoke(glass, [*map(str, args)], env={"COLUMNS": "120"})
    said = done.output + (str(done.exception) if done.exception else "")
    assert (done.exit_code == 0) == (code == 0), said
    return said


def test_a_number_is_told_in_a_terminal_and_on_a_page(run, tmp_path):
    asked = (run, "a cat", "--why", "output[0,-1,5]")
    said = command("walk", *asked)
    assert said.startswith("model reads 'a cat': output[0,-1,5]\n\noutput[0,4,5] = ")
    assert "row × column" in said
    assert "factor 1" in said
    command("walk", *asked, "--html", tmp_path / "why.html", "--csv", tmp_path / "why")
    assert "factor 1" in (tmp_path / "why.html").read_text()
    assert len(list((tmp_path / "why").iterdir())) > 3


def test_each_file_is_written_and_none_is_written_over(run, tmp_path):
    page, sheet, folder = (tmp_path / name for name in ("a.html", "a.tex", "a"))
    files = ("--html", page, "--latex", sheet, "--csv", folder)
    said = command("walk", "norm", *files, "--blanks", "--lang", "zh")
    assert "____" in page.read_text()
    assert "ctexart" in sheet.read_text()
    exercise, solution = (list(place.glob("*.csv")) for place in (folder, folder / "solution"))
    assert len(exercise) == len(solution) > 0
    assert str(page) in said
    for name, file in (("--html", page), ("--latex", sheet), ("--csv", folder)):
        assert "exists already" in command("walk", "norm", name, file, code=2)


@pytest.mark.parametrize("name", LESSONS)
def test_a_walk_is_told_in_chinese(name):
    english, chinese = command("walk", name), command("walk", name, "--lang", "zh")
    assert english != chinese
    assert chinese.count("\n") == pytest.approx(english.count("\n"), rel=0.2)


def test_heads_and_patches_are_told_as_tables_and_as_json(run):
    said = command("heads", run, "a cat sat")
    assert "induction" in said
    assert "blocks.1 3 " in said
    assert "先前相同" in command("heads", run, "a cat sat", "--lang", "zh")
    measure_heads = [json.loads(line) for line in command("heads", run, "--json").splitlines()]
    assert {role["head"] for role in measure_heads} == {0, 1, 2, 3}
    found = json.loads(command("patch", run, "a cat", "a cab", "--json"))
    assert set(found) == {
        "clean", "corrupt", "answers", "chances", "gap", "places", "heads"
    }  # fmt: skip
    assert len(found["places"]["blocks.0"]) == 5
    assert "t/b" in command("patch", run, "a cat", "a cab")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["walk", "nrom"], "did you mean 'norm'"),
        (["walk", "norm", "a text"], "it takes no text"),
        (["walk", "norm", "--why", "output[0,1]"], "--why asks a trained model"),
        (["walk", "norm", "--layer", "3"], "--layer asks a trained model"),
        (["walk", "RUN"], "name a text"),
        (["walk", "RUN", ""], "the text is empty"),
        (["walk", "RUN", "a cat", "--why", "outptu[0,1,2]"], "did you mean"),
        (["walk", "RUN", "a cat", "--why", "output[0,1,99]"], "output has the shape [1, 5, 50]"),
        (["walk", "RUN", "a cat", "--why", "output"], "expected a value and an index into it"),
        (["walk", "RUN", "a cat", "--layer", "7"], "there is no block 7"),
        (["walk", "RUN", "a" * 99], "do not fit into a context of 32"),
        (["patch", "RUN", "a cat", "a do"], "same number of tokens"),
        (["draw", "atention", "RUN", "a cat"], "did you mean"),
        (["draw", "waves", "--layer", "3"], "waves takes no --layer"),
        (["draw", "waves", "--out", "a.gif"], "written as .png or .svg or .pdf"),
        (["draw", "waves", "--out", "nowhere/a.png"], "there is no folder nowhere"),
        (["walk", "norm", "--html", "nowhere/a.html"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_is_said(run, line, message):
    assert message in command(*(run if part == "RUN" else part for part in line), code=1)


@pytest.mark.parametrize(("last", "code"), [(b"q", 0), (b"\x03", 130)])
def test_steps_wait_for_a_key(last, code):
    terminal, side = pty.openpty()
    line = [sys.executable, "-c", "from glassformer.cli import main; main()", "walk", "markov"]
    process = subprocess.Popen([*line, "--step"], stdin=side, stdout=side, stderr=side)
    os.close(side)

    def said(seconds=60):
        text = b""
        while b"q ends" not in text and select.select([terminal], [], [], seconds)[0]:
            try:
                text += os.read(terminal, 4096)
            except OSError:  # the other side is closed
                break
        return text.decode()

    def pressed(key):
        """What follows a key. A terminal forgets what was typed before it waits for one: again."""
        text = ""
        while "q ends" not in text and process.poll() is None:
            os.write(terminal, key)
            text += said(seconds=3)
        return text

    titles = [step.title for step in load_lesson("markov")]
    try:
        assert titles[0] in (first := said())
        assert titles[1] not in first
        assert not select.select([terminal], [], [], 0.5)[0]  # it waits
        assert titles[1] in pressed(b" ")
        assert titles[0] in pressed(b"b")
        assert titles[1] not in pressed(last)
        assert process.wait(60) == code
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
