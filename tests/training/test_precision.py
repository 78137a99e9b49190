"""Precision: automatic choice, unsupported precisions, and float16 with its loss scale.

These tests also run under `ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`, where some kernels
for half precision are missing.
"""

import pytest
import torch

from examples import write_examples
from glassformer import GlassError, load
from glassformer.core.reporter import NullReporter
from glassformer.models.network import Trait
from glassformer.nn.recurrence import Recurrence
from glassformer.registry import MODELS
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.training import autotune
from glassformer.training.recovery import MAX_BAD_STEPS
from glassformer.training.resume import resume
from glassformer.training.run import Run
from glassformer.training.train import train
from training.test_training import small_trainer, take_step, weights_of

SMALL = {"dim": 16, "depth": 1, "heads": 2, "context": 16, "hidden": 16}
PAIRS = [(name, task.name) for task in TASKS.values() for name in task.models]


@pytest.fixture
def files(tmp_path):
    return write_examples(tmp_path)


def settings_for(model):
    fields = MODELS[model].Config.__dataclass_fields__
    return [f"model.{name}={value}" for name, value in SMALL.items() if name in fields]


@pytest.mark.parametrize(("model", "task"), PAIRS, ids=str)
def test_every_model_trains_in_the_precision_that_is_chosen(
    model, task, files, tmp_path, monkeypatch
):
    monkeypatch.setattr(autotune, "bfloat16_ratio", lambda _network: 0.5)  # makes it try bfloat16
    has_tokens = "batch_tokens" in TASKS[task].train_settings
    batch = "train.batch_tokens=1024" if has_tokens else "train.batch_size=1"
    result = train(
        task, files[task], run=tmp_path / "run", model=model, steps=3, device="cpu",
        baseline=False, settings=[*settings_for(model), batch], reporter=NullReporter(),
    )  # fmt: skip
    assert result["steps"] == (0 if Trait.FITTED in MODELS[model].traits else 3)
    assert load(tmp_path / "run").name == model


def disable_half_precision(monkeypatch):
    """Simulate a processor that has no half-precision kernel for recurrent layers."""
    forward = Recurrence.forward

    def fail_in_half_precision(self, x, *args, **options):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor for the LSTM forward ...")
        return forward(self, x, *args, **options)

    monkeypatch.setattr(Recurrence, "forward", fail_in_half_precision)
    monkeypatch.setattr(autotune, "bfloat16_ratio", lambda _network: 0.5)


def test_unsupported_precision_is_not_chosen(files, tmp_path, monkeypatch):
    disable_half_precision(monkeypatch)
    reporter = RecordingReporter()
    train(
        "generate", files["generate"], run=tmp_path / "run", model="recurrent", steps=3,
        device="cpu", settings=settings_for("recurrent"), reporter=reporter,
    )  # fmt: skip
    assert any(line.startswith("precision float32: a step takes") for line in reporter.lines)
    assert 'precision = "float32"' in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_unsupported_precision_is_rejected(files, tmp_path, monkeypatch, precision):
    disable_half_precision(monkeypatch)
    match = f"recurrent cannot be trained in {precision} on this machine.*precision=float32"
    with pytest.raises(GlassError, match=match) as error:
        train(
            "generate", files["generate"], run=tmp_path / "run", model="recurrent", steps=3,
            device="cpu", settings=settings_for("recurrent"), precision=precision,
            reporter=NullReporter(),
        )  # fmt: skip
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_memory_error_in_half_precision_is_not_reported_as_an_unsupported_precision(
    files, tmp_path, monkeypatch
):
    def run_out_of_memory(self, x, *args, **options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")

    monkeypatch.setattr(Recurrence, "forward", run_out_of_memory)
    with pytest.raises(GlassError, match="out of memory with"):
        train(
            "generate", files["generate"], run=tmp_path / "run", model="recurrent", steps=3,
            device="cpu", settings=settings_for("recurrent"), precision="bfloat16",
            reporter=NullReporter(),
        )  # fmt: skip


def test_resuming_continues_in_float32_if_the_precision_is_unsupported(
    files, tmp_path, monkeypatch
):
    options = {"model": "recurrent", "device": "cpu", "settings": settings_for("recurrent")}
    train(
        "generate", files["generate"], run=tmp_path / "run", steps=2, precision="float32",
        reporter=NullReporter(), **options,
    )  # fmt: skip
    file = tmp_path / "run" / "config.toml"  # as if it had been trained on another machine
    file.write_text(file.read_text().replace('"float32"', '"bfloat16"'))
    Run(tmp_path / "run").write_checksums()
    disable_half_precision(monkeypatch)
    reporter = RecordingReporter()
    assert resume(tmp_path / "run", reporter, steps=4)["steps"] == 4
    assert any("continuing in float32" in line for line in reporter.lines)


# --- float16 --------------------------------------------------------------------------------------


def test_overflowing_gradient_lowers_the_loss_scale_and_the_step_is_taken(tmp_path, book):
    trainer = small_trainer(tmp_path, book, precision="float16", ema_decay=0.9)
    average = trainer.step.ema.network
    before, mean = weights_of(trainer.network).clone(), weights_of(average).clone()
    trainer.step.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # far above what fits
    take_step(trainer)
    assert trainer.step.scaler.get_scale() < 2.0**40
    assert not torch.equal(weights_of(trainer.network), before)
    assert not torch.equal(weights_of(average), mean)
    assert (trainer.state.step, trainer.state.consecutive_skips) == (1, 0)


def test_gradient_that_is_infinite_at_any_loss_scale_skips_the_step(tmp_path, book):
    trainer = small_trainer(tmp_path, book, precision="float16", ema_decay=0.9)
    weight = trainer.network.blocks[0].attention.query.weight
    weight.register_hook(lambda gradient: gradient * float("inf"))
    average = trainer.step.ema.network
    before, mean = weights_of(trainer.network).clone(), weights_of(average).clone()
    results = [take_step(trainer) for _ in range(MAX_BAD_STEPS)]
    assert torch.equal(weights_of(trainer.network), before)
    assert torch.equal(weights_of(average), mean)
    assert trainer.state.consecutive_skips == MAX_BAD_STEPS
    assert all("query.weight" in result.non_finite for result in results)


def test_overflowing_norm_of_finite_gradients_skips_the_step(tmp_path, book):
    trainer = small_trainer(tmp_path, book, precision="float16")
    for parameter in trainer.network.parameters():
        parameter.register_hook(lambda gradient: gradient * 0 + 1e38)
    take_step(trainer)
    assert (trainer.state.step, trainer.state.consecutive_skips) == (1, 1)


def test_diverging_float16_run_ends_with_an_error(tmp_path, book):
    options = {"lr": 1e6, "precision": "float16", "baseline": False, "device": "cpu"}
    with pytest.raises(GlassError, match="steps in a row had a non-finite loss"):
        train(
            "generate", book, run=tmp_path / "run", steps=60, reporter=NullReporter(),
            settings=[*settings_for("gpt2"), "train.warmup=0.0"], **options,
        )  # fmt: skip


def test_loss_scale_changes_neither_the_gradient_norm_nor_the_update(tmp_path, book):
    """The gradient is unscaled before its norm is computed and clipped."""
    norms, trained = [], []
    for scale in (1.0, 1024.0):
        trainer = small_trainer(tmp_path, book, precision="float16", clip=0.05, steps=5)
        trainer.step.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        norms.append([take_step(trainer).grad_norm for _ in range(3)])
        trained.append(weights_of(trainer.network).clone())
    assert norms[0][0] > 0.05  # it is clipped
    assert norms[1] == pytest.approx(norms[0], rel=0.02)
    start = weights_of(small_trainer(tmp_path, book).network)
    updates = [weights - start for weights in trained]
    assert torch.nn.functional.cosine_similarity(*updates, dim=0) > 0.98
    assert float(updates[0].norm()) == pytest.approx(float(updates[1].norm()), rel=0.05)


def test_clipping_scales_the_gradient_to_the_maximum_norm(tmp_path, book):
    """With plain SGD, the norm of the update is the learning rate times `clip`."""
    trainer = small_trainer(tmp_path, book, clip=0.05)
    before = weights_of(trainer.network).clone()
    param_groups = [{"params": list(trainer.network.parameters()), "scale": 1.0}]
    trainer.step.optimizers[None] = torch.optim.SGD(param_groups, lr=0.1)
    result = take_step(trainer)
    assert result.grad_norm > 0.05
    update = weights_of(trainer.network) - before
    assert float(update.norm()) == pytest.approx(result.lr * 0.05, rel=1e-3)
