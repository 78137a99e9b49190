"""Runs of translators with a lexical prior: where they start, what they save, how they continue."""

import random
from collections import defaultdict

import pytest
import torch

from faults import stopping_after
from glassformer import GlassError, checkpoint, load
from glassformer.baselines.phrase_table import split_texts
from glassformer.checkpoint import BEST, LAST
from glassformer.core.folder import write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.nn.lexical_prior import LexicalPrior
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.translate import FOLDS
from glassformer.training import recovery
from glassformer.training.resume import load_trainer, resume
from glassformer.training.run import Run
from glassformer.training.train import train

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "train.batch_tokens=256"]
OPTIONS = {"settings": TINY, "precision": "float32", "tokenizer": "words", "seed": 3}
WORDS = "one two three four five six seven eight nine ten red blue green old new".split()
OTHER = {word: f"{word[::-1]}o" for word in WORDS}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    choose, rows = random.Random(0), ["source\ttarget"]
    for _ in range(300):
        words = choose.choices(WORDS, k=choose.randint(2, 6))
        rows.append(" ".join(words) + "\t" + " ".join(map(OTHER.get, words)))
    file = tmp_path_factory.mktemp("data") / "pairs.tsv"
    file.write_text("\n".join(rows) + "\n")
    return file


def run_training(pairs, run, steps=4, reporter=None, **options):
    options = {**OPTIONS, **options}
    return train("translate", pairs, run=run, steps=steps, reporter=reporter or NullReporter(),
                 **options)  # fmt: skip


def weights(folder):
    network, _, _ = checkpoint.load(folder)
    return network.state_dict()


def assert_equal_weights(a, b):
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    assert [name for name in first if name.startswith("prior.")]
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def validation_rows(run):
    return [row for row in Run(run).metrics() if row["kind"] == "validation"]


def test_an_untrained_translator_translates_with_the_dictionary(tmp_path, pairs):
    reporter = RecordingReporter()
    run_training(pairs, tmp_path / "run", reporter=reporter)
    first = validation_rows(tmp_path / "run")[0]
    assert first["step"] == 0
    assert first["exact"] > 0.5
    assert any("source-target token pairs" in line for line in reporter.lines)
    assert "source-target token pairs" in (tmp_path / "run/README.md").read_text()


def test_without_a_prior_the_network_starts_from_nothing(tmp_path, pairs):
    result = run_training(pairs, tmp_path / "run", prior=False)
    assert load(tmp_path / "run").network.prior is None
    assert result["exact"] == 0


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_a_stopped_run_ends_with_the_same_weights(tmp_path, pairs, monkeypatch, ema_decay):
    options = {"save_every": 1, "steps": 6, "ema_decay": ema_decay}
    run_training(pairs, tmp_path / "whole", **options)
    with stopping_after(3, monkeypatch):
        run_training(pairs, tmp_path / "parts", **options)
    trainer = load_trainer(Run(tmp_path / "parts"), NullReporter())
    assert trainer.state.step == 3
    source = torch.zeros(1, 1, dtype=torch.long)
    assert trainer.network.prior.find_probs(source, torch.tensor([FOLDS - 1])).shape == (1, 1, 12)
    resume(tmp_path / "parts", NullReporter())
    assert_equal_weights(tmp_path / "whole" / LAST, tmp_path / "parts" / LAST)
    assert_equal_weights(tmp_path / "whole" / BEST, tmp_path / "parts" / BEST)


def test_rolling_back_keeps_the_entries_of_the_folds(tmp_path, pairs):
    run_training(pairs, tmp_path / "run")
    trainer = load_trainer(Run(tmp_path / "run"), NullReporter())
    recovery.reload_checkpoint(trainer)
    batch = trainer.batches.at(0)
    assert batch["folds"].shape == (len(batch["ids"]),)
    assert set(batch["folds"].tolist()) <= set(range(FOLDS))
    trainer.network(**trainer.network.select_inputs(batch))  # needs the entries of the folds
    network = load(tmp_path / "run").network
    with pytest.raises(ValueError, match="folds are missing"):
        network(**network.select_inputs(batch))


def test_each_pair_leaves_out_the_fold_that_it_was_fitted_in(tmp_path, pairs, monkeypatch):
    fitted, fit = [], LexicalPrior.fit
    monkeypatch.setattr(
        LexicalPrior, "fit", lambda self, *data: (fitted.append(data), fit(self, *data))[1]
    )
    run_training(pairs, tmp_path / "run", steps=1)
    trainer = load_trainer(Run(tmp_path / "run"), NullReporter())
    source, _, folds = fitted[0]
    texts = defaultdict(set)  # sources that occur more than once have one fold, too
    for text, fold in zip(split_texts(source), folds.tolist(), strict=True):
        texts[tuple(text)].add(fold)
    batch = trainer.batches.at(0)
    assert len(set(batch["folds"].tolist())) > 2
    for row, keep, fold in zip(batch["source"], batch["source_keep"], batch["folds"], strict=True):
        assert texts[tuple(row[keep].tolist())] == {int(fold)}


def test_a_saved_model_has_its_prior_and_can_lose_it(tmp_path, pairs):
    run_training(pairs, tmp_path / "run")
    model = load(tmp_path / "run")
    model.save(tmp_path / "copy")
    assert_equal_weights(tmp_path / "run" / BEST, tmp_path / "copy")
    assert load(tmp_path / "copy").translate("nine red") == model.translate("nine red")
    model.strip_prior()
    model.save(tmp_path / "plain")
    assert not [name for name in weights(tmp_path / "plain") if "prior" in name]
    assert load(tmp_path / "plain").translate("nine red") != "enino dero"


def test_a_base_model_keeps_its_gates_and_learns_the_new_dictionary(tmp_path, pairs):
    run_training(pairs, tmp_path / "base")
    new = tmp_path / "new.tsv"
    new.write_text(pairs.read_text().replace("dero", "eulbo"))
    options = {"settings": [], "steps": 1, "lr": 0.0, "tokenizer": None}
    run_training(new, tmp_path / "run", base=tmp_path / "base", **options)
    old, tuned = weights(tmp_path / "base" / BEST), weights(tmp_path / "run" / LAST)
    assert torch.equal(old["prior.gate_out.bias"], tuned["prior.gate_out.bias"])
    assert not torch.equal(old["prior.entries"], tuned["prior.entries"])


def test_a_base_model_without_a_prior_starts_unchanged(tmp_path, pairs):
    run_training(pairs, tmp_path / "base", prior=False)
    options = {"settings": [], "steps": 1, "lr": 0.0, "tokenizer": None}
    run_training(pairs, tmp_path / "run", base=tmp_path / "base", **options)
    first = validation_rows(tmp_path / "run")[0]
    best = min(row["loss"] for row in validation_rows(tmp_path / "base"))
    assert first["loss"] == pytest.approx(best, abs=1e-5)
    assert not weights(tmp_path / "run" / LAST)["prior.gate_out.bias"].any()


def test_fine_tuning_keeps_the_sizes_of_the_base_model(tmp_path, pairs):
    run_training(pairs, tmp_path / "base")
    options = {"settings": [], "steps": 1, "tokenizer": None}
    run_training(pairs, tmp_path / "run", base=tmp_path / "base", **options)
    base, tuned = (load(tmp_path / run).network.config for run in ("base", "run"))
    assert (tuned.dim, tuned.depth, tuned.hidden) == (base.dim, base.depth, base.hidden)


def test_lora_keeps_the_prior_of_the_base_model(tmp_path, pairs):
    run_training(pairs, tmp_path / "base")
    options = {"settings": ["train.lora=2"], "steps": 2, "tokenizer": None}
    run_training(pairs, tmp_path / "run", base=tmp_path / "base", **options)
    base, tuned = load(tmp_path / "base").network.prior, load(tmp_path / "run").network.prior
    assert torch.equal(base.entries, tuned.entries)
    assert torch.equal(base.query.weight, tuned.query.weight)


def test_a_translator_without_attention_layers_cannot_have_a_prior(tmp_path, pairs):
    with pytest.raises(GlassError, match="recurrent_translator cannot have a prior"):
        run_training(pairs, tmp_path / "run", model="recurrent_translator", prior=True,
                     settings=["model.dim=16", "train.batch_tokens=256"])  # fmt: skip


@pytest.mark.parametrize("damage", ["missing", "size", "not a table"])
def test_a_damaged_prior_is_a_clear_error(tmp_path, pairs, damage):
    run_training(pairs, tmp_path / "run")
    folder = tmp_path / "run" / BEST
    config = folder / "config.toml"
    parts = config.read_text().partition("\n[prior]\nmax_entries = 12\n")
    assert parts[1]
    changed = {
        "missing": parts[0] + parts[2],
        "size": config.read_text().replace("max_entries = 12", "max_entries = 5"),
        "not a table": "prior = 3\n" + parts[0] + parts[2],
    }[damage]
    config.write_text(changed)
    (folder / "manifest.json").unlink()
    write_manifest(folder)
    with pytest.raises(GlassError):
        checkpoint.load(folder)
