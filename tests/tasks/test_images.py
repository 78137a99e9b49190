"""Images: classification and painting, from files to predictions."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from PIL import Image
from scipy import linalg

from cases import CASES
from glassformer import GlassError, evaluate, load, train
from glassformer.api import Model
from glassformer.baselines.logistic import Logistic
from glassformer.cli import glass
from glassformer.core.reporter import NullReporter
from glassformer.data.image_sample import drawn_shapes
from glassformer.data.request import DataRequest
from glassformer.inspection.pictures.gaze import grid_of, parse_class, trace_image
from glassformer.tasks import TASKS
from glassformer.tasks.frechet import (
    feature_sums,
    frechet_distance,
    load_classifier,
    mean_and_covariance,
    recognize,
    to_classifier_input,
)
from glassformer.tasks.paint import (
    PaintCodec,
    PaintObjective,
    add_noise,
    count_columns,
    draw_sheet,
    keep_constant,
    sameness,
    to_pixels,
)
from glassformer.tasks.task import Artifacts, Scores
from glassformer.text.plain import Characters
from glassformer.training.resume import resume
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import Step
from glassformer.training.trainer import Trainer

close = torch.testing.assert_close
SMALL_GAN = ("model.dim=8", "train.batch_size=16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of 12 x 12 pixels: bright on the left or on the right, on noise."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for i in range(240):
        pixels = rng.integers(0, 100, (12, 12))
        pixels[:, 6 * (i % 2) : 6 * (i % 2) + 6] += 100
        path = folder / ("left", "right")[i % 2] / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def home(folder, tmp_path_factory):
    """A classifier and a painter of these images."""
    home = tmp_path_factory.mktemp("home")
    train("classify", folder, run=home / "classify", steps=30,
          settings=["model.dim=16", "model.depth=1", "model.max_shift=0"])  # fmt: skip
    train("paint", folder, run=home / "paint", steps=4, settings=SMALL_GAN)
    return home


def command(*args, code=0):
    result = CliRunner().invoke(glass, [str(arg) for arg in args])
    assert code is None or result.exit_code == code, result.output
    is_error = isinstance(result.exception, GlassError)
    return str(result.exception) if is_error else result.output


# --- classification -------------------------------------------------------------------------------


def test_classify_learns_images_and_reports_its_baseline(home, folder):
    model = load(home / "classify")
    assert model.task["name"] == "classify-images"
    assert model.task["labels"] == ["left", "right"]
    metrics = evaluate(home / "classify")
    assert metrics["accuracy"] > 0.9
    assert "logistic regression" in (home / "classify" / "README.md").read_text()
    file = folder / "left" / "0.png"
    assert next(iter(model.classify(str(file)))) == "left"


def test_classify_command_reads_files_and_folders(home, folder):
    line = command("classify", home / "classify", folder / "right" / "1.png")
    assert line.startswith("right")
    assert "1.png" in line
    lines = command("classify", home / "classify", folder / "left").splitlines()
    assert len(lines) == 120
    assert sum(line.startswith("left") for line in lines) > 110
    missing = command("classify", home / "classify", folder / "none.png", code=1)
    assert "none.png does not exist: this model classifies image files" in missing


def test_classify_rejects_an_image_of_another_size(home, tmp_path):
    Image.new("L", (9, 12)).save(tmp_path / "narrow.png")
    message = command("classify", home / "classify", tmp_path / "narrow.png", code=1)
    assert "narrow.png: is 9 x 12 grayscale, but 12 x 12 grayscale is expected" in message


def test_evaluation_of_other_images_uses_the_labels_of_the_model(home, folder, tmp_path):
    (tmp_path / "left").mkdir()
    for i in (0, 2):
        (tmp_path / "left" / f"{i}.png").write_bytes((folder / "left" / f"{i}.png").read_bytes())
    out = json.loads(command("evaluate", home / "classify", tmp_path, "--json").splitlines()[-1])
    assert out["accuracy"] == 1.0
    assert out["examples"] == 2


def test_evaluation_of_files_normalizes_pixels_as_in_training(folder, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    lr = ["train.lr=1e-6"]
    train("classify", folder, run=run, model="image_cnn", settings=lr, steps=2, baseline=False)
    model, files = load(run), sorted(folder.glob("*/*.png"))[:20]
    probs = [model.classify(str(file))[file.parent.name] for file in files]
    for file in files:
        copy = other / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    expected = -np.log(probs).mean()
    assert expected > 0.01
    assert evaluate(run, other)["loss"] == pytest.approx(expected, rel=1e-3)


def test_images_without_labels_cannot_be_classified(folder, tmp_path):
    for i in range(0, 40, 2):
        (tmp_path / f"{i}.png").write_bytes((folder / "left" / f"{i}.png").read_bytes())
    with pytest.raises(GlassError, match="put those of each class into a subfolder"):
        train("classify", tmp_path, run=tmp_path / "run", steps=1)


def test_check_data_counts_images(folder):
    assert "240 examples" in command("check-data", "classify", folder)


def test_logistic_regression_minimizes_its_loss():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(200, 1, 3, 3, generator=generator)
    labels = (pixels.flatten(1)[:, :3] + torch.randn(200, 3, generator=generator)).argmax(1)
    network = Logistic(Logistic.Config(height=3, width=3, classes=3, l2=0.01))
    network.fit(pixels, labels)

    def loss(shift):
        with torch.no_grad():
            weight, bias = (
                x + shift * torch.randn(x.shape, generator=generator)
                for x in (network.weight, network.bias)
            )
            logits = pixels.flatten(1) @ weight.T + bias
            return float(F.cross_entropy(logits, labels) + 0.01 * weight.square().sum())

    best = loss(0.0)
    assert all(loss(0.05) > best for _ in range(10))


# --- painting -------------------------------------------------------------------------------------


def test_paint_writes_a_sheet_and_equal_seeds_give_equal_images(home, tmp_path):
    out = tmp_path / "sheet.png"
    command("paint", home / "paint", "-n", 6, "--class", "left", "--columns", 3, "--out", out)
    with Image.open(out) as sheet:
        assert sheet.width > 3 * 12
        assert sheet.height > 2 * 12
    assert "exists" in command("paint", home / "paint", "--out", out, code=None)
    model = load(home / "paint")
    images = model.paint(4, label="left", seed=3)
    assert images.shape == (4, 12, 12, 1)
    assert images.dtype == np.uint8
    assert np.array_equal(images[1:], model.paint(3, label="left", seed=4))
    assert not np.array_equal(images[0], images[1])
    assert (home / "paint" / "plots" / "sheet.png").is_file()


def test_evaluation_of_a_painter_reports_its_distance(home, folder):
    metrics = evaluate(home / "paint", folder)
    assert metrics["frechet"] > 0
    assert metrics["examples"] == 240
    assert "recognized" not in metrics  # the fixed classifier does not know these classes
    report = (home / "paint" / "README.md").read_text()
    assert "undertrained" not in report  # the distance of a GAN does not fall steadily


def test_paint_errors_name_the_classes_and_the_right_command(home, folder, tmp_path):
    message = command("paint", home / "paint", "--class", "up", code=1)
    assert "cannot paint 'up'; its classes are left, right" in message
    assert "such as painted.png" in command("paint", home / "paint", "--out", "x.txt", code=2)
    assert "glass classify RUN" in command("paint", home / "classify", code=1)
    assert "glass paint RUN" in command("classify", home / "paint", folder / "left", code=1)
    with pytest.raises(GlassError, match="divisible by 4, got 10 x 10 pixels"):
        train("paint", folder, run=tmp_path / "run", steps=1, image_size=10)


def test_an_interrupted_painter_resumes_bit_for_bit(folder, tmp_path, monkeypatch):
    train("paint", folder, run=tmp_path / "whole", steps=6, settings=SMALL_GAN)
    take_step = Trainer.take_step

    def take_step_and_stop(self, moment):
        result = take_step(self, moment)
        self.is_stopping = self.state.step == 3
        return result

    monkeypatch.setattr(Trainer, "take_step", take_step_and_stop)
    train("paint", folder, run=tmp_path / "stopped", steps=6, settings=SMALL_GAN)
    resume(tmp_path / "stopped")
    whole, resumed = (
        load(tmp_path / name / "last").network.state_dict() for name in ("whole", "stopped")
    )
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    critic, generator = ("critic.score.weight", "generator.canvas.weight")
    start = load(tmp_path / "whole" / "best").network.state_dict()
    assert not torch.equal(start[critic], whole[critic])  # averaged and trained weights differ
    assert not torch.equal(start[generator], whole[generator])


def test_the_losses_are_the_hinge_losses_of_critic_and_generator():
    network = CASES["sagan"].network
    objective = PaintObjective(Artifacts({"labels": ["a", "b", "c"]}))
    pixels, targets = torch.rand(5, 1, 8, 8) * 2 - 1, torch.arange(5) % 3
    batch = {"pixels": pixels, "targets": targets, "labels": targets}
    batch |= {"noise": torch.randn(5, 8), "other_noise": torch.randn(5, 8)}
    critic_loss, generator_loss = objective.losses(network, batch)
    painted, other = network(batch["noise"], targets), network(batch["other_noise"], targets)
    real, fake = network.critic(pixels, targets), network.critic(painted, targets)
    expected = sum(max(0.0, 1 - r) + max(0.0, 1 + f) for r, f in zip(real, fake, strict=True))
    close(critic_loss, expected)
    penalty = sum(
        (a - b).abs().mean() / ((x - y).abs().mean() + 1e-4)
        for a, b, x, y in zip(batch["noise"], batch["other_noise"], painted, other, strict=True)
    )
    close(generator_loss, 0.1 * penalty - fake.sum())
    close(sameness(painted, painted, batch).isfinite().all(), torch.tensor(True))
    generator_loss.backward()
    gradients = {name: p.grad is not None for name, p in network.named_parameters()}
    network.zero_grad()
    assert not any(found for name, found in gradients.items() if name.startswith("critic"))
    assert all(found for name, found in gradients.items() if name.startswith("generator"))


@pytest.mark.parametrize(("name", "updated"), [("pixels", set()), ("other_noise", {"critic"})])
def test_a_player_whose_loss_is_not_finite_is_not_updated(name, updated):
    network, labels = copy.deepcopy(CASES["sagan"].network).train(), torch.arange(4) % 3
    batch = {"pixels": torch.rand(4, 1, 8, 8), "targets": labels, "labels": labels}
    batch |= {"noise": torch.randn(4, 8), "other_noise": torch.randn(4, 8)}
    batch[name] = torch.full_like(batch[name], float("nan"))
    before = copy.deepcopy(dict(network.named_parameters()))
    settings = TrainingSettings(precision="float32", device="cpu")
    step = Step(network, PaintObjective(Artifacts({"labels": ["a", "b", "c"]})), settings)
    assert step(batch, 0.01, 0).non_finite
    changed = {n for n, p in network.named_parameters() if not torch.equal(p, before[n])}
    assert {n.partition(".")[0] for n in changed} == updated


def test_constant_parameters_are_trainable_again_afterwards():
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with keep_constant(layer):
        assert not layer.weight.requires_grad
    assert layer.weight.requires_grad
    assert not layer.bias.requires_grad


def test_noise_is_a_function_of_the_seed():
    batch = {"targets": torch.arange(4)}
    first, again, other = (add_noise(batch, *seed) for seed in ((1, 2), (1, 2), (1, 3)))
    assert torch.equal(first["noise"], again["noise"])
    assert not torch.equal(first["noise"], other["noise"])
    assert not torch.equal(first["noise"], first["other_noise"])
    assert torch.equal(first["labels"], batch["targets"])


def open_images(folder, cache, name="classify-images", **options):
    """A task on images, opened without training."""
    cache.mkdir(exist_ok=True)
    spec = TASKS[name]
    request = DataRequest(files=(folder,), **options)
    return spec.open(spec.prepare(request, cache, NullReporter()), cache)


def read_epoch(batches, epoch):
    steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
    return torch.cat([batches.at(step)["pixels"] for step in steps])


def test_every_image_is_read_once_per_epoch_in_an_order_of_its_own(folder, tmp_path):
    dataset = open_images(folder, tmp_path).dataset
    batches = dataset.train_batches(50, None, seed=1)
    assert batches.per_epoch == len(dataset.train) // 50
    first, second = read_epoch(batches, 0), read_epoch(batches, 1)
    other = read_epoch(dataset.train_batches(50, None, seed=2), 0)
    assert len(first.flatten(1).unique(dim=0)) == len(first) == 50 * batches.per_epoch
    assert torch.equal(first, read_epoch(dataset.train_batches(50, None, seed=1), 0))
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_training_pixels_have_a_mean_of_0_and_a_variance_of_1(folder, tmp_path):
    dataset = open_images(folder, tmp_path).dataset
    raw = dataset.train.pixels.astype(np.float64)
    metadata = dataset.artifacts.metadata
    assert metadata["mean"] == pytest.approx(raw.mean(), abs=1e-3)
    assert metadata["std"] == pytest.approx(raw.std(), abs=1e-3)
    assert metadata["mean"] != pytest.approx(dataset.valid.pixels.mean(), abs=1e-3)
    pixels = dataset.train.gather(np.arange(len(dataset.train)))["pixels"]
    assert float(pixels.mean()) == pytest.approx(0, abs=1e-3)
    assert float(pixels.std()) == pytest.approx(1, abs=1e-3)
    assert dataset.size == raw.size == len(dataset.train) * 144


def test_images_scaled_for_training_are_scaled_for_predictions_too(folder, tmp_path):
    task = open_images(folder, tmp_path, image_size=8)
    assert task.artifacts.metadata["image_size"] == 8
    assert task.dataset.sizes() == {"channels": 1, "height": 8, "width": 8, "classes": 2}
    pixels = task.codec.encode([str(folder / "left" / "0.png")])["pixels"]
    assert pixels.shape == (1, 1, 8, 8)
    rows = torch.cat([b["pixels"] for b in task.dataset.eval_batches(None)])
    trained = task.dataset.train.gather(np.arange(len(task.dataset.train)))["pixels"]
    assert any(torch.equal(pixels[0], image) for image in torch.cat((rows, trained)))


def test_labels_that_are_given_keep_their_order(folder, tmp_path):
    for name in ("classify-images", "paint"):
        labels = ("right", "other", "left")
        dataset = open_images(folder, tmp_path / name, name, labels=labels).dataset
        assert dataset.artifacts.metadata["labels"] == [*labels]
        assert sorted(set(dataset.train.labels.tolist())) == [0, 2]
        bright_left = dataset.train.pixels[dataset.train.labels == 2].mean(axis=(0, 1, 2))
        assert bright_left[:6].min() > bright_left[6:].max()


def test_an_evaluation_reads_each_image_with_its_own_index(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.tasks.image_rows.EVAL_BATCH", 5)
    dataset = open_images(folder, tmp_path).dataset
    for limit in (None, 7):
        batches = [*dataset.eval_batches(None, limit)]
        index = torch.cat([batch["index"] for batch in batches]).numpy()
        assert len(set(index.tolist())) == len(index) == (limit or dataset.eval_size) > 5
        expected = dataset.valid.gather(index)
        for name in ("pixels", "targets"):
            assert torch.equal(torch.cat([batch[name] for batch in batches]), expected[name])


def test_a_baseline_of_images_is_fitted_to_a_part_of_them(folder, tmp_path, monkeypatch):
    dataset, sizes = open_images(folder, tmp_path).dataset, []
    network = SimpleNamespace(fit=lambda pixels, _: sizes.append(len(pixels)))
    assert dataset.fit(network, 1.0) == 1.0
    assert dataset.fit(network, 0.5) == pytest.approx(0.5, abs=0.01)
    monkeypatch.setattr("glassformer.tasks.image_rows.MAX_FIT_VALUES", 144 * 10)
    assert dataset.fit(network, 1.0) == 10 / len(dataset.train)
    assert sizes == [len(dataset.train), len(dataset.train) // 2, 10]


def test_a_painter_reads_pixels_between_minus_one_and_one_and_paints_them_back(folder, tmp_path):
    dataset = open_images(folder, tmp_path, "paint").dataset
    batch = dataset.train_batches(4, None, seed=0).at(0)
    assert -1 <= float(batch["pixels"].min()) < -0.5
    assert 0.4 < float(batch["pixels"].max()) <= 1
    raw = dataset.train.pixels[:3]
    assert np.array_equal(to_pixels(dataset.train.gather(np.arange(3))["pixels"]), raw)
    assert to_pixels(torch.tensor([-9.0, -1.0, 0.999, 1.0, 9.0])).tolist() == [0, 0, 255, 255, 255]


def test_the_noise_of_training_depends_on_seed_and_step(folder, tmp_path):
    dataset = open_images(folder, tmp_path, "paint").dataset

    def noise(seed, step):
        batch = dataset.train_batches(4, None, seed).at(step)
        assert batch["noise"].shape == batch["other_noise"].shape == (4, 64)
        return tuple(batch["noise"].flatten().tolist())

    assert noise(0, 1) == noise(0, 1)
    assert len({noise(0, 0), noise(0, 1), noise(1, 0), noise(1, 1)}) == 4


def test_the_noise_of_evaluations_differs_between_batches_but_not_between_evaluations(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("glassformer.tasks.image_rows.EVAL_BATCH", 4)
    dataset = open_images(folder, tmp_path, "paint").dataset
    first, again = ([b["noise"] for b in dataset.eval_batches(None)] for _ in range(2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], first[1])


@torch.no_grad()
def test_painted_images_are_compared_with_real_ones_and_recognized():
    """A painter that paints the classes it is asked for, except for the last image."""
    sample = [(pixels, label) for pixels, label in drawn_shapes(60, seed=5)]
    images = torch.from_numpy(np.stack([pixels for pixels, _ in sample])).float() / 127.5 - 1
    known = recognize(images)
    labels = sorted(set(known))
    targets = torch.tensor([labels.index(name) for name in known])
    targets[-1] = (targets[-1] + 1) % len(labels)
    objective = PaintObjective(Artifacts({"labels": labels}))
    real = images.flip(3) * 0.5
    batch = {"pixels": real, "labels": targets, "targets": targets}

    class Painter:
        def select_inputs(self, batch):
            return {}

        def __call__(self):
            return images

    scores = objective.scores(Painter(), batch)
    found = objective.metrics(scores)
    assert found["recognized"] == pytest.approx(59 / 60)
    expected = frechet_distance(feature_sums(images), feature_sums(real))
    assert found["frechet"] == found["loss"] == pytest.approx(expected)
    assert found["frechet"] > 1
    assert found["examples"] == 60


def test_a_sheet_has_the_classes_side_by_side(tmp_path, monkeypatch):
    """Each image has one value, 10 times its class plus its number."""
    sheets = []
    monkeypatch.setattr(
        "glassformer.tasks.paint.make_sheet",
        lambda images, columns: (
            sheets.append((images[:, 0, 0, 0].tolist(), columns)) or Image.new("L", (1, 1))
        ),
    )
    classes = np.array([1, 0, 2, 1, 0, 2, 1])
    images = np.zeros((7, 1, 4, 4), dtype=np.uint8)
    for i, c in enumerate(classes):
        images[i] = 10 * c + (classes[:i] == c).sum()
    scores = Scores(arrays={"label": [classes], "painted": [images]})
    draw_sheet(scores, Artifacts({"labels": ["a", "b", "c"]}), tmp_path / "a.png")
    assert sheets == [([0, 10, 20, 1, 11, 21], 3)]


def test_seeds_without_a_class_go_through_the_classes():
    codec = PaintCodec(Artifacts({"labels": ["a", "b", "c"]}))
    batch = codec.encode([(None, 0), (None, 1), (None, 5), ("b", 5)])
    assert batch["labels"].tolist() == [0, 1, 2, 1]
    assert torch.equal(batch["noise"][2], batch["noise"][3])  # of the same seed
    assert not torch.equal(batch["noise"][0], batch["noise"][1])


def test_a_preview_shows_bright_pixels_as_full_blocks():
    codec = PaintCodec(Artifacts({"labels": ["dark", "bright"]}))
    images = torch.full((2, 1, 12, 12), -1.0)
    images[1, :, :, 6:] = 1.0
    network = SimpleNamespace(select_inputs=lambda _: {})
    codec.run = lambda _network, _batch: images
    lines = codec.preview(network, {"labels": torch.tensor([0, 1])}).splitlines()
    assert lines[0].split() == ["dark", "bright"]
    assert lines[1:] == [" " * 12 + "  " + " " * 6 + "█" * 6] * 6


def test_a_sheet_has_a_column_per_class_if_there_are_few():
    assert [count_columns(64, classes) for classes in (1, 3, 12, 13)] == [8, 3, 12, 8]


# --- the Fréchet distance -------------------------------------------------------------------------


def test_frechet_distance_agrees_with_a_matrix_square_root():
    first, second = torch.rand(300, 1, 28, 28) * 2 - 1, torch.rand(200, 1, 28, 28) - 0.5
    sums, other_sums = feature_sums(first), feature_sums(second)
    moments = []
    for images, found in ((first, sums), (second, other_sums)):
        with torch.no_grad():
            features = load_classifier()[0].image_features(to_classifier_input(images)).double()
        moments.append((features.mean(0).numpy(), np.cov(features.numpy().T)))
        mean, covariance = mean_and_covariance(found)
        np.testing.assert_allclose(mean, moments[-1][0], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(covariance, moments[-1][1], rtol=1e-4, atol=1e-6)
    (m1, c1), (m2, c2) = moments
    ridge = 1e-9 * np.eye(len(c1))  # features that are always 0 make the product singular
    root = linalg.sqrtm((c1 + ridge) @ (c2 + ridge)).real
    expected = np.square(m1 - m2).sum() + np.trace(c1 + c2 - 2 * root)
    assert frechet_distance(sums, other_sums) == pytest.approx(expected, rel=1e-3)
    assert frechet_distance(sums, sums) == pytest.approx(0, abs=1e-3)


def test_sums_of_batches_add_up():
    images = torch.rand(60, 1, 28, 28) * 2 - 1
    whole, parts = feature_sums(images), feature_sums(images[:25]) + feature_sums(images[25:])
    np.testing.assert_allclose(whole, parts, rtol=1e-4, atol=1e-3)


def test_the_fixed_classifier_recognizes_drawn_shapes():
    sample = list(drawn_shapes(60, seed=5))
    images = torch.from_numpy(np.stack([pixels for pixels, _ in sample])).float() / 127.5 - 1
    correct = [a == b for a, (_, b) in zip(recognize(images), sample, strict=True)]
    assert np.mean(correct) > 0.8


# --- looking inside -------------------------------------------------------------------------------


def test_gaze_shows_the_attention_of_nine_positions(home, folder):
    for name, example in (("classify", folder / "left" / "0.png"), ("paint", "left:3")):
        figure = load(home / name).draw("gaze", str(example))
        counts = [len(axis.images) for axis in figure.axes]
        assert counts.count(2) == 9  # the image, and the attention of a position over it
        assert counts.count(1) == 2  # the image, and the mean over positions
    with pytest.raises(GlassError, match="is for models that read or paint images"):
        Model(CASES["gpt2"].network, Characters("abc", ["<unk>"])).draw("gaze", "abc")


def test_a_traced_image_has_a_pattern_of_each_layer(home, folder):
    model = load(home / "classify")
    traced = trace_image(model.network, model.codec, str(folder / "right" / "1.png"))
    (pattern,) = traced.patterns.values()
    assert pattern.shape == (4, 9, 9)  # heads, and patches of 4 x 4 pixels
    close(pattern.sum(-1), torch.ones(4, 9))
    assert traced.pixels.shape == (12, 12, 1)
    assert traced.title.startswith("right (")
    assert grid_of(12, 6, 8) == (3, 4)
    assert parse_class("3:42") == ("3", 42)
    assert parse_class("circle") == ("circle", 0)
