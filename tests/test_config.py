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
    rate: float = 1e-3
    steps: int | None = None
    fast: bool = False
    kind: Literal["a", "b"] = "a"


def test_nested_values_reach_their_place():
    assert config.from_dict(Run, {"name": "x", "model": {"dim": 96}}).model.dim == 96
    assert config.override(Run("x"), "model.dim=96").model.dim == 96


def test_settings_are_checked_when_all_are_in_place():
    changed = config.override(Run("x"), "model.dim=32", "model.heads=2", "steps=3")
    assert (changed.model.dim, changed.model.heads, changed.steps) == (32, 2, 3)


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("rate=3", "rate", 3.0),
        ("rate=1e-4", "rate", 1e-4),
        ("steps=10", "steps", 10),
        ("fast=true", "fast", True),
        ("name=hello", "name", "hello"),
        ("name=3", "name", "3"),
        ("name = 'two words'", "name", "two words"),
        ("kind=b", "kind", "b"),
        ("model.activation=relu", "model", gpt2.Config(activation="relu")),
    ],
)
def test_a_setting_is_read_as_its_type(setting, name, value):
    read = getattr(config.override(Run("x"), setting), name)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.dim=abc", "model.dim must be a whole number, not 'abc'"),
        ("model.dim=1.5", "model.dim must be a whole number, not 1.5"),
        ("model.dim=true", "model.dim must be a whole number, not True"),
        ("model.dim=50", "dim must be divisible by heads, got 50 and 12"),
        ("model.depth=0", "depth must be at least 1 and at most 1,000, not 0"),
        ("model.dropout=1.0", "dropout must be at least 0.0 and at most 0.99, not 1.0"),
        ("model.dept=3", "no setting 'model.dept'; did you mean 'depth'"),
        ("model.vocab=-5", "vocab must be at least 1"),
        ("model.eps=nan", "eps must be finite"),
        ("model.eps=-1", "eps must be above 0"),
        ("model.hidden=0", "hidden must be at least 1"),
        ("model.dim=768\nheads=3", "model.dim must be a whole number"),
        ("rate=fast", "rate must be a number, not 'fast'"),
        ("fast=1", "fast must be true or false, not 1"),
        ("kind=c", "kind must be one of a, b, not 'c'"),
        ("model=3", "model must be a table of settings, not 3"),
        ("rate.x=3", "'rate' has no settings inside it"),
        ("rate", "write name=value"),
    ],
)
def test_a_wrong_setting_is_named(setting, message):
    with pytest.raises(GlassError, match=message):
        config.override(Run("x"), setting)


def test_a_misspelt_key_and_a_missing_one_are_named():
    with pytest.raises(GlassError, match="did you mean 'depth'"):
        config.from_dict(Run, {"name": "x", "model": {"dept": 3}})
    with pytest.raises(GlassError, match="'name' is missing"):
        config.from_dict(Run, {})
    with pytest.raises(GlassError, match="unknown model 'gtp2'; did you mean 'gpt2'"):
        build_model("gtp2", {})


@pytest.mark.parametrize("name", MODELS)
def test_a_config_comes_back_from_toml(name, tmp_path):
    kind = MODELS[name].Config
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml({"model": config.to_dict(kind())}))
    assert config.from_dict(kind, config.read_toml(file)["model"]) == kind()


def test_a_config_inside_a_config_comes_back(tmp_path):
    file, stretched = tmp_path / "config.toml", llama.Config(rope_scaling=RopeScaling(factor=32.0))
    file.write_text(config.to_toml({"model": config.to_dict(stretched)}))
    assert config.from_dict(llama.Config, config.read_toml(file)["model"]) == stretched


def test_a_file_that_is_not_toml_is_named(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("dim = = 3")
    with pytest.raises(GlassError, match=r"config.toml is not TOML"):
        config.read_toml(file)


def test_widths_that_waves_cannot_have_are_refused():
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


def test_a_llama_needs_heads_that_share_keys_equally():
    with pytest.raises(GlassError, match="heads must be divisible by kv_heads, got 8 and 3"):
        llama.Config(kv_heads=3)


SETTINGS = [
    TrainingSettings,
    DataOptions,
    Sampling,
    RopeScaling,
    *(model.Config for model in MODELS.values()),
]


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_number_that_can_be_set_has_bounds(kind):
    """And its default lies between them."""
    numbers = [
        name
        for name, hint in get_type_hints(kind).items()
        if {int, float} & {hint, *get_args(hint)}
    ]
    assert numbers
    for name in numbers:
        low, high = BOUNDS[name]
        value = getattr(kind(), name)
        assert value is None or low <= value <= high
        for wrong in (low - 1, high + 1 if high < 1e15 else high * 2, math.nan, math.inf, "x"):
            with pytest.raises(GlassError, match=name):
                check_bounds({name: wrong})
        check_bounds({name: low})
        check_bounds({name: high})


def test_whole_numbers_and_others_are_told_apart():
    with pytest.raises(GlassError, match=r"beam must be a whole number, not 2.0"):
        check_bounds({"beam": 2.0})
    with pytest.raises(GlassError, match="beam must be a whole number, not True"):
        check_bounds({"beam": True})
    check_bounds({"penalty": 1, "beam": None, "something else": "anything"})
