"""The cost of a training step, and the model that is chosen for a long context."""

import json

import pytest
import torch
from click.testing import CliRunner

from glassformer.cli import glass
from glassformer.cli.info import format_cost
from glassformer.core.reporter import NullReporter
from glassformer.tasks.check import RecordingReporter
from glassformer.training.cost import GRIDS, Cost, PartCost, Variant, grid_bytes, measure_cost
from glassformer.training.resume import load_trainer
from glassformer.training.run import Run
from glassformer.training.train import train

SMALL = ["model.dim=32", "model.depth=3", "model.heads=2", "model.context=16",
         "train.batch_size=8"]  # fmt: skip
OPTIONS = {"steps": 1, "reporter": NullReporter(), "precision": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cost")
    (folder / "a.txt").write_text("the cat sat on the mat. " * 200)
    train("generate", folder / "a.txt", model="gpt2", run=folder / "run", prior=False,
          settings=SMALL, **OPTIONS)  # fmt: skip
    return folder / "run"


def measure(run):
    trainer = load_trainer(Run(run), NullReporter())
    return trainer.network, measure_cost(trainer.network, trainer.task, trainer.settings)


def test_parts_have_all_parameters_and_activations(run):
    network, cost = measure(run)
    assert cost.batch == (8, 16)
    parameters = {part.name: part.parameters for part in cost.parts}
    assert sum(parameters.values()) == network.size
    assert parameters["attention"] == 3 * 4 * (32 * 32 + 32)
    assert parameters["feedforward"] == 3 * (2 * 32 * 128 + 128 + 32)
    assert parameters["position"] == 16 * 32
    activations = {part.name: part.activations for part in cost.parts}
    assert activations["feedforward"] > activations["attention_norm"] > 0
    hidden = 8 * 16 * 128 * 4  # the feed-forward layer keeps its hidden values before and after
    assert activations["feedforward"] >= 3 * 2 * hidden
    moments = 2 * 4 * network.size
    assert moments <= cost.optimizer <= moments + 100_000


def test_the_operations_are_those_of_the_matrix_products(run):
    network, cost = measure(run)
    tokens, vocab = 8 * 16, network.config.vocab
    weights = 3 * (4 * 32 * 32 + 2 * 32 * 128) + vocab * 32
    attention = 3 * 4 * 8 * 16**2 * 32  # two products forward, in three layers
    expected = 6 * tokens * weights + attention
    assert 1.0 <= cost.flops / expected <= 1.1  # the backward pass of attention computes more


def test_micro_batches_and_checkpointing_keep_less(run):
    _, cost = measure(run)
    variants = {variant.name: variant for variant in cost.variants}
    assert variants.keys() >= {"float32", "4 micro-batches", "checkpointing"}
    whole = variants["float32"].activations
    assert whole == sum(part.activations for part in cost.parts)
    assert variants["4 micro-batches"].activations == whole // 4
    block = whole / 3
    assert block < variants["checkpointing"].activations < whole
    assert all(variant.seconds > 0 for variant in cost.variants)


def test_the_grids_of_the_tutorial_take_256_megabytes_and_46_layers_fit():
    """Sixteen grids of 1000 x 1000 scores; four such sets are one layer, not one set of four."""
    assert grid_bytes(16, 1000) == 256_000_000
    assert grid_bytes(16, 1000) // GRIDS == 64_000_000
    assert 12_000_000_000 // grid_bytes(16, 1000) == 46


def test_a_cost_is_printed_in_megabytes_milliseconds_and_gigaflops():
    parts = [PartCost("token", 1_000, 2_500_000), PartCost("attention", 250_000, 500_000)]
    variants = [Variant("float32", 3_000_000, 0.25)]
    text = format_cost(Cost((8, 16), parts, 3_000_000, 12_340_000_000, 64_000_000, variants))
    rows = [line.split() for line in text.splitlines()]
    assert rows[1] == ["token", "1,000", "0.0", "MB", "2.5", "MB"]
    assert rows[2] == ["attention", "250,000", "1.0", "MB", "0.5", "MB"]  # 4 bytes per parameter
    assert rows[3] == ["total", "251,000", "1.0", "MB", "3.0", "MB"]
    assert rows[-1] == ["float32", "3.0", "MB", "250", "ms"]
    assert "gradients 1.0 MB, optimizer 3.0 MB" in text
    assert "batch of 8 x 16 tokens: 12.3 GFLOP per step" in text
    assert "if computed as a whole: 64.0 MB (4 grids" in text


def test_info_of_a_run_prints_and_exports_its_cost(run):
    result = CliRunner().invoke(glass, ["info", str(run)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "feedforward" in result.output
    assert "checkpointing" in result.output
    assert "GFLOP per step" in result.output
    result = CliRunner().invoke(glass, ["info", str(run), "--json"])
    cost = json.loads(result.output)
    assert cost["batch"] == [8, 16]
    assert {part["name"] for part in cost["parts"]} >= {"token", "attention", "feedforward"}
    result = CliRunner().invoke(glass, ["info", str(run / "best")])
    assert result.exit_code != 0
    assert "has no training data" in str(result.exception)


@pytest.mark.parametrize("context", [2048, 3000])
def test_a_long_context_uses_sparse_attention_and_says_so(tmp_path, context):
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 500)
    reporter = RecordingReporter()
    settings = [f"model.context={context}", "model.dim=16", "model.depth=1", "model.heads=2"]
    result = train("generate", tmp_path / "a.txt", run=tmp_path / "run", prior=False,
                   settings=settings, **{**OPTIONS, "reporter": reporter})  # fmt: skip
    assert result["model"] == "sparse"
    assert any("using --model sparse, because" in line for line in reporter.lines)
    trainer = load_trainer(Run(tmp_path / "run"), NullReporter())
    assert trainer.settings.batch == 1
    assert trainer.network.config.chunk_size == 32
    with torch.inference_mode():
        assert trainer.network(torch.zeros(1, 8, dtype=torch.long)).isfinite().all()


def test_a_named_model_keeps_its_attention(tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 500)
    settings = ["model.context=2048", "model.dim=16", "model.depth=1", "model.heads=2"]
    options = {**OPTIONS, "settings": [*settings, "train.batch_size=1"], "prior": False}
    assert train("generate", tmp_path / "a.txt", run=tmp_path / "dense", model="gpt2",
                 **options)["model"] == "gpt2"  # fmt: skip
