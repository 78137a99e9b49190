"""The steps under "How to add" in docs/architecture.md are sufficient: each is tested here with a
toy, without changing the package. The toy command is in cli/test_commands.py, the toy tasks are in
tasks/test_toy_tasks.py."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import glassformer
from cases import CASES
from glassformer import GlassError, Model, load, weights
from glassformer.cli import glass
from glassformer.core.figures import subplots
from glassformer.export import EXPORTERS, Exporter
from glassformer.inspection.plots import PLOTS, Needs, Plot
from glassformer.models.network import PROTOCOLS, ModelConfig, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.registry import MODELS
from glassformer.tasks import TASKS
from glassformer.tasks.task import METRICS, Metric
from glassformer.text import TOKENIZERS
from glassformer.training.optimizers import OPTIMIZERS, OptimizerKind, group_parameters
from glassformer.training.resume import resume
from glassformer.training.run import Run
from glassformer.training.train import train

ROOT = Path(glassformer.__file__).parents[2]
SMALL = ["model.dim=8", "model.depth=1", "model.heads=2", "model.context=8"]
QUICK = {"steps": 2, "device": "cpu", "threads": 1, "precision": "float32"}


@pytest.fixture
def book(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("the cat sat on the mat. " * 60)
    return file


# --- a model --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToyConfig(ModelConfig):
    vocab: int = 100
    dim: int = 8


class Toy(Network):
    """Predicts the next token from the last one only."""

    Config: TypeAlias = ToyConfig
    traits = frozenset(
        {Trait.CAUSAL_LM, Trait.CAUSAL, Trait.CACHED, Trait.ENCODER, Trait.PADDING_INVARIANT}
    )
    embeddings = ("token",)

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocab, config.dim)
        self.head = nn.Linear(config.dim, config.vocab)

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        logits: Tensor = self.head(self.features(ids, keep))
        return logits

    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.token(ids).tanh()

    def cache(self, capacity: int) -> Cache:
        return Cache(0, capacity)  # no layer has a cache


def test_a_new_model_is_a_class_a_line_in_models_and_a_name_in_its_tasks(
    monkeypatch, book, tmp_path
):
    generate = TASKS["generate"]
    monkeypatch.setitem(MODELS, "toy", Toy)
    monkeypatch.setitem(TASKS, "generate", replace(generate, models=(*generate.models, "toy")))
    run = tmp_path / "run"
    result = train("generate", book, run=run, model="toy", settings=["model.dim=4"], **QUICK)
    assert result["model"] == "toy"
    assert result["steps"] == 2
    model = load(run)
    assert isinstance(model.network, Toy)
    assert model.config.dim == 4
    assert model.config.vocab == model.tokenizer.vocab
    assert all(isinstance(model.network, PROTOCOLS[t]) for t in Toy.traits if t in PROTOCOLS)
    assert isinstance(model.generate("the", max_new_tokens=5, seed=0), str)
    assert model.embed(["the cat"]).shape == (1, 4)
    model.save(tmp_path / "saved")
    state = load(tmp_path / "saved").network.state_dict()
    assert state
    assert all(torch.equal(value, state[n]) for n, value in model.network.state_dict().items())


# --- an optimizer ---------------------------------------------------------------------------------


def momentum(network, settings, group):
    groups = [
        {"params": parameters, "scale": scale, "weight_decay": decay}
        for (scale, decay), parameters in group_parameters(network, settings, group).items()
    ]
    return torch.optim.SGD(groups, lr=settings.lr, momentum=0.9)


def test_a_new_optimizer_is_a_function_and_one_entry(monkeypatch, book, tmp_path):
    monkeypatch.setitem(
        OPTIMIZERS, "momentum", OptimizerKind(momentum, moments=("momentum_buffer",))
    )
    options = {**QUICK, "settings": [*SMALL, "train.optimizer=momentum"], "baseline": False}
    train("generate", book, run=tmp_path / "a", **options)
    assert 'optimizer = "momentum"' in (tmp_path / "a" / "config.toml").read_text()
    state = weights.read(tmp_path / "a" / "last" / "training.safetensors")
    assert state["optimizer.0.momentum_buffer"].abs().sum() > 0
    resume(tmp_path / "a", steps=4)  # restores this state
    train("generate", book, run=tmp_path / "b", **options | {"settings": SMALL})
    resume(tmp_path / "b", steps=4)
    toy, adamw = (load(tmp_path / name / "last").network for name in "ab")
    assert not torch.equal(toy.token.weight, adamw.token.weight)
    assert Run(tmp_path / "a").metrics()[-1]["step"] == 4


@pytest.mark.parametrize(
    ("name", "hint"), [("adamv", "did you mean 'adamw'"), ("lion", "available: .*muon")]
)
def test_unknown_optimizer_is_refused_before_anything_is_written(name, hint, book, tmp_path):
    with pytest.raises(GlassError, match=f"unknown optimizer '{name}'; {hint}"):
        train("generate", book, run=tmp_path / "run", settings=[f"train.optimizer={name}"])
    assert not (tmp_path / "run").exists()


# --- a metric -------------------------------------------------------------------------------------


def test_a_new_metric_is_an_entry_and_a_number_of_the_objective(monkeypatch, book, tmp_path):
    generate = TASKS["generate"]

    class WithBits(generate.objective):
        def metrics(self, scores):
            metrics = super().metrics(scores)
            return {**metrics, "bits": metrics["loss"] / 0.6931471805599453}

    monkeypatch.setitem(METRICS, "bits", Metric("bits"))
    monkeypatch.setitem(TASKS, "generate", replace(generate, objective=WithBits))
    settings = [*SMALL, "train.best_metric=bits"]
    result = train("generate", book, run=tmp_path / "run", settings=settings, **QUICK)
    assert result["bits"] == pytest.approx(result["loss"] / 0.6931471805599453)
    assert (tmp_path / "run" / "plots" / "bits.png").exists()
    state = json.loads((tmp_path / "run" / "last" / "training.json").read_text())
    values = [m["bits"] for m in Run(tmp_path / "run").metrics() if m["kind"] == "validation"]
    assert state["best"] == min(values)


# --- a plot ---------------------------------------------------------------------------------------


def sizes(reading, network, layer=0):
    """Plot the norm of each token's features after a block."""
    chart, axes = subplots(figsize=(3, 2))
    values = reading.trace[f"{network.stacks[0]}.{layer}"][0].norm(dim=-1)
    axes.plot(values.tolist())
    return chart


def test_a_new_plot_is_a_function_and_one_entry(monkeypatch, tmp_path):
    monkeypatch.setitem(
        sys.modules, "glassformer.inspection.toys", SimpleNamespace(sizes=sizes, dot=dot)
    )
    monkeypatch.setitem(PLOTS, "sizes", Plot("toys", "sizes", "norms of the features", Needs.TEXT))
    monkeypatch.setitem(PLOTS, "dot", Plot("toys", "dot", "one dot"))
    model = Model(CASES["gpt2"].network, letter_tokenizer())
    plotted = model.draw("sizes", "abc", layer=1).get_axes()[0].get_lines()[0].get_ydata()
    norms = model.trace("abc", "blocks.1")["blocks.1"][0].norm(dim=-1)
    torch.testing.assert_close(torch.tensor(plotted).float(), norms)
    model.save(tmp_path / "model")
    file, runner = tmp_path / "a.png", CliRunner()
    command = ["draw", "sizes", str(tmp_path / "model"), "abc", "--layer", "1", "--out", str(file)]
    assert runner.invoke(glass, command).output == f"{file}\n"
    assert file.read_bytes().startswith(b"\x89PNG")
    assert runner.invoke(glass, ["draw", "dot", "--out", str(tmp_path / "b.png")]).exit_code == 0
    text = runner.invoke(glass, ["draw", "--help"]).output
    assert re.search(r"reading TEXT:(\n  .+)+\n  sizes +norms of the features\n", text)
    assert re.search(r"without a model:(\n  .+)+\n  dot +one dot\n", text)
    wrong = runner.invoke(glass, ["draw", "dot", "--head", "1"])
    assert "dot takes no --head; plots that do: flow, attention, lines" in wrong.output


def dot():
    chart, axes = subplots(figsize=(1, 1))
    axes.plot([0], [0], "o")
    return chart


def letter_tokenizer():
    return TOKENIZERS["characters"].train(["abcdefgh"])


def test_every_plot_is_callable_and_listed_in_help():
    text = CliRunner().invoke(glass, ["draw", "--help"]).output
    assert len(PLOTS) == 36
    for name, plot in PLOTS.items():
        assert callable(plot.function)
        assert re.search(rf"^  {name} +{re.escape(plot.help)}$", text, re.MULTILINE)


# --- an exporter ----------------------------------------------------------------------------------


def save_shapes(path, network, tokenizer, *, task, overwrite):
    """Write only the names and shapes of the tensors."""
    path.mkdir(exist_ok=overwrite)
    shapes = {name: [*value.shape] for name, value in network.state_dict().items()}
    (path / "shapes.json").write_text(json.dumps(shapes))


def test_a_new_exporter_is_a_module_and_one_entry(monkeypatch, tmp_path):
    module = SimpleNamespace(save=save_shapes, exportable_models=lambda: ["gpt2"])
    monkeypatch.setitem(sys.modules, "glassformer.formats.toy", module)
    monkeypatch.setitem(EXPORTERS, "toy", Exporter("formats.toy", "names and shapes"))
    model = Model(CASES["gpt2"].network)
    model.save(tmp_path / "toy", format="toy")
    shapes = json.loads((tmp_path / "toy" / "shapes.json").read_text())
    assert shapes["token.weight"] == [*model.network.token.weight.shape]
    assert EXPORTERS["toy"].models == ("gpt2",)
    with pytest.raises(
        GlassError,
        match="unknown format 'gguf': expected one of glassformer, huggingface, onnx, toy",
    ):
        model.save(tmp_path / "no", format="gguf")


@pytest.mark.parametrize("name", EXPORTERS)
def test_exporter_saves_exactly_the_models_it_lists(name, tmp_path):
    models: Sequence[str] = EXPORTERS[name].models
    assert set(models) <= set(MODELS)
    for case in ("text_cnn", "gpt2", "markov"):
        model = Model(CASES[case].network)
        if case in models:
            model.save(tmp_path / case, format=name)
            if name != "onnx":  # which `load` does not open
                assert load(tmp_path / case).name == case
        else:
            with pytest.raises(GlassError, match=f"cannot export {case}"):
                model.save(tmp_path / case, format=name)
    text = CliRunner().invoke(glass, ["convert", "--help"]).output
    assert f"[{'|'.join(EXPORTERS)}]" in text


# --- the docs -------------------------------------------------------------------------------------


def test_docs_name_every_registry_and_toy_test():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## How to add")[2]
    for name in ("MODELS", "TASKS", "COMMANDS", "PLOTS", "OPTIMIZERS", "METRICS", "EXPORTERS"):
        assert f"`{name}`" in section
    tests = {name for name in globals() if name.startswith("test_a_new")}
    mentioned = set(re.findall(r"`(test_a_new\w+)`", section))
    assert mentioned == tests | {"test_a_new_command_is_a_function_and_one_entry"}
