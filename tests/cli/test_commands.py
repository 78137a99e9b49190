"""The commands, run as a user runs them."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import openpyxl
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import glassformer
from cases import CASES
from glassformer import load
from glassformer.api import Model
from glassformer.cli import glass
from glassformer.cli.registry import COMMANDS, Entry, LazyCommands
from glassformer.cli.report import print_evaluation
from glassformer.core.i18n import language
from in_process import run_command, shorten, shrink_samples

ROOT = Path(glassformer.__file__).parents[2]


def run(*args, code=0, **options):
    """Run `glass` in a subprocess."""
    command = [sys.executable, "-c", "from glassformer.cli import main; main()", *map(str, args)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


def test_help_is_fast_and_imports_neither_commands_nor_torch():
    code = (
        "import sys; sys.argv = ['glass', '--help']\n"
        "from glassformer.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    modules = {name for name in sys.modules if name.startswith('glassformer.cli.')}\n"
        "    shared = {f'glassformer.cli.{name}' for name in ('registry', 'options', 'help')}\n"
        "    print(modules - shared, end=' ')\n"
        "    print({'torch', 'numpy', 'tokenizers', 'rich'} & set(sys.modules))"
    )
    times = []
    for _ in range(3):
        before = os.times()
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        after = os.times()  # CPU time, which does not depend on the load of the machine
        cpu_times = (after.children_user, after.children_system)
        times.append(sum(cpu_times) - before.children_user - before.children_system)
    assert result.stdout.endswith("\nset() set()\n")
    assert min(times) < 0.5


def test_help_lists_all_commands_by_group():
    text = run("--help").stdout
    groups = re.split(r"^([A-Z][a-z ]+):$", text, flags=re.MULTILINE)[1:]
    listed = {
        title: re.findall(r"^  ([a-z-]+)(?= )", lines, re.MULTILINE)
        for title, lines in zip(groups[::2], groups[1::2], strict=True)
    }
    assert list(listed) == ["Options", "Train", "Use a model", "Look inside", "Manage models"]
    for title in list(listed)[1:]:
        names = [name for name, entry in COMMANDS.items() if entry.group == title]
        assert listed[title] == names != []
    assert {entry.group for entry in COMMANDS.values()} == set(listed) - {"Options"}


def test_options_of_train_are_listed_under_headings():
    command = LazyCommands()["train"]
    named = {name for names in command.headings.values() for name in names.split()}
    assert named < {name for option in command.params for name in option.opts}
    text = CliRunner().invoke(glass, ["train", "--help"]).output
    sections = re.split(r"^([A-Z][a-z]+):\n", text, flags=re.MULTILINE)
    assert sections[1::2] == ["Data", "Tokenizer", "Model", "Budget", "Run"]
    for heading, lines in zip(sections[1::2], sections[2::2], strict=True):
        names = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", lines, re.MULTILINE))
        rest = {"--run", "--seed", "--help"} if heading == "Run" else set()
        assert names >= {*command.headings[heading].split(), *rest}


def test_evaluations_name_the_compared_metric_and_leave_undefined_scores_out(capsys):
    row = {"label": "a", "precision": None, "recall": None, "f1": None, "examples": 0}
    baseline = {"accuracy": 0.5, "difference_interval": [-0.1, 0.1]}
    metrics = {"accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "f1": 0.4}
    print_evaluation({**metrics, "baseline": baseline, "classes": [row]})
    text = capsys.readouterr().out
    values = "-0.1 to +0.1 (95% confidence interval); not significant"
    assert f"accuracy difference from the baseline: {values}\n" in text
    assert re.search(r"^macro F1 +0\.4$", text, re.MULTILINE)
    assert re.search(r"^a +- +- +- +0$", text, re.MULTILINE)


def test_a_run_that_does_not_exist_is_reported_with_the_command_that_lists_runs():
    for arguments in (["evaluate", "runs/x"], ["resume", "runs/x"], ["average", "runs/x"]):
        result = CliRunner().invoke(glass, [*arguments, *["--out", "y"] * ("average" in arguments)])
        assert result.exit_code == 2
        assert "'runs/x' does not exist; `glass runs` lists the runs" in result.output
    result = CliRunner().invoke(glass, ["walk", "runs/x"])
    assert str(result.exception) == "runs/x does not exist; `glass runs` lists the runs"


@pytest.mark.parametrize("name", COMMANDS)
def test_registered_help_is_the_first_sentence_of_the_command(name):
    command = glass.commands[name]
    assert command.name == name
    assert command.get_short_help_str(100) == COMMANDS[name].help


def test_every_command_is_registered():
    for module in {entry.module for entry in COMMANDS.values()}:
        members = vars(importlib.import_module(f"glassformer.cli.{module}")).values()
        names = {member.name for member in members if isinstance(member, click.Command)}
        assert names == {name for name, entry in COMMANDS.items() if entry.module == module}


def test_a_new_command_is_a_function_and_one_entry(monkeypatch):
    @click.command()
    @click.argument("word")
    def toy_echo(word):
        """Print WORD twice."""
        click.echo(f"{word} {word}")

    monkeypatch.setitem(sys.modules, "glassformer.cli.toys", SimpleNamespace(toy_echo=toy_echo))
    monkeypatch.setitem(COMMANDS, "toy-echo", Entry("toys", "Toys", "Print WORD twice."))
    output = CliRunner().invoke(glass, ["--help"]).output
    assert re.search(r"^Toys:\n  toy-echo  Print WORD twice\.$", output, re.MULTILINE)
    assert CliRunner().invoke(glass, ["toy-echo", "hello"]).output == "hello hello\n"
    assert "Print WORD twice." in CliRunner().invoke(glass, ["toy-echo", "--help"]).output
    mistyped = CliRunner().invoke(glass, ["toy-ecko"])
    assert mistyped.exit_code == 2
    assert "No such command 'toy-ecko'" in mistyped.output


@pytest.mark.parametrize("name", glass.commands)
def test_every_command_has_help_with_an_example(name):
    text = CliRunner().invoke(glass, [name, "--help"]).output
    assert re.search(rf"^  glass {name}", text, re.MULTILINE)


@pytest.mark.parametrize("name", glass.commands)
def test_every_command_is_in_the_readme(name):
    assert f"glass {name}" in (ROOT / "README.md").read_text()


def test_demo_prints_a_worksheet():
    text = run("demo", "The value of the list").stdout
    assert re.search(r"0\s+The\s+\d+", text)
    assert "blocks.0.attention.pattern" in text
    assert re.search(
        r"^    The +1( +0)+$", text, re.MULTILINE
    )  # the first token can attend only to itself
    assert len(re.findall(r"\d\.\d\d%", text)) == 5
    assert text == run("demo", "The value of the list").stdout


def test_code_that_demo_prints_runs():
    from glassformer.cli.walk import NEXT_STEPS

    lines = [line for line in NEXT_STEPS.splitlines() if line.startswith("  ")]
    namespace = {}
    exec("\n".join(line.removeprefix("  ") for line in lines), namespace)
    pattern = namespace["trace"]["blocks.0.attention.pattern"]
    assert pattern.sum(dim=-1).allclose(pattern.new_ones(1))


def test_demo_prints_ascii_in_a_terminal_without_unicode():
    output = run("demo", "hi", env={**os.environ, "PYTHONIOENCODING": "ascii"}).stdout
    assert output.isascii()
    assert "blocks.0.attention.pattern" in output


def test_demo_reports_errors_in_one_line():
    for args, message in (
        (["--head", "9"], "there is no head 9"),
        (
            ["--layer", "7"],
            "there is no attention layer 7; available: blocks.0.attention, blocks.1.attention, "
            "blocks.2.attention, blocks.3.attention",
        ),
        (["a " * 200], "do not fit in a context of 128"),
        ([""], "the text is empty"),
    ):
        error = run("demo", *args, code=1).stderr
        assert error.startswith("glass: ")
        assert message in error
        assert error.count("\n") == 1


def test_info_reports_versions_and_speeds():
    machine = json.loads(run("info", "--json").stdout)
    assert machine["torch"] == torch.__version__
    assert machine["threads"] >= 1
    for use in ("training", "decoding"):
        assert re.search(
            r"float32 \d+ GFLOP/s; bfloat16 is \d+\.\d times (slower|as fast)", machine[use]
        )
    assert "torch" in run("info").stdout


def test_converting_to_huggingface_and_back_keeps_the_config(tmp_path):
    Model(CASES["gpt2"].network).save(tmp_path / "glass")
    run("convert", tmp_path / "glass", tmp_path / "huggingface", "--to", "huggingface")
    result = run("convert", tmp_path / "huggingface", tmp_path / "back")
    assert "gpt2" in result.stdout
    assert load(tmp_path / "back").config == CASES["gpt2"].network.config
    error = run("convert", tmp_path / "huggingface", tmp_path / "back", code=1).stderr
    assert "already exists" in error
    run("convert", tmp_path / "huggingface", tmp_path / "back", "--overwrite")


def test_usage_errors_exit_with_2_and_input_errors_with_1(tmp_path):
    assert "No such command 'trian'" in run("trian", code=2).stderr
    assert "does not exist" in run("convert", tmp_path / "nothing", "x", code=2).stderr
    assert "is not a model folder" in run("convert", tmp_path, tmp_path / "x", code=1).stderr
    assert glassformer.__version__ in run("--version").stdout


def write_users_files(folder):
    """Write the data that the documentation takes for granted; labels are those of the sample."""
    reviews = [f"{('lovely', 'awful')[i % 2]} film {i},{('pos', 'neg')[i % 2]}" for i in range(60)]
    (folder / "reviews.csv").write_text("\n".join(["text,sentiment", *reviews]))
    code = [
        f"import {('asyncio', 'email')[i % 2]},{('asyncio', 'email')[i % 2]}" for i in range(30)
    ]
    (folder / "test.csv").write_text("\n".join(["text,label", *code]))
    (folder / "products.csv").write_text("id,name\n1,三百二十一\n2,五\n")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("A cat sat on the mat. A dog lay on the log.")
    Image.new("L", (32, 32)).save(folder / "shape.png")
    book = openpyxl.Workbook()
    for row in (["id", "text"], [1, "import asyncio"], [2, "import email"]):
        book.active.append(row)
    book.save(folder / "new.xlsx")


def test_a_command_in_this_process_reports_its_failure_and_leaves_no_trace():
    threads, language_before, state = torch.get_num_threads(), language.get(), torch.get_rng_state()
    assert "'nothing' is neither a run nor a lesson" in run_command("walk", "nothing", "--lang=zh")
    assert "No such option '--nothing'" in run_command("walk", "--nothing")
    assert run_command("embed", "nowhere").startswith("glass embed nowhere: SystemExit(2)")
    assert run_command("walk", "norm", "--step", "--lang", "zh") == ""  # keys cannot be waited for
    assert torch.get_num_threads() == threads
    assert language.get() == language_before
    assert torch.get_rng_state().equal(state)


@pytest.mark.filterwarnings("ignore:.*Noto Sans CJK:UserWarning")
def test_commands_and_code_in_the_documentation_run(tmp_path, monkeypatch):
    """Run every `glass` line and Python block of the documentation for users in one folder."""
    names = ("looking", "data", "images", "masks", "explorer")
    pages = ("README.md", *(f"docs/{name}.md" for name in names))
    text = "".join((ROOT / name).read_text() for name in pages)
    monkeypatch.chdir(tmp_path)
    shrink_samples(monkeypatch)
    write_users_files(tmp_path)
    lines = re.findall(r"^glass .*$", text, re.MULTILINE)
    assert len(lines) >= 12
    for line in lines:
        words = shlex.split(line.partition("#")[0])[1:]
        if "gpt2-folder" not in line:  # a folder that only the user has
            failure = run_command(*shorten(words, 3))
            assert not failure, failure
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
