"""Runs of classifiers with a prior: where they start, what they save, and how they continue."""

import json
import random

import pytest
import torch

from faults import stopping_after
from glassformer import GlassError, checkpoint, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core.folder import write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.models.network import TextClassifier
from glassformer.nn.label_prior import LabelPrior
from glassformer.tasks.check import RecordingReporter
from glassformer.training.evaluate import evaluate
from glassformer.training.resume import resume
from glassformer.training.run import Run
from glassformer.training.train import train
from glassformer.training.trainer import Trainer

TINY = ["model.dim=16", "train.batch_tokens=400"]
OPTIONS = {"reporter": NullReporter(), "steps": 12, "precision": "float32"}


@pytest.fixture
def reviews(tmp_path):
    """Texts whose words are only weak evidence of their labels."""
    choose = random.Random(0)
    words = {label: [f"{label}{i}" for i in range(30)] for label in ("good", "bad")}
    rows = []
    for i in range(400):
        label, other = ("good", "bad") if i % 2 else ("bad", "good")
        chosen = [
            choose.choice(words[label if choose.random() < 0.65 else other]) for _ in range(9)
        ]
        rows.append(f"{' '.join(chosen)} {i},{label}")
    file = tmp_path / "reviews.csv"
    file.write_text("text,label\n" + "\n".join(rows))
    return file


def validation_rows(run):
    return [row for row in Run(run).metrics() if row["kind"] == "validation"]


def assert_equal_weights(a, b):
    first, second = (checkpoint.load(folder)[0].state_dict() for folder in (a, b))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_the_first_evaluation_has_the_accuracy_of_the_baseline(tmp_path, reviews):
    result = train("classify", reviews, run=tmp_path / "run", settings=TINY, **OPTIONS)
    first, *others = validation_rows(tmp_path / "run")
    assert first["step"] == 0
    assert first["accuracy"] == result["baseline"]["accuracy"]
    assert first["loss"] <= result["baseline"]["loss"] + 1e-4  # the logits are also calibrated
    assert 0.5 < first["accuracy"] < 1
    assert result["loss"] <= first["loss"]
    assert others


def test_a_run_is_diagnosed_by_its_best_weights(tmp_path, reviews, monkeypatch):
    """The last weights may ignore the network while the best ones, which are reported, do not."""
    save = Trainer.save

    def fit_weights(prior, *_):
        prior.weights.copy_(torch.tensor([0.5, 1.0]))

    def save_without_network(trainer):
        trainer.network.prior.weights[0] = 0.0
        save(trainer)

    monkeypatch.setattr(LabelPrior, "fit_weights", fit_weights)
    monkeypatch.setattr(Trainer, "save", save_without_network)
    reporter = RecordingReporter()
    options = {**OPTIONS, "reporter": reporter}
    train("classify", reviews, run=tmp_path / "run", settings=TINY, **options)
    weights = [checkpoint.load(tmp_path / "run" / name)[0].prior.weights for name in (BEST, LAST)]
    assert [float(pair[0]) for pair in weights] == [0.5, 0.0]
    assert any(line.startswith("final: ") for line in reporter.lines)
    assert not any("adds nothing to the prior" in line for line in reporter.lines)


@pytest.mark.parametrize("model", ["classifier", "bert", "recurrent_classifier", "gpt2"])
def test_every_classifier_can_have_a_prior(tmp_path, reviews, model):
    settings = ["model.dim=16", "train.batch_tokens=400"]
    settings += [] if model == "recurrent_classifier" else ["model.heads=2", "model.depth=1"]
    options = {**OPTIONS, "steps": 3}
    result = train(
        "classify", reviews, run=tmp_path / "run", model=model, settings=settings, **options
    )
    network = load(tmp_path / "run").network
    assert isinstance(network, TextClassifier)
    assert network.prior.classifier.size > 50
    accuracy = validation_rows(tmp_path / "run")[0]["accuracy"]
    assert accuracy == pytest.approx(result["baseline"]["accuracy"], abs=0.05)


def test_without_a_prior_the_network_is_on_its_own(tmp_path, reviews):
    train("classify", reviews, run=tmp_path / "run", prior=False, settings=TINY, **OPTIONS)
    assert load(tmp_path / "run").network.prior is None
    assert validation_rows(tmp_path / "run")[0]["step"] > 0


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_a_stopped_run_ends_with_the_same_weights(tmp_path, reviews, monkeypatch, ema_decay):
    options = {**OPTIONS, "settings": [*TINY, f"train.ema_decay={ema_decay}"], "save_every": 1}
    train("classify", reviews, run=tmp_path / "whole", **options)
    with stopping_after(5, monkeypatch):
        train("classify", reviews, run=tmp_path / "parts", **options)
    state = json.loads((tmp_path / "parts" / LAST / "training.json").read_text())
    assert state["step"] == 5
    resume(tmp_path / "parts", NullReporter())
    assert_equal_weights(tmp_path / "whole" / LAST, tmp_path / "parts" / LAST)
    assert_equal_weights(tmp_path / "whole" / BEST, tmp_path / "parts" / BEST)


def test_the_weights_are_fitted_to_the_network_that_is_saved(tmp_path, reviews):
    """With an average of the weights, to the averaged network."""
    options = {**OPTIONS, "steps": 60, "settings": [*TINY, "train.ema_decay=0.9", "train.lr=0.03"]}
    train("classify", reviews, run=tmp_path / "run", **options)
    network = load(tmp_path / "run").network
    assert network.prior.weights[0] > 0
    last = checkpoint.load(tmp_path / "run" / LAST)[0]
    assert last.prior.weights[0] > 0
    assert not torch.equal(last.prior.weights, network.prior.weights)
    metrics = evaluate(tmp_path / "run")
    best = min(row["loss"] for row in validation_rows(tmp_path / "run"))
    assert metrics["loss"] == pytest.approx(best, abs=1e-5)


def test_the_prior_reads_texts_that_are_longer_than_the_context(tmp_path, reviews):
    settings = [*TINY, "model.context=2"]
    result = train("classify", reviews, run=tmp_path / "run", settings=settings, **OPTIONS)
    first = validation_rows(tmp_path / "run")[0]
    assert first["accuracy"] == result["baseline"]["accuracy"]
    model = load(tmp_path / "run")
    one, two = model.classify(["good1 good2 bad1 bad2 bad3", "good1 good2 good4 good5 good3"])
    assert one["good"] < two["good"]  # they differ only after the second word
    assert model.classify(["good1 good2 bad1 bad2 bad3"])[0] == pytest.approx(one)


def test_a_prior_can_be_stripped(tmp_path, reviews):
    train("classify", reviews, run=tmp_path / "run", settings=TINY, **OPTIONS)
    assert "verbatim" in (tmp_path / "run/README.md").read_text()
    model = load(tmp_path / "run")
    model.strip_prior()
    model.save(tmp_path / "plain")
    plain = load(tmp_path / "plain")
    assert plain.network.prior is None
    assert not [name for name in plain.network.state_dict() if "prior" in name]
    with pytest.raises(GlassError, match="has no prior"):
        plain.strip_prior()


def test_fine_tuning_fits_the_prior_to_the_new_data(tmp_path, reviews):
    train("classify", reviews, run=tmp_path / "base", settings=TINY, **OPTIONS)
    new = tmp_path / "new.csv"
    new.write_text(reviews.read_text().replace("good", "fine").replace("bad", "poor"))
    reporter = RecordingReporter()
    options = {**OPTIONS, "reporter": reporter}
    train("classify", new, run=tmp_path / "run", base=tmp_path / "base", extend=True, **options)
    assert any(line.startswith("prior:") for line in reporter.lines)
    model = load(tmp_path / "run")
    assert next(iter(model.classify("fine1 fine2 fine3 fine4"))) == "fine"


@pytest.mark.parametrize("damage", ["missing", "unexpected", "weights"])
def test_a_damaged_prior_is_a_clear_error(tmp_path, reviews, damage):
    train("classify", reviews, run=tmp_path / "run", settings=TINY, **OPTIONS)
    folder = tmp_path / "run" / BEST
    config = folder / "config.toml"
    text = config.read_text()
    assert "\n[prior]\norder = 3\n" in text
    if damage == "missing":
        config.write_text(text.replace("\n[prior]\norder = 3\n", ""))
    elif damage == "unexpected":
        config.write_text(text.replace('name = "text_cnn"', 'name = "nb_svm"'))
    else:
        from safetensors.torch import load_file, save_file

        state = load_file(folder / "model.safetensors")
        state["prior.weights"] = torch.full((2,), torch.nan)
        save_file(state, folder / "model.safetensors")
    (folder / "manifest.json").unlink()
    write_manifest(folder)
    with pytest.raises(GlassError):
        checkpoint.load(folder)
