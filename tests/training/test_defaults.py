"""The settings that `glass models` lists are those that training uses."""

from dataclasses import fields

import pytest

from examples import write_examples
from glassformer.core.config import read_toml
from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.registry import MODELS, describe_model
from glassformer.tasks import TASKS
from glassformer.training import train as training
from glassformer.training.defaults import find_defaults
from glassformer.training.settings import TrainingSettings


@pytest.fixture
def files(tmp_path):
    return write_examples(tmp_path)


@pytest.mark.parametrize(
    ("task", "model", "minutes"),
    [
        ("generate", "speedrun", 20.0),
        ("generate", "gpt2", None),
        ("classify", "text_cnn", None),
        ("classify", "bert_classifier", None),
        ("translate", "speedrun_translator", 70.0),
        ("fill-mask", "bert", None),
    ],
)
def test_defaults_are_the_settings_of_a_run(tmp_path, files, monkeypatch, task, model, minutes):
    defaults = find_defaults(task, files[task], minutes=minutes, reporter=NullReporter())
    assert [d.model for d in defaults] == list(TASKS[task].models)
    row = next(d for d in defaults if d.model == model).row()
    assert row["default"] == (model == TASKS[task].models[0])
    monkeypatch.setattr(training, "train_and_report", lambda trainer, _: trainer)
    options = {} if task == "fill-mask" else {"prior": False}
    trainer = training.train(
        task, files[task], model=model, minutes=minutes, run=tmp_path / "run", device="cpu",
        baseline=False, reporter=NullReporter(), **options,
    )  # fmt: skip
    tables = read_toml(tmp_path / "run" / "config.toml")
    assert {"name": model, **row["settings"]} == tables["model"]
    assert row["train"].items() <= tables["train"].items()
    assert row["tokens"] == trainer.task.dataset.size
    assert row["parameters"] == trainer.network.size > 0
    assert row["memory"] == pytest.approx(16 * row["parameters"] / 1e9)


def test_a_model_fitted_in_one_pass_has_no_training_settings(book):
    rows = {d.model: d.row() for d in find_defaults("generate", book, reporter=NullReporter())}
    assert (rows["markov"]["parameters"], rows["markov"]["train"]) == (0, {})
    assert rows["gpt2"]["train"] == {"batch_size": 16, "lr": 1.5e-3}


def test_sizes_follow_the_budget(book):
    def default_dim(minutes):
        return find_defaults("generate", book, minutes=minutes, reporter=NullReporter())[
            0
        ].config.dim

    assert default_dim(0.5) < default_dim(60.0)
    with pytest.raises(GlassError, match="minutes must be above 0"):
        default_dim(0.0)


@pytest.mark.parametrize("task", [name for name in TASKS if TASKS[name].reads_text])
def test_models_of_a_task_share_a_tokenizer_unless_listed(task, files, tmp_path):
    spec, tokenizers = TASKS[task], {}
    for model in spec.models:
        (tmp_path / model).mkdir()
        request = DataRequest(files=(files[task],), model=model)
        tokenizers[model] = spec.prepare(request, tmp_path / model, NullReporter()).tokenizer
    common = tokenizers[spec.models[0]].to_json()
    differing = [model for model in spec.models if tokenizers[model].to_json() != common]
    assert differing == list(spec.data_variants)


def test_every_setting_and_every_model_has_a_description_in_one_sentence():
    descriptions = [field.metadata["description"] for field in fields(TrainingSettings)]
    descriptions += map(describe_model, MODELS)
    assert len(descriptions) > 50
    for text in descriptions:
        assert text[0].isupper()
        assert text.endswith(".")
        assert ". " not in text.replace("P. ", "").replace("al., ", "")
