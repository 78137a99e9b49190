"""Settings from files and the command line."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args, get_type_hints

import pytest

from glassformer import MODELS, GlassError
from glassformer.core import config
from glassformer.core.bounds import BOUNDS, check_bounds
from glassformer.data.request import DataOptions
from glassformer.generate.sampling import Sampling
from glassformer.models import gpt2, llama
from glassformer.nn.positions import RopeScaling
from glassformer.registry import build_model
from glassformer.training.settings import TrainingSettings


@dataclass(frozen=True)
class Run:
    name: str
    model: gpt2.Config = field(default_factory=gpt2.Config)
    lr: float = 1e-3
    steps: int | None = None
    fast: bool = False
    kind: Literal["a", "b"] = "a"


def test_nested_settings_are_applied():
    assert config.from_dict(Run, {"name": "x", "model": {"dim": 96}}).model.dim == 96
    assert config.override(Run("x"), "model.dim=96").model.dim == 96


def test_settings_are_validated_after_all_are_applied():
    changed = config.override(Run("x"), "model.dim=32", "model.heads=2", "steps=3")
    assert (changed.model.dim, changed.model.heads, changed.steps) == (32, 2, 3)


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("lr=3", "lr", 3.0),
        ("lr=1e-4", "lr", 1e-4),
        ("steps=10", "steps", 10),
        ("fast=true", "fast", True),
        ("name=hello", "name", "hello"),
        ("name=3", "name", "3"),
        ("name = 'two words'", "name", "two words"),
        ("kind=b", "kind", "b"),
        ("model.activation=relu", "model", gpt2.Config(activation="relu")),
    ],
)
def test_a_setting_is_parsed_as_its_declared_type(setting, name, value):
    parsed = getattr(config.override(Run("x"), setting), name)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.dim=abc", "model.dim must be an integer, got 'abc'"),
        ("model.dim=1.5", "model.dim must be an integer, got 1.5"),
        ("model.dim=true", "model.dim must be an integer, got True"),
        ("model.dim=50", "dim must be divisible by heads, got 50 and 12"),
        ("model.depth=0", "depth must be at least 1 and at most 1,000, got 0"),
        ("model.dropout=1.0", "dropout must be at least 0.0 and at most 0.99, got 1.0"),
        ("model.dept=3", "unknown setting 'model.dept'; did you mean 'model.depth'"),
        ("model.vocab=-5", "vocab must be at least 1"),
        ("model.eps=nan", "eps must be finite"),
        ("model.eps=-1", "eps must be above 0"),
        ("model.hidden=0", "hidden must be at least 1"),
        ("model.dim=768\nheads=3", "model.dim must be an integer"),
        ("lr=fast", "lr must be a number, got 'fast'"),
        ("fast=1", "fast must be true or false, got 1"),
        ("kind=c", "kind must be one of a, b, got 'c'"),
        ("model=3", "model must be a table of settings, got 3"),
        ("lr.x=3", "'lr' is not a table of settings"),
        ("lr", "expected name=value, got 'lr'"),
    ],
)
def test_an_invalid_setting_is_reported_by_name(setting, message):
    with pytest.raises(GlassError, match=message):
        config.override(Run("x"), setting)


def test_misspelled_and_missing_keys_are_reported_by_name():
    with pytest.raises(GlassError, match=r"'model\.dept'; did you mean 'model\.depth'"):
        config.from_dict(Run, {"name": "x", "model": {"dept": 3}})
    with pytest.raises(GlassError, match="'name' is missing"):
        config.from_dict(Run, {})
    with pytest.raises(GlassError, match="unknown model 'gtp2'; did you mean 'gpt2'"):
        build_model("gtp2", {})


@pytest.mark.parametrize("name", MODELS)
def test_a_config_survives_a_round_trip_through_toml(name, tmp_path):
    config_class = MODELS[name].Config
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml({"model": config.to_dict(config_class())}))
    assert config.from_dict(config_class, config.read_toml(file)["model"]) == config_class()


def test_a_nested_config_survives_a_round_trip_through_toml(tmp_path):
    file, scaled = tmp_path / "config.toml", llama.Config(rope_scaling=RopeScaling(factor=32.0))
    file.write_text(config.to_toml({"model": config.to_dict(scaled)}))
    assert config.from_dict(llama.Config, config.read_toml(file)["model"]) == scaled


def test_a_file_that_is_not_toml_is_reported_by_name(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("dim = = 3")
    with pytest.raises(GlassError, match=r"config.toml is not valid TOML"):
        config.read_toml(file)


def test_invalid_position_settings_are_rejected():
    for name, settings in (
        ("llama", {"dim": 20, "heads": 4}),
        ("translator", {"dim": 15, "heads": 3}),
    ):
        with pytest.raises(GlassError, match="even"):
            build_model(name, settings)
    with pytest.raises(GlassError, match="factor must be above 0"):
        RopeScaling(factor=0)
    with pytest.raises(GlassError, match="high_freq_factor must be greater"):
        RopeScaling(low_freq_factor=4.0, high_freq_factor=4.0)
    with pytest.raises(GlassError, match="rope_theta must be above 0"):
        llama.Config(rope_theta=0.0)


def test_heads_of_a_llama_must_be_divisible_by_kv_heads():
    with pytest.raises(GlassError, match="heads must be divisible by kv_heads, got 8 and 3"):
        llama.Config(kv_heads=3)


SETTINGS_CLASSES = [
    TrainingSettings,
    DataOptions,
    Sampling,
    RopeScaling,
    *(model.Config for model in MODELS.values()),
]


@pytest.mark.parametrize(
    "cls", SETTINGS_CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)
def test_every_numeric_setting_has_bounds_that_include_its_default(cls):
    numeric = [
        name for name, hint in get_type_hints(cls).items() if {int, float} & {hint, *get_args(hint)}
    ]
    assert numeric
    for name in numeric:
        low, high = BOUNDS[name]
        default = getattr(cls(), name)
        assert default is None or low <= default <= high
        for invalid in (low - 1, high + 1 if high < 1e15 else high * 2, math.nan, math.inf, "x"):
            with pytest.raises(GlassError, match=name):
                check_bounds({name: invalid})
        check_bounds({name: low})
        check_bounds({name: high})


def test_integer_settings_reject_floats_and_booleans():
    with pytest.raises(GlassError, match=r"beam must be an integer, got 2.0"):
        check_bounds({"beam": 2.0})
    with pytest.raises(GlassError, match="beam must be an integer, got True"):
        check_bounds({"beam": True})
    check_bounds({"length_penalty": 1, "beam": None, "something else": "anything"})
