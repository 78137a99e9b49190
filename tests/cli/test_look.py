"""The commands that look inside a model."""

import json
import os
import pty
import re
import select
import subprocess
import sys

import pytest
from click.testing import CliRunner

from cases import CASES
from glassformer import Model
from glassformer.cli import glass
from glassformer.core.i18n import language
from glassformer.lessons import LESSONS, TEXT_LESSONS, load_lesson
from inspection.test_worksheet import TOKENIZER


@pytest.fixture(autouse=True)
def restore_language():
    token = language.set("en")
    yield
    language.reset(token)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look") / "model"
    Model(CASES["gpt2"].network, TOKENIZER).save(folder)
    return str(folder)


def command(*args, code=0):
    result = CliRunner().invoke(glass, [*map(str, args)], env={"COLUMNS": "120"})
    output = result.output + (str(result.exception) if result.exception else "")
    assert (result.exit_code == 0) == (code == 0), output
    return output


def test_the_columns_of_evaluate_are_aligned(run, monkeypatch):
    model = {"model": "speedrun_translator", "loss": 0.5, "bleu_signature": "tok:13a|" * 5}
    baseline = {"model": "phrase_table", "loss": 0.25, "bleu_signature": "tok:13a|" * 5}
    monkeypatch.setattr(
        "glassformer.training.evaluate.evaluate", lambda *_, **__: model | {"baseline": baseline}
    )
    lines = command("evaluate", run).splitlines()
    assert lines[0].index("baseline") == lines[1].index("phrase_table") == lines[2].index("0.25")
    assert lines[3].split() == ["BLEU", "signature", "tok:13a|" * 5]


def test_commands_that_write_or_check_files_report_it_in_chinese(run, tmp_path, monkeypatch):
    assert command("check", run, "--lang", "zh") == f"{run} 完好\n"
    copy = tmp_path / "copy"
    assert command("convert", run, copy, "--lang", "zh").endswith(f"\n已写入 {copy}\n")
    (copy / "config.toml").write_text("")
    assert "已损坏" in command("check", copy, "--lang", "zh", code=1)
    folder = tmp_path / "tables"
    output = command("walk", "norm", "--csv", folder, "--lang", "zh")
    assert output == f"已将 {len(list(folder.iterdir()))} 个表写入 {folder}\n"
    costs = dict.fromkeys(("bits_per_byte", "parameters", "steps", "speed", "memory", "seconds"), 1)
    monkeypatch.setattr(
        "glassformer.training.compare.compare",
        lambda *_, **__: (tmp_path, [{"name": "gpt2", **costs}]),
    )
    output = command("compare", "generate", "--models", "gpt2,markov", "--lang", "zh")
    assert output.endswith(f"\n报告：{tmp_path / 'README.md'}\n")


def test_embed_and_evaluate_overwrite_no_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "glassformer.training.evaluate.evaluate",
        lambda *_, plot, **__: {"loss": plot.write_text("new")},
    )
    for file, line in (
        (tmp_path / "a.npy", ("embed", run, "a cat", "--out")),
        (tmp_path / "a.png", ("evaluate", run, "--plot")),
    ):
        file.write_text("old")
        assert "already exists" in command(*line, file, code=2)
        assert file.read_text() == "old"
        command(*line, file, "--overwrite")
        assert file.read_bytes() != b"old"
        assert "folder nowhere does not exist" in command(*line, f"nowhere/{file.name}", code=2)


def test_embed_writes_arrays_and_tables_only(run, tmp_path):
    error = command("embed", run, "a cat", "--out", tmp_path / "vectors", code=2)
    endings = ".npy, .csv, .tsv, .jsonl, .parquet"
    file = tmp_path / "vectors"
    assert f"--out: expected a file name ending in {endings}, got {file}" in error
    assert not list(tmp_path.iterdir())


def test_runs_are_listed_in_chinese_in_aligned_columns(tmp_path):
    for name, line in (("a", ""), ("b", '{"kind": "final", "step": 1, "bits_per_byte": 2.5}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text('[task]\nname = "generate"\n')
        (tmp_path / name / "metrics.jsonl").write_text(line + line.replace("final", "validation"))
    english, chinese = command("runs", tmp_path), command("runs", tmp_path, "--lang", "zh")
    assert "  not evaluated      0 min ago\n" in english
    assert "  bits per byte 2.5  0 min ago\n" in english
    assert "  未评估            0 分钟前\n" in chinese  # each character is two wide


def test_why_is_shown_in_the_terminal_and_written_as_html_and_csv(run, tmp_path):
    args = (run, "a cat", "--why", "output[0,-1,5]")
    output = command("walk", *args)
    assert output.startswith("model on 'a cat': output[0,-1,5]\n\noutput[0,4,5] = ")
    assert "row × column" in output
    assert "factor 1" in output
    command("walk", *args, "--html", tmp_path / "why.html", "--csv", tmp_path / "why")
    assert "factor 1" in (tmp_path / "why.html").read_text()
    assert len(list((tmp_path / "why").iterdir())) > 3


def test_walk_writes_all_formats_and_overwrites_no_file(run, tmp_path):
    page, sheet, folder = (tmp_path / name for name in ("a.html", "a.tex", "a"))
    files = ("--html", page, "--latex", sheet, "--csv", folder)
    output = command("walk", "norm", *files, "--blanks", "--lang", "zh")
    assert "____" in page.read_text()
    assert "ctexart" in sheet.read_text()
    exercise, solution = (list(path.glob("*.csv")) for path in (folder, folder / "solution"))
    assert len(exercise) == len(solution) > 0
    assert str(page) in output
    for name, file in (("--html", page), ("--latex", sheet), ("--csv", folder)):
        assert "already exists" in command("walk", "norm", name, file, code=2)


def test_an_overwritten_exercise_leaves_no_solution(tmp_path):
    folder = tmp_path / "tables"
    command("walk", "norm", "--csv", folder, "--blanks")
    assert list(folder.glob("solution/*.csv"))
    command("walk", "markov", "--csv", folder, "--overwrite")
    assert list(folder.glob("*.csv"))
    assert not (folder / "solution").exists()


@pytest.mark.parametrize("name", TEXT_LESSONS)
def test_a_lesson_is_computed_for_a_text_or_a_text_file(name, tmp_path):
    text, file = "you win the game or you die and the storm brings the game", tmp_path / "own.txt"
    file.write_text(text, encoding="utf-8")
    from_text, from_file = (command("walk", name, x) for x in (text, file))
    assert from_text.startswith(f"{name} on '{text}'\n")
    assert from_text.split("\n", 1)[1] == from_file.split("\n", 1)[1]
    page = command("walk", name, text, "--html", "-", "--blanks", "--lang", "zh")
    assert "____" in page
    assert "storm" in page


def test_a_long_chinese_text_is_not_taken_for_a_file_name():
    assert "我" in command("walk", "markov", "我吃饭，你看书。" * 20)


def test_only_the_start_of_a_long_text_is_used(tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("a b. " * 5000, encoding="utf-8")
    output = command("walk", "markov", file)
    assert "only the first 20000 characters of the text are used" in output
    assert "4000 sentences with 8000 words" in output


@pytest.mark.parametrize("name", LESSONS)
def test_the_help_of_walk_names_every_lesson(name):
    assert re.search(rf"\b{name}\b", command("walk", "--help"))


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_is_available_in_chinese(name):
    english, chinese = command("walk", name), command("walk", name, "--lang", "zh")
    assert english != chinese
    assert chinese.count("\n") == pytest.approx(english.count("\n"), rel=0.2)


def test_heads_and_patch_print_tables_and_json(run):
    output = command("heads", run, "a cat sat")
    assert "induction" in output
    assert "blocks.1 3 " in output
    assert "先前相同" in command("heads", run, "a cat sat", "--lang", "zh")
    heads = [json.loads(line) for line in command("heads", run, "--json").splitlines()]
    assert {stats["head"] for stats in heads} == {0, 1, 2, 3}
    result = json.loads(command("patch", run, "a cat", "a cab", "--json"))
    assert set(result) == {
        "clean", "corrupt", "answers", "probs", "gap", "positions", "heads"
    }  # fmt: skip
    assert len(result["positions"]["blocks.0"]) == 5
    assert "t/b" in command("patch", run, "a cat", "a cab")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["classify", "RUN", "a cat", "--csv", "--json"], "give --csv or --json, not both"),
        (["walk", "nrom"], "did you mean 'norm'"),
        (["walk", "norm", "--step", "--html", "a.html"], "--step waits for keys in the terminal"),
        (["walk", "norm", "--step", "--csv", "a"], "--step waits for keys in the terminal"),
        (["walk", "norm", "a text"], "it does not take a TEXT"),
        (["walk", "norm", "--why", "output[0,1]"], "--why needs a trained model"),
        (["walk", "norm", "--layer", "3"], "--layer needs a trained model"),
        (["walk", "RUN"], "missing TEXT"),
        (["walk", "RUN", ""], "the text is empty"),
        (["walk", "RUN", "a cat", "--why", "outptu[0,1,2]"], "did you mean"),
        (["walk", "RUN", "a cat", "--why", "output[0,1,99]"], "output has the shape [1, 5, 50]"),
        (["walk", "RUN", "a cat", "--why", "output"], "expected a value and an index into it"),
        (["walk", "RUN", "a cat", "--layer", "7"], "there is no block 7"),
        (["walk", "RUN", "a" * 99], "do not fit in a context of 32"),
        (["patch", "RUN", "a cat", "a do"], "same number of tokens"),
        (["draw", "atention", "RUN", "a cat"], "did you mean"),
        (["draw", "waves", "--layer", "3"], "waves takes no --layer"),
        (["draw", "markov", "RUN", "--kind", "first"], "markov takes no --kind with RUN"),
        (["draw", "attention", "RUN", "a cat", "--head", "0", "--head", "1"], "takes one --head"),
        (["draw", "product", "--kind", "dots"], "expected one of matrix, dot, films"),
        (["draw", "waves", "--out", "a.gif"], "saved as .png or .svg or .pdf"),
        (["draw", "waves", "--out", "nowhere/a.png"], "folder nowhere does not exist"),
        (["walk", "norm", "--html", "nowhere/a.html"], "folder nowhere does not exist"),
    ],
)
def test_wrong_arguments_are_reported(run, line, message):
    assert message in command(*(run if part == "RUN" else part for part in line), code=1)


@pytest.mark.parametrize(("last", "code"), [(b"q", 0), (b"\x03", 130)])
def test_step_option_waits_for_a_key(last, code):
    terminal, child_end = pty.openpty()
    line = [sys.executable, "-c", "from glassformer.cli import main; main()", "walk", "markov"]
    process = subprocess.Popen(
        [*line, "--step"], stdin=child_end, stdout=child_end, stderr=child_end
    )
    os.close(child_end)

    def read_output(seconds=60):
        text = b""
        while b"q to quit" not in text and select.select([terminal], [], [], seconds)[0]:
            try:
                text += os.read(terminal, 4096)
            except OSError:  # the process has exited
                break
        return text.decode()

    def press(key):
        """Press a key and return the output. Keys pressed too early are dropped, so try again."""
        text = ""
        while "q to quit" not in text and process.poll() is None:
            os.write(terminal, key)
            text += read_output(seconds=3)
        return text

    titles = [step.title for step in load_lesson("markov")]
    try:
        assert titles[0] in (first := read_output())
        assert titles[1] not in first
        assert not select.select([terminal], [], [], 0.5)[0]  # it waits
        assert titles[1] in press(b" ")
        assert titles[0] in press(b"b")
        assert titles[1] not in press(last)
        assert process.wait(60) == code
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
