"""Every message that a user can see has a Chinese translation in the catalog."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

import glassformer
from glassformer.api import OTHER_USES
from glassformer.cli.registry import COMMANDS, LazyCommands
from glassformer.core.i18n import language, load_catalog, localize
from glassformer.registry import MODELS, describe_model
from glassformer.training.settings import TrainingSettings

PACKAGE = Path(glassformer.__file__).parent
SHOWN_BY = {  # functions and classes whose text arguments are shown to a user
    *("GlassError", "UsageError", "ContextTooLongError", "UnsupportedPrecisionError"),
    *("reporter", "on_bad_row", "echo", "localize", "ProgressBar", "fail"),
    "Diagnosis",
}
RETURNED_BY = {  # functions that return a message or a part of one
    *("did_you_mean", "format_step", "summarize", "format_budget"),
    *("describe_formats", "find_warnings"),
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
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            if not paragraph.startswith("\b"):
                yield " ".join(paragraph.split()), name
        for option in command.params:
            if isinstance(option, click.Option) and option.help:
                yield re.sub(r"\s*\[.*\]$", "", option.help), f"{name} {option.opts[0]}"


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
                        if re.search(r"[A-Za-z]{2}", re.sub(r"\{\d+\}", "", template)):
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
            if isinstance(other, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == node.id for target in other.targets
            ):
                yield from iter_templates(other.value, scope, depth + 1)


def iter_descriptions() -> Iterator[tuple[str, str]]:
    """The descriptions of training settings and models, and of what a model can do."""
    for text in OTHER_USES.values():
        yield text, "OTHER_USES"
    for field in fields(TrainingSettings):
        yield field.metadata["description"], f"train.{field.name}"
    for name in MODELS:
        yield describe_model(name), name


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
