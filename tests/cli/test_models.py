"""The list of models and of training settings."""

import json
from dataclasses import fields

import pytest
from click.testing import CliRunner

from glassformer.cli import glass
from glassformer.core.i18n import language
from glassformer.registry import MODELS
from glassformer.tasks import TASKS
from glassformer.training.settings import TrainingSettings


@pytest.fixture
def book(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    return file


@pytest.fixture(autouse=True)
def restore_language():
    token = language.set("en")
    yield
    language.reset(token)


def models(*arguments, code=0):
    result = CliRunner().invoke(glass, ["models", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_all_models_are_listed_with_the_settings_of_their_task():
    rows = {row["model"]: row for row in map(json.loads, models("--json").splitlines())}
    assert rows.keys() == MODELS.keys()
    assert rows["gpt2"]["tasks"] == ["generate"]
    assert rows["gpt2"]["settings"]["dim"] == TASKS["generate"].model_settings["dim"]
    assert rows["bert_encoder"]["tasks"] == []
    assert [name for name in rows if rows[name].get("default")] == [
        spec.models[0] for spec in TASKS.values()
    ]


def test_the_models_of_a_task_are_listed_for_data_and_budget(book):
    text = models("generate", book, "--minutes", "1")
    assert text.startswith(f"Models for generate (1 minute, {book}):\n  speedrun (default)\n")
    assert "GPT-2: causal, pre-norm blocks" in text
    assert "parameters, " in text
    assert "fitted directly, without training steps" in text
    assert "train.  batch_size=16 lr=0.0015" in text
    rows = [json.loads(line) for line in models("generate", book, "--json").splitlines()]
    assert [row["model"] for row in rows] == list(TASKS["generate"].models)
    chinese = models("generate", book, "--lang", "zh")
    assert f"用于 generate 的模型（5 分钟，{book}）" in chinese
    assert "个参数" in chinese


def test_columns_are_those_of_training(tmp_path):
    file = tmp_path / "reviews.csv"
    rows = [f"a {'good' if i % 2 else 'bad'} film {i},{i % 3},{i % 2}" for i in range(60)]
    file.write_text("review,stars,positive\n" + "\n".join(rows))
    line = ("classify", file, "--text", "review", "--json", "--label")
    for label, classes in (("stars", 3), ("positive", 2)):
        row = json.loads(models(*line, label).splitlines()[0])
        assert row["settings"]["classes"] == classes


def test_training_settings_are_listed_with_descriptions():
    text = models("--training")
    for field in fields(TrainingSettings):
        assert f"train.{field.name}=" in text
    assert "train.lr=0.001             Peak learning rate;" in text
    assert json.loads(models("--training", "--json"))["warmup"] == 0.05


def test_wrong_arguments_are_usage_or_input_errors(book, tmp_path):
    assert "leave out TASK" in models("generate", "--training", code=2)
    assert "does not exist" in models("generate", tmp_path / "nothing.txt", code=2)
    for arguments, message in (
        (("genrate",), "unknown task 'genrate'; did you mean 'generate'"),
        (("generate", book, "--minutes", "0"), "minutes must be above 0"),
    ):
        result = CliRunner().invoke(glass, ["models", *map(str, arguments)])
        assert (result.exit_code, message in str(result.exception)) == (1, True)
