"""Runs with a count prior: where they start, what they save, and how they continue."""

import random

import pytest
import torch

from faults import stopping_after
from glassformer import MODELS, GlassError, checkpoint, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core.folder import write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.generate.decode import generate_tokens
from glassformer.generate.sampling import GREEDY
from glassformer.nn.counts import previous_ids
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.generate import FOLDS, PAST_IDS, assign_folds
from glassformer.training import recovery
from glassformer.training.autotune import Autotune
from glassformer.training.evaluate import evaluate
from glassformer.training.memory import ContextTooLongError
from glassformer.training.request import Request
from glassformer.training.resume import load_trainer, resume
from glassformer.training.run import Run
from glassformer.training.train import train
from glassformer.weights import read as weights_file

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "model.context=16", "train.batch_size=4"]
OPTIONS = {"reporter": NullReporter(), "steps": 6, "settings": TINY, "precision": "float32"}


@pytest.fixture
def text(tmp_path):
    words = "the a cat dog mat log sat lay on by and while two birds sang to it".split()
    choose = random.Random(0).choice
    file = tmp_path / "words.txt"
    file.write_text(" ".join(choose(words) for _ in range(4000)))
    return file


def validation_rows(run):
    return [row for row in Run(run).metrics() if row["kind"] == "validation"]


def weights(folder):
    network, _, _ = checkpoint.load(folder)
    return network.state_dict()


def assert_equal_weights(a, b):
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize("model", ["speedrun", "gpt2"])
def test_the_first_evaluation_equals_the_baseline(tmp_path, text, model):
    result = train("generate", text, run=tmp_path / "run", model=model, **OPTIONS)
    first, baseline = validation_rows(tmp_path / "run")[0], result["baseline"]
    assert first["step"] == 0
    assert first["tokens"] == baseline["tokens"]
    limit = 1e-4 if model == "speedrun" else 0.1  # a tied head cannot start at 0
    assert first["loss"] == pytest.approx(baseline["loss"], abs=limit)
    assert result["loss"] < baseline["loss"] + 0.02


def test_without_a_prior_the_network_starts_from_nothing(tmp_path, text):
    result = train("generate", text, run=tmp_path / "run", prior=False, **OPTIONS)
    assert validation_rows(tmp_path / "run")[0]["step"] > 0
    assert load(tmp_path / "run").network.prior is None
    assert result["loss"] > result["baseline"]["loss"]
    config = (tmp_path / "run/config.toml").read_text()
    assert "prior = false" in config


def test_a_stopped_run_ends_with_the_same_weights(tmp_path, text, monkeypatch):
    train("generate", text, run=tmp_path / "whole", save_every=1, **OPTIONS)
    with stopping_after(3, monkeypatch):
        train("generate", text, run=tmp_path / "parts", save_every=1, **OPTIONS)
    trainer = load_trainer(Run(tmp_path / "parts"), NullReporter())
    assert trainer.state.step == 3
    assert trainer.network.prior.table.n_folds == FOLDS
    resume(tmp_path / "parts", NullReporter())
    assert_equal_weights(tmp_path / "whole" / LAST, tmp_path / "parts" / LAST)
    assert_equal_weights(tmp_path / "whole" / BEST, tmp_path / "parts" / BEST)


def test_a_saved_model_has_its_prior(tmp_path, text):
    train("generate", text, run=tmp_path / "run", **OPTIONS)
    model = load(tmp_path / "run")
    prior = model.network.prior
    assert prior.table.n_folds == 0  # the counts of folds are not saved
    assert len(prior.counts.followers[3]) > 10
    model.save(tmp_path / "copy")
    assert_equal_weights(tmp_path / "run" / BEST, tmp_path / "copy")
    ids = torch.tensor([model.tokenizer.encode("the cat sat on")])
    assert torch.equal(load(tmp_path / "copy").network(ids), model.network(ids))
    assert "verbatim" in (tmp_path / "run/README.md").read_text()


def test_a_prior_can_be_stripped(tmp_path, text):
    train("generate", text, run=tmp_path / "run", model="gpt2", **OPTIONS)
    model = load(tmp_path / "run")
    with pytest.raises(GlassError, match="--strip-prior"):
        model.save(tmp_path / "foreign", format="huggingface")
    model.strip_prior()
    with pytest.raises(GlassError, match="has no prior"):
        model.strip_prior()
    model.save(tmp_path / "plain")
    assert not [name for name in weights(tmp_path / "plain") if "prior" in name]
    stripped = evaluate(tmp_path / "plain", (text,))
    assert stripped["loss"] > evaluate(tmp_path / "run", (text,))["loss"]
    load(tmp_path / "plain").save(tmp_path / "foreign", format="huggingface")
    tokenizer = load(tmp_path / "foreign").tokenizer
    assert tokenizer.encode("the cat") == model.tokenizer.encode("the cat")


def test_a_base_model_keeps_its_gates_and_counts_the_new_text(tmp_path, text):
    train("generate", text, run=tmp_path / "base", **OPTIONS)
    new = tmp_path / "new.txt"
    new.write_text(text.read_text().replace("cat", "cow"))
    options = {**OPTIONS, "settings": [], "steps": 1, "lr": 0.0}
    train("generate", new, run=tmp_path / "run", base=tmp_path / "base", **options)
    old, tuned = weights(tmp_path / "base" / BEST), weights(tmp_path / "run" / LAST)
    assert torch.equal(old["prior.gate_out.bias"], tuned["prior.gate_out.bias"])
    tables = "prior.counts.followers.3"
    assert old[tables].shape != tuned[tables].shape or not torch.equal(old[tables], tuned[tables])


def test_a_base_model_without_a_prior_starts_with_closed_gates(tmp_path, text):
    train("generate", text, run=tmp_path / "base", prior=False, **OPTIONS)
    options = {**OPTIONS, "settings": [], "steps": 1, "lr": 0.0}
    train("generate", text, run=tmp_path / "run", base=tmp_path / "base", **options)
    first = validation_rows(tmp_path / "run")[0]
    assert first["loss"] == pytest.approx(evaluate(tmp_path / "base")["loss"], abs=1e-5)
    assert not weights(tmp_path / "run" / LAST)["prior.gate_out.bias"].any()


def test_a_base_model_of_another_size_gets_new_gates(tmp_path, text):
    train("generate", text, run=tmp_path / "base", **OPTIONS)
    options = {**OPTIONS, "settings": ["model.dim=16"], "steps": 1}
    train("generate", text, run=tmp_path / "run", base=tmp_path / "base", **options)
    assert load(tmp_path / "run").network.prior.gate_in.weight.shape[1] == 16 + 2 * 8


def test_rolling_back_keeps_the_counts_of_the_folds(tmp_path, text):
    train("generate", text, run=tmp_path / "run", ema_decay=0.9, **OPTIONS)
    trainer = load_trainer(Run(tmp_path / "run"), NullReporter())
    table = trainer.network.prior.table
    assert table.n_folds == FOLDS
    recovery.reload_checkpoint(trainer)
    assert trainer.network.prior.table is table
    saved = weights_file(tmp_path / "run" / LAST / "training.safetensors")
    assert not [name for name in saved if "counts" in name]
    with pytest.raises(ValueError, match="counts of the folds are missing"):
        load(tmp_path / "run").network(torch.zeros(1, 4).long(), folds=torch.zeros(1, 4).long())


def test_a_shorter_context_keeps_the_prior(tmp_path, text, monkeypatch):
    decide = Autotune.decide

    def run_out_of_memory(self, settings):
        if self.network.context > 8:
            raise ContextTooLongError(self.network.context, 8)
        return decide(self, settings)

    monkeypatch.setattr(Autotune, "decide", run_out_of_memory)
    train("generate", text, run=tmp_path / "run", shrink_on_oom=True, **OPTIONS)
    model = load(tmp_path / "run")
    assert model.network.context == 8
    assert model.network.prior is not None
    assert validation_rows(tmp_path / "run")[0]["step"] == 0


def test_lora_keeps_the_prior_of_the_base_model(tmp_path, text):
    train("generate", text, run=tmp_path / "base", **OPTIONS)
    options = {**OPTIONS, "settings": ["train.lora=2"], "steps": 2}
    train("generate", text, run=tmp_path / "run", base=tmp_path / "base", **options)
    base, tuned = load(tmp_path / "base").network.prior, load(tmp_path / "run").network.prior
    assert torch.equal(base.counts.followers[2], tuned.counts.followers[2])
    assert torch.equal(base.gate_out.weight, tuned.gate_out.weight)
    assert not list((tmp_path / "run" / BEST).glob("model.safetensors"))


def test_a_prior_for_a_task_that_has_none_is_rejected(tmp_path, text):
    for prior in (True, False):
        with pytest.raises(GlassError, match="fill-mask has no prior"):
            train("fill-mask", text, run=tmp_path / "run", prior=prior, reporter=NullReporter())
    train("generate", text, run=tmp_path / "base", **OPTIONS)
    options = {**OPTIONS, "settings": ["train.lora=2"], "prior": False}
    with pytest.raises(GlassError, match="LoRA keeps the prior"):
        train("generate", text, run=tmp_path / "run", base=tmp_path / "base", **options)


def test_defaults_follow_the_optimizer():
    def settings(*train_settings, model=None):
        return Request.of("generate", (), None, train_settings, {}, model=model).training

    assert (settings().optimizer, settings().lr) == ("muon", 0.02)
    assert settings("train.optimizer=adamw").lr == 1.5e-3
    assert settings("train.optimizer=muon", model="gpt2").lr == 0.02
    assert settings("train.optimizer=muon", "train.lr=0.1", model="gpt2").lr == 0.1


def test_generation_beyond_a_short_context_gives_the_prior_all_earlier_tokens(tmp_path, text):
    """With a context of 4, the counts still see 8 tokens."""
    options = {**OPTIONS, "settings": [*TINY, "model.context=4"]}
    train("generate", text, run=tmp_path / "run", **options)
    model = load(tmp_path / "run")
    network = model.network
    torch.nn.init.zeros_(network.head.weight)
    network.prior.open_gates(8)
    prompt = torch.tensor([model.tokenizer.encode("the cat sat on the mat")])
    generated = [int(t) for t in generate_tokens(network, prompt, 12, sampling=GREEDY)]
    ids = prompt
    for token in generated:
        columns = previous_ids(ids, 8)
        probs = network.prior.counts.probs([column[-1:] for column in columns])
        assert token == int(probs.argmax())
        ids = torch.cat((ids, torch.tensor([[token]])), dim=1)


@pytest.mark.parametrize("damage", ["missing", "unexpected", "not a table", "order"])
def test_a_damaged_prior_is_a_clear_error(tmp_path, text, damage):
    train("generate", text, run=tmp_path / "run", **OPTIONS)
    folder = tmp_path / "run" / BEST
    config = folder / "config.toml"
    parts = config.read_text().partition("\n[prior]\norder = 8\n")
    assert parts[1]
    changed = {
        "missing": parts[0] + parts[2],
        "unexpected": config.read_text().replace('name = "speedrun"', 'name = "classifier"'),
        "not a table": "prior = 3\n" + parts[0] + parts[2],
        "order": config.read_text().replace("order = 8", "order = 0"),
    }[damage]
    config.write_text(changed)
    (folder / "manifest.json").unlink()
    write_manifest(folder)
    with pytest.raises(GlassError):
        checkpoint.load(folder)


def test_runs_with_different_priors_cannot_be_averaged(tmp_path, text):
    train("generate", text, run=tmp_path / "one", **OPTIONS)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text()[::-1])
    train("generate", other, run=tmp_path / "two", **OPTIONS)
    with pytest.raises(GlassError, match="differ"):
        checkpoint.average([tmp_path / "one", tmp_path / "two"], tmp_path / "mean")
    checkpoint.average([tmp_path / "one", tmp_path / "one"], tmp_path / "same")
    assert_equal_weights(tmp_path / "one" / LAST, tmp_path / "same")


# --- batches --------------------------------------------------------------------------------------


def open_task(text, folder):
    folder.mkdir()
    spec = TASKS["generate"]
    artifacts = spec.prepare(DataRequest(files=(text,)), folder, RecordingReporter())
    return spec.open(artifacts, folder)


def test_a_batch_has_the_tokens_before_each_window_and_the_fold_of_each_target(tmp_path, text):
    task = open_task(text, tmp_path / "task")
    train_ids = task.dataset.train.read(0, task.dataset.train.size).tolist()
    batch = task.dataset.train_batches(64, 16, 0).at(3)
    for row in range(64):
        ids, past = batch["ids"][row].tolist(), batch["past_ids"][row].tolist()
        real = [i for i in past if i >= 0] + ids
        starts = [i for i in range(len(train_ids)) if train_ids[i : i + len(real)] == real]
        folds = batch["folds"][row].tolist()
        first = [s + len(real) - len(ids) + 1 for s in starts]
        assert [[(p + i) * FOLDS // len(train_ids) for i in range(16)] for p in first].count(folds)
    assert len(set(batch["folds"].flatten().tolist())) == FOLDS


def test_tokens_that_are_not_counted_leave_out_no_fold():
    positions = torch.tensor([0, 999, 1000, 5000])
    assert assign_folds(positions, 1000).tolist() == [0, FOLDS - 1, FOLDS, FOLDS]


def test_evaluation_windows_come_with_the_tokens_before_them(tmp_path, text):
    task = open_task(text, tmp_path / "task")
    network = build_network(task)
    flat = task.dataset.valid.flat.tolist()
    rows = [
        (past, ids)
        for batch in task.dataset.eval_batches(network) if "ids" in batch
        for past, ids in zip(batch["past_ids"].tolist(), batch["ids"].tolist(), strict=True)
    ]  # fmt: skip
    assert rows[0][0] == [-1] * PAST_IDS
    assert len(rows) > 5
    position = 0
    for past, ids in rows:
        expected = [-1] * PAST_IDS + flat[:position]
        assert past == expected[len(expected) - PAST_IDS :]
        assert ids == flat[position : position + len(ids)]
        position += len(ids)
    assert position == len(flat) - 1


def build_network(task):
    model = MODELS["speedrun"]
    return model(model.Config(vocab=task.artifacts.tokenizer.vocab, dim=16, heads=2, context=16))


def test_cross_fitting_predicts_a_random_text_no_better_than_chance(tmp_path):
    """Counts that had seen the targets would look reliable; held-out folds do not."""
    characters = random.Random(1).choices("abcdefgh", k=6000)
    file = tmp_path / "random.txt"
    file.write_text("".join(characters))
    task = open_task(file, tmp_path / "task")
    network = build_network(task)
    baseline, fraction = TASKS["generate"].fit_prior(task.dataset, network)
    assert fraction == 1.0
    assert baseline.config.order == 1  # longer contexts do not help
    network.prior.open_gates(4)
    batch = task.dataset.train_batches(32, 16, 0).at(0)
    objective = task.objective
    with torch.no_grad():
        held_out = float(next(objective.losses(network, batch))) / objective.count(batch)
        del batch["folds"]
        seen = float(next(objective.losses(network, batch))) / objective.count(batch)
    assert seen < 1.5 < 2.0 < held_out  # log 8 = 2.08
