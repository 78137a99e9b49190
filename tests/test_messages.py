"""Every message that a user can see has a Chinese translation in the catalog."""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest
from rich.cells import cell_len

import glassformer
from glassformer.api import OTHER_USES
from glassformer.cli.help import EXAMPLE, LocalizedContext
from glassformer.cli.look import HEADINGS
from glassformer.cli.registry import COMMANDS, LazyCommands
from glassformer.core.i18n import language, load_catalog, localize, tr
from glassformer.inspection.plots import PLOTS
from glassformer.registry import MODELS, describe_model
from glassformer.tasks import TASKS
from glassformer.tasks.task import METRICS
from glassformer.training.compare import run_in_process
from glassformer.training.evaluator import METRIC_LABELS, format_metrics, metric_label
from glassformer.training.settings import TrainingSettings

PACKAGE = Path(glassformer.__file__).parent
SHOWN_BY = {  # functions and classes whose text arguments are shown to a user
    *("GlassError", "UsageError", "ContextTooLongError", "UnsupportedPrecisionError"),
    *("reporter", "on_bad_row", "echo", "localize", "ProgressBar", "fail"),
    "Diagnosis",
}
RETURNED_BY = {  # functions that return a message or a part of one
    *("did_you_mean", "format_step", "summarize", "format_budget"),
    *("describe_formats", "describe_unvalidated_labels", "describe_small_split", "find_warnings"),
    *("describe_checkpoint", "format_best", "format_error"),
}


def iter_help() -> Iterator[tuple[str, str]]:
    """The paragraphs and option descriptions of the help of every command, as click shows them."""
    from glassformer.cli import glass

    yield "Usage: ", "click"
    yield "Options", "click"
    for name, entry in COMMANDS.items():
        yield entry.help, name
        yield entry.group, name
    for name, command in [("glass", glass), *LazyCommands().items()]:
        for heading in getattr(command, "headings", ()):
            yield heading, name
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            if not paragraph.startswith("\b"):
                yield " ".join(paragraph.split()), name
            for _, description in EXAMPLE.findall(paragraph):
                yield description, name
        for option in command.params:
            if isinstance(option, click.Option) and option.help:
                yield re.sub(r"\s*\[.*\]$", "", option.help), f"{name} {option.opts[0]}"
                for default in re.findall(r"\[default: (.* .*)\]", option.help):
                    yield default, f"{name} {option.opts[0]}"


def iter_messages() -> Iterator[tuple[str, str]]:
    """The template of every message in the package, with its file and line."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in ast.walk(tree):
            if not isinstance(scope, ast.FunctionDef | ast.Module):
                continue
            for node in walk_scope(scope):
                location = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.Call) and called_name(node) in SHOWN_BY:
                    texts = [*node.args, *(k.value for k in node.keywords if k.arg == "help")]
                elif (
                    isinstance(node, ast.Return | ast.Yield)
                    and getattr(scope, "name", "") in RETURNED_BY
                ):
                    texts = [node.value] if node.value else []
                else:
                    continue
                for text in texts:
                    for template in iter_templates(text, scope):
                        text = re.sub(r"\{\d+\}|^ ?--\w+ [\w.]*=?$", "", template)  # no options
                        if re.search(r"[A-Za-z]{2}", text):
                            yield template, location


def walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module, without those of the functions inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef):
            yield from walk_scope(child)


def called_name(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "attr", "") or getattr(function, "id", "")


def iter_templates(node: ast.expr, scope: ast.AST, depth: int = 0) -> Iterator[str]:
    """The texts in an expression, and in the variables of the scope that it inserts."""
    if depth > 4:
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        numbers = iter(range(100))
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{next(numbers)}}}"
            for part in node.values
        )
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and part.conversion == -1:
                yield from iter_templates(part.value, scope, depth + 1)
    elif isinstance(node, ast.IfExp):
        yield from iter_templates(node.body, scope, depth + 1)
        yield from iter_templates(node.orelse, scope, depth + 1)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from iter_templates(value, scope, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from iter_templates(node.left, scope, depth + 1)
        yield from iter_templates(node.right, scope, depth + 1)
    elif isinstance(node, ast.Name):
        for other in walk_scope(scope):
            targets = getattr(other, "targets", [getattr(other, "target", None)])
            if isinstance(other, ast.Assign | ast.AugAssign) and any(
                isinstance(target, ast.Name) and target.id == node.id for target in targets
            ):
                yield from iter_templates(other.value, scope, depth + 1)


def iter_descriptions() -> Iterator[tuple[str, str]]:
    """The descriptions of training settings, models and plots, and the names that tasks print."""
    for text in OTHER_USES.values():
        yield text, "OTHER_USES"
    for field in fields(TrainingSettings):
        yield field.metadata["description"], f"train.{field.name}"
    for name in MODELS:
        yield describe_model(name), name
    for name, plot in PLOTS.items():
        yield plot.help, name
    for title in HEADINGS.values():
        yield title, "HEADINGS"
    for name, spec in TASKS.items():
        yield spec.unit, name
        if spec.baseline_name not in ("", "NB-SVM"):
            yield spec.baseline_name, name


def test_every_message_and_help_text_has_a_translation():
    catalog = load_catalog()
    messages = dict([*iter_messages(), *iter_help(), *iter_descriptions()])
    assert len(messages) > 500
    missing = {text: where for text, where in messages.items() if text not in catalog}
    assert not missing, missing


def test_templates_are_filled_with_localized_values():
    token = language.set("zh")
    try:
        message = "unknown task 'clasify'; did you mean 'classify'?"
        assert re.search(
            "[\u4e00-\u9fff].*'clasify'.*[\u4e00-\u9fff].*'classify'", localize(message)
        )
        assert localize("a text that no template matches") == "a text that no template matches"
        assert localize("") == ""
    finally:
        language.reset(token)
    assert localize("unknown task 'x'") == "unknown task 'x'"


def test_names_and_quoted_values_stay_as_they_are():
    """Also if the name of a file, a setting or a column is a word in the catalog."""
    token = language.set("zh")
    try:
        assert tr("target") != "target"
        assert localize("target does not exist") == "target 不存在"
        assert (
            localize("steps must be an integer, got 'model'") == "steps 必须是整数，实际为 'model'"
        )
        assert '"text"' in localize('columns: text = "text", label = "label"')
        assert '"label"' in localize('columns: text = "text", label = "label"')
        line = "  almost equal: 'a: b' (validation) and 'c: d' (train)"
        assert localize(line).count(": ") == 2
    finally:
        language.reset(token)


SAME = {"BLEU", "chrF", "F1", "RMSE", "NDCG@10"}  # also in Chinese texts


def test_every_metric_has_a_chinese_name():
    printed = ("examples", "tokens", "bytes", "seconds", "steps", "parameters", "speed", "memory")
    names = [*METRICS, *METRIC_LABELS, *printed, "unseen", "truncated", "calibration_error", "task"]
    token = language.set("zh")
    try:
        for name in names:
            label = metric_label(name)
            is_chinese = re.search("[\u4e00-\u9fff]", label)
            assert is_chinese or label in SAME or label.startswith("ROUGE"), name
        assert format_metrics({"loss": 1.5, "bleu": 2.0}) == "验证损失 1.5  BLEU 2.0"
    finally:
        language.reset(token)


def test_progress_lines_are_chinese_throughout():
    token = language.set("zh")
    try:
        lines = [
            "step 1,000: 验证损失 1.5  F1 0.5  (best so far)",
            "precision float32: a step takes 0.253 s in float32, 0.142 s in bfloat16",
            "NOT better than the baseline (neighbor counts on 50% of the data): 准确率 0.5 vs. 0.7 "
            "(difference -0.2 to -0.1, 95% confidence interval); for now, use the baseline "
            "(neighbors)",
            "split: 8,134 train, 922 validation; 29 validation examples also appear in train "
            "(data leak)",
            "images (32 x 32 grayscale)",
            "准确率 difference from the baseline: +0 to +0.1 (95% confidence interval); "
            "not significant",
        ]
        for line in lines:
            words = re.sub(r"F1|float32|bfloat16|neighbors| [sx]\b", "", localize(line))
            assert not re.search("[A-Za-z]", words), words
    finally:
        language.reset(token)


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_chinese_help_is_wrapped_by_columns(name):
    from glassformer.cli import glass

    token = language.set("zh")
    try:
        command = glass if name is None else LazyCommands()[name]
        context = LocalizedContext(command, info_name="glass", terminal_width=78)
        lines = command.get_help(context).splitlines()
    finally:
        language.reset(token)
    assert lines[0].startswith("用法：")
    for line in lines:
        is_example = line.startswith("  glass ") or " | glass " in line
        assert is_example or cell_len(line) < 80, line
        assert not re.match("\\s*[，。：；、！？）]", line), line
        assert not re.search("[\1\2]", line)


@pytest.mark.parametrize(
    "message",
    [
        "No such option '--x'. (Did you mean one of: '--xa', '--xb'?)",
        "Option '--json' does not take a value.",
        "Option '--scale' requires 2 arguments.",
        "Invalid value for '--file': Path 'x' is not readable.",
        "Invalid value for '--top': 0 is not in the range x>=1.",
        "Invalid value for '--header': 'x' is not a valid boolean. Recognized values: 0, 1",
        "Missing command.",
    ],
)
def test_messages_of_click_are_chinese(message):
    token = language.set("zh")
    try:
        words = re.sub(r"'[^']*'|x>=1", "", localize(message))
    finally:
        language.reset(token)
    assert not re.search("[A-Za-z]", words), words


def test_the_models_of_a_comparison_are_trained_in_the_same_language(capfd):
    token = language.set("zh")
    try:
        code, _ = run_in_process(json.dumps({"resume": "nowhere"}))
    finally:
        language.reset(token)
    assert code == 1
    assert "nowhere 不是运行文件夹" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "用法"),
        (["train", "--help"], "训练"),
        (["train", "generate", "no-such-file.txt"], "不存在"),
        (["trian"], "命令"),
        (["check-data", "translate"], "训练"),
    ],
)
def test_commands_speak_chinese(arguments, expected, tmp_path):
    program = "from glassformer.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--lang", "zh"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert expected in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
