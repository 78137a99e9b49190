"""The loop: accumulation, checkpointing, schedules, stopping and going on."""

import copy
import json
import math
import signal
import subprocess
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.optim import lr_scheduler as schedulers

from cases import CASES, ids
from faults import COMMAND, saved_step, wait_for_steps
from glassformer import MODELS, GlassError, checkpoint, load
from glassformer.core.reporter import NullReporter, format_duration
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.nn.block import checkpointed
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.generate import NextToken, token_nats
from glassformer.tasks.task import Artifacts
from glassformer.text.plain import Characters
from glassformer.training import recovery
from glassformer.training.autotune import Autotune
from glassformer.training.budget import StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.optimizers import EMA, adamw
from glassformer.training.plots import spikes
from glassformer.training.run import Run, next_run
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.step import Step
from glassformer.training.train import resume, train
from glassformer.training.trainer import Trainer

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "model.context=32", "train.batch_size=4"]


def small_trainer(tmp_path, book, **settings):
    run = Run.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
    task = task_on("generate", DataRequest(files=(book,)), run.cache)
    options = TrainingSettings(**{"steps": 20, "device": "cpu", "precision": "float32", **settings})
    torch.manual_seed(0)
    kind, vocab = MODELS["gpt2"], task.artifacts.tokenizer.vocab
    shape = kind.Config(vocab=vocab, context=16, dim=32, depth=2, heads=2, dropout=0.0)
    return trainer_for(kind(shape), task, options, run)


def task_on(name, request, folder, reporter=None):
    spec = TASKS[name]
    return spec.open(spec.prepare(request, folder, reporter or NullReporter()), folder)


def trainer_for(network, task, settings, run):
    batches = task.dataset.train_batches(settings.batch, network.context, settings.seed)
    step, budget = Step(network, task.objective, settings), StepBudget(settings.steps)
    return Trainer(step, task, batches, budget, Checkpointer(run, task), NullReporter())


def take_step(trainer):
    return trainer.take_step(trainer.budget.begin(trainer.state.step))


def weights_of(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()])


# --- the step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [4, 5, 99])
def test_a_batch_in_pieces_equals_the_whole(tmp_path, book, pieces):
    whole = small_trainer(tmp_path, book, batch_size=32)
    many = small_trainer(tmp_path, book, batch_size=32, accumulate=pieces)
    ours, theirs = take_step(whole), take_step(many)
    assert ours.loss == pytest.approx(theirs.loss, abs=1e-5)
    assert ours.norm == pytest.approx(theirs.norm, abs=1e-5)
    assert ours.count == theirs.count
    torch.testing.assert_close(
        weights_of(whole.network), weights_of(many.network), atol=1e-6, rtol=1e-5
    )


def test_pieces_count_by_their_predictions(tmp_path):
    """Of sentences of different length, the mean of the pieces' means would be another number."""
    file, learnt = tmp_path / "pairs.tsv", []
    file.write_text("\n".join(f"{'a ' * (i % 9)}b\t{'x ' * (i % 7)}{i} y" for i in range(80)))
    kind = MODELS["translator"]
    for pieces in (1, 3):
        run = Run.create(tmp_path / f"run{pieces}")
        task = task_on("translate", DataRequest(files=(file,)), run.cache)
        torch.manual_seed(0)
        vocab = task.artifacts.tokenizer.vocab
        shape = kind.Config(vocab=vocab, dim=16, depth=1, heads=2, hidden=16, dropout=0.0)
        settings = TrainingSettings(
            steps=9, device="cpu", precision="float32", accumulate=pieces, batch_size=1
        )
        trainer = trainer_for(kind(shape), task, settings, run)
        batch, (optimizer,) = trainer.batches.at(0), trainer.step.optimizers.values()
        trainer.step.backward(batch, trainer.step.pieces(batch), optimizer)
        learnt.append(torch.cat([p.grad.flatten() for p in trainer.network.parameters()]))
    torch.testing.assert_close(*learnt, atol=1e-7, rtol=1e-5)


def test_blocks_that_are_computed_again_give_the_same(tmp_path, book):
    plain, again = (small_trainer(tmp_path, book, checkpointing=c) for c in (False, True))
    for _ in range(3):
        take_step(plain)
        take_step(again)
    torch.testing.assert_close(weights_of(plain.network), weights_of(again.network))
    network = copy.deepcopy(CASES["gpt2"].network)
    checkpointed(network)
    text = ids()
    assert torch.equal(network(text), CASES["gpt2"].network(text))


def test_adamw_is_torchs_and_only_matrices_decay(tmp_path, book):
    network = copy.deepcopy(CASES["gpt2"].network)
    optimiser = adamw(network, TrainingSettings(weight_decay=0.3), None)
    decays = {id(p): g["weight_decay"] for g in optimiser.param_groups for p in g["params"]}
    for name, parameter in network.named_parameters():
        assert decays[id(parameter)] == (0.3 if parameter.ndim >= 2 else 0.0), name
    assert optimiser.defaults["fused"]


def test_adamw_is_what_its_paper_says():
    """Five steps of the optimiser against the formulas, written out."""
    network = Network(None)
    network.add_module("layer", torch.nn.Linear(3, 2))
    settings = TrainingSettings(lr=0.1, weight_decay=0.2, beta2=0.95)
    optimiser = adamw(network, settings, None)
    mine = {name: p.detach().double().clone() for name, p in network.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in mine.items()}
    second = {name: torch.zeros_like(value) for name, value in mine.items()}
    for step in range(1, 6):
        torch.manual_seed(step)
        for name, p in network.named_parameters():
            g = torch.randn_like(p)
            p.grad = g
            g = g.double()
            decay = 0.2 if p.ndim >= 2 else 0.0
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.95 * second[name] + 0.05 * g**2
            mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.95**step)
            mine[name] -= 0.1 * (decay * mine[name] + mean / (square.sqrt() + 1e-8))
        optimiser.step()
    for name, p in network.named_parameters():
        torch.testing.assert_close(p.double(), mine[name], atol=1e-6, rtol=1e-5)


def test_the_gradient_is_clipped(tmp_path, book):
    trainer = small_trainer(tmp_path, book, clip=0.01, weight_decay=0.0)
    seen = []
    (optimizer,) = trainer.step.optimizers.values()
    step = optimizer.step

    def spy(*args, **more):
        seen.append(
            math.sqrt(sum(float(p.grad.square().sum()) for p in trainer.network.parameters()))
        )
        return step(*args, **more)

    optimizer.step = spy
    assert take_step(trainer).norm > 0.01
    assert seen[0] == pytest.approx(0.01, rel=1e-3)


def test_averaged_weights_follow_slowly():
    network = copy.deepcopy(CASES["gpt2"].network)
    average = EMA(network, 0.9)
    previous_ids = weights_of(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    average.update(network, 1000)
    torch.testing.assert_close(weights_of(average.network), previous_ids + 0.1)


def test_averaged_weights_follow_quickly_at_first():
    """After so few steps that the mean would be of what a network started as."""
    network = copy.deepcopy(CASES["gpt2"].network)
    average, previous_ids = EMA(network, 0.999), weights_of(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    average.update(network, 1)
    torch.testing.assert_close(weights_of(average.network), previous_ids + 1 - 2 / 11)


def test_going_back_keeps_what_was_found_and_spent(tmp_path, book):
    trainer = small_trainer(tmp_path, book)
    take_step(trainer)
    trainer.save()
    take_step(trainer)
    trainer.state.best, trainer.state.seconds = 1.25, 7.5
    recovery.reload(trainer)
    assert (trainer.state.step, trainer.state.best, trainer.state.seconds) == (1, 1.25, 7.5)


def test_a_run_that_patience_ended_goes_on_when_asked(tmp_path, book):
    options = {"lr": 0.0, "patience": 1, "evaluate_every": 4, "device": "cpu", "steps": 40}
    done = train(
        "generate", book, run=tmp_path / "run", settings=TINY, reporter=NullReporter(), **options
    )
    assert done["steps"] == 8
    assert resume(tmp_path / "run", NullReporter(), steps=60)["steps"] > 8


def test_validation_is_without_dropout_and_learning_goes_on_with_it(tmp_path, book, monkeypatch):
    trainer, seen = small_trainer(tmp_path, book, ema_decay=0.5), []
    scores = NextToken.scores

    def noted(self, network, batch):
        seen.append(network.training)
        return scores(self, network, batch)

    monkeypatch.setattr(NextToken, "scores", noted)
    trainer.network.train()
    trainer.evaluate()
    assert seen
    assert not any(seen)
    assert trainer.network.training
    trainer.step.ema = None
    seen.clear()
    trainer.evaluate()
    assert seen
    assert not any(seen)
    assert trainer.network.training


def test_trial_steps_leave_no_trace(tmp_path, book):
    """Neither in the weights nor in the stream of random numbers."""
    trainer = small_trainer(tmp_path, book)
    weights, random = weights_of(trainer.network).clone(), torch.get_rng_state()
    network, task = trainer.network, trainer.task

    def drops(*args, **more):
        torch.rand(3)  # as dropout does
        yield from losses(*args, **more)

    losses, task.objective.losses = task.objective.losses, drops
    tuning = Autotune(network, task, trainer.batches, NullReporter())
    assert tuning.pace(replace(trainer.settings, lr=1.0), rounds=2) > 0
    assert tuning.decide(replace(trainer.settings, steps=None, minutes=0.1)).eval_limit > 0
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(weights_of(network), weights)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        ("cosine", lambda o: schedulers.CosineAnnealingLR(o, 100, eta_min=0.2)),
        ("linear", lambda o: schedulers.LinearLR(o, 1.0, 0.1, 100)),
    ],
)
def test_schedules_are_those_of_torch(schedule, theirs):
    settings = TrainingSettings(lr=2.0, warmup=0.0, schedule=schedule, min_lr_ratio=0.1)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    reference = theirs(optimiser)
    for step in range(100):
        assert lr_at(step, 100, settings) == pytest.approx(optimiser.param_groups[0]["lr"])
        optimiser.step()
        reference.step()


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_the_rate_rises_and_falls(schedule):
    settings = TrainingSettings(lr=1.0, warmup=0.1, schedule=schedule, min_lr_ratio=0.1)
    rates = [lr_at(step, 1000, settings) for step in range(1000)]
    assert rates[:100] == sorted(rates[:100])
    assert rates[100] == pytest.approx(1.0)
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    halfway = {"cosine": 0.55, "linear": 0.55, "constant": 1.0}[schedule]
    assert rates[550] == pytest.approx(halfway, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 3, "minutes": 1.0}, "one budget"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"label_smoothing": 2.0}, "label_smoothing must be at least 0.0 and at most 1.0"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(GlassError, match=message):
        TrainingSettings(**settings)


def test_leaps_of_the_loss_are_found():
    noise = [math.sin(i * 7.0) * 0.05 for i in range(200)]
    falling = [3 * 0.99**i + n for i, n in enumerate(noise)]
    assert spikes(falling) == []
    falling[120] += 1.5
    assert spikes(falling) == [120]


def test_times_are_read_by_people():
    assert [format_duration(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]


# --- runs -----------------------------------------------------------------------------------------


def frequency_loss(ids):
    """Nats a token for one who knows only how often each occurs."""
    shares = [count / len(ids) for count in Counter(ids).values()]
    return -sum(share * math.log(share) for share in shares)


def test_a_run_folder_holds_all_that_happened(tmp_path, book):
    told = RecordingReporter()
    result = train(
        "generate", book, run=tmp_path / "run", settings=TINY, steps=30, device="cpu", reporter=told
    )
    run = tmp_path / "run"
    names = {p.name for p in run.iterdir()}
    assert names >= {
        "config.toml", "tokenizer.json", "metrics.jsonl", "train.log", "plots", "env.json",
        "README.md", "best", "last", "cache", "baseline",
    }  # fmt: skip
    drawn = {p.name for p in (run / "plots").iterdir()}
    assert drawn == {"loss.png", "rate.png", "bits_per_byte.png"}
    assert result["bits_per_byte"] < frequency_loss(book.read_text()) / math.log(2)
    assert result["baseline"]["model"] == "markov"
    model = load(run)
    assert model.task["name"] == "generate"
    assert model.tokenizer.decode(model.tokenizer.encode("the cat")) == "the cat"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 30
    assert any("NOT better than n-gram counts" in line for line in told.lines)


def test_a_run_is_not_overwritten_and_nothing_else_is(tmp_path, book):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("mine")
    with pytest.raises(GlassError, match="exists already"):
        Run.create(tmp_path / "mine")
    with pytest.raises(GlassError, match="is no run"):
        Run.create(tmp_path / "mine", overwrite=True)
    assert next_run(tmp_path, "generate") == tmp_path / "generate-1"
    (tmp_path / "generate-1").mkdir()
    assert next_run(tmp_path, "generate") == tmp_path / "generate-2"


@pytest.mark.parametrize("more", [[], ["train.ema_decay=0.9", "model.dropout=0.1"]])
def test_a_run_in_pieces_equals_one_run(tmp_path, book, more, monkeypatch):
    options = {"steps": 24, "device": "cpu", "evaluate_every": 8, "save_every": 6}
    options["precision"] = "float32"
    settings = [*TINY, *more]
    train("generate", book, run=tmp_path / "whole", settings=settings, **options)

    step = Trainer.take_step

    def stopping(self, moment):
        done = step(self, moment)
        self.is_stopping = self.state.step in (7, 15)
        return done

    monkeypatch.setattr(Trainer, "take_step", stopping)
    train("generate", book, run=tmp_path / "pieces", settings=settings, **options)
    resume(tmp_path / "pieces")
    assert json.loads((tmp_path / "pieces/last/training.json").read_text())["step"] == 15
    resume(tmp_path / "pieces")
    for name in ("last", "best"):
        files = (tmp_path / run / name / "model.safetensors" for run in ("whole", "pieces"))
        whole, pieces = (file.read_bytes() for file in files)
        assert whole == pieces


def test_the_best_weights_are_those_of_the_metric_that_was_asked_for(tmp_path):
    """By default the loss; a metric that the task lacks is named before anything is trained."""
    file, small = labelled(tmp_path), ["model.dim=16", "model.heads=1", "model.depth=1"]
    options = {"steps": 30, "evaluate_every": 3, "device": "cpu", "tell": NullReporter()}
    for metric, sign in (("loss", -1), ("accuracy", 1)):
        run = tmp_path / metric
        train(
            "classify", file, run=run, settings=[*small, f"train.best_metric={metric}"], **options
        )
        lines = [m for m in Run(run).metrics() if m["kind"] == "validation"]
        best = max(lines, key=lambda m: sign * m[metric])  # the first, of several
        again = checkpoint.load(run / "best")[0].state_dict()
        last = checkpoint.load(run / "last")[0].state_dict()
        is_last = best["step"] == 30
        assert all(torch.equal(again[n], last[n]) for n in last) == is_last
        state = json.loads((run / "last" / "training.json").read_text())
        assert state["best"] == best[metric]
    for metric, message in (("bleu", "classify has no metric 'bleu'"), ("acuracy", "did you mean")):
        settings = [*small, f"train.best_metric={metric}"]
        with pytest.raises(GlassError, match=message):
            train("classify", file, run=tmp_path / "x", settings=settings, **options)
        assert not (tmp_path / "x").exists()


def test_a_run_that_gets_no_better_stops_by_itself(tmp_path, book):
    """After half of its evaluations, and at least five."""
    options = {"settings": TINY, "steps": 100, "lr": 0.0, "device": "cpu"}
    result = train("generate", book, run=tmp_path / "run", **options)
    assert result["steps"] == 60  # the first of ten evaluations is the best
    kept = train("generate", book, run=tmp_path / "never", patience=0, **options)
    assert kept["steps"] == 100


def test_patience_ends_a_run_that_no_longer_learns(tmp_path, book):
    settings = [*TINY, "train.patience=2", "train.lr=0.0"]
    result = train(
        "generate", book, run=tmp_path / "run", settings=settings, steps=100, evaluate_every=5,
        device="cpu",
    )  # fmt: skip
    assert result["steps"] == 15


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, book):
    process = subprocess.Popen(
        [*COMMAND, "train", "generate", str(book), "--run", "run", "--steps", "100000",
         "--save-every", "5", "--threads", "1", *[x for s in TINY for x in ("--set", s)]],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_steps(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert "glass resume run" in said
    assert saved_step(tmp_path / "run") >= 5
    load(tmp_path / "run" / "last")


# --- every task -----------------------------------------------------------------------------------


def labelled(tmp_path):
    file = tmp_path / "reviews.csv"
    good, on_bad_row = "a wonderful and lovely film", "a terrible and boring film"
    rows = [f"{i} {good if i % 2 else on_bad_row},{'pos' if i % 2 else 'neg'}" for i in range(200)]
    file.write_text("text,label\n" + "\n".join(rows))
    return file


def paired(tmp_path):
    file, words = tmp_path / "pairs.tsv", "one two three four five".split()
    other = dict(zip(words, "eins zwei drei vier fuenf".split(), strict=True))
    rows = []
    for i in range(625):
        said = [words[i // 5**k % 5] for k in range(4)]
        rows.append(" ".join(said) + "\t" + " ".join(other[w] for w in said))
    file.write_text("\n".join(rows))
    return file


def test_a_pass_asks_for_as_many_predictions_as_are_said(tmp_path):
    for name, file in (("classify", labelled(tmp_path)), ("translate", paired(tmp_path))):
        (tmp_path / name).mkdir()
        task = task_on(name, DataRequest(files=(file,)), tmp_path / name)
        batches = task.dataset.train_batches(1, None, 0)
        counts = [task.objective.count(batches.at(step)) for step in range(batches.per_epoch)]
        assert sum(counts) == task.dataset.predictions


@torch.no_grad()
def test_a_text_is_read_in_windows_of_a_context(tmp_path, book):
    network = CASES["gpt2"].network
    task = task_on("generate", DataRequest(files=(book,)), tmp_path)
    text = torch.from_numpy(task.dataset.valid.read(0, task.dataset.valid.size))
    last = len(text) - 1
    nats = [math.log(network.config.vocab)]  # for the first
    for at in range(0, last, 7):
        logits = network(text[None, at : min(at + 7, last)])[0]
        nats.append(float(F.cross_entropy(logits, text[at + 1 : at + 8], reduction="sum")))
    found = [task.evaluate(network, context=context)[1].sums for context in (7, 5)]
    assert found[0]["tokens"] == len(text)
    assert found[0]["nats"] == pytest.approx(sum(nats), rel=1e-5)
    assert found[1]["nats"] != pytest.approx(sum(nats), rel=1e-4)


@torch.no_grad()
def test_what_is_fitted_reads_a_text_as_one(tmp_path, book, monkeypatch):
    """Its long windows overlap by more than it looks back, so that no token lacks its context."""
    monkeypatch.setattr("glassformer.tasks.generate.FITTED_WINDOW", 50)
    network = CASES["markov"].network
    task = task_on("generate", DataRequest(files=(book,)), tmp_path)
    text = torch.from_numpy(task.dataset.valid.read(0, task.dataset.valid.size))
    nats = math.log(network.config.vocab) - float(network.target_probs(text).double().log().sum())
    assert task.evaluate(network)[1].sums["nats"] == pytest.approx(nats, rel=1e-6)
    whole = token_nats(network, text[None, :-1], text[None, 1:])
    assert whole == pytest.approx(nats - math.log(network.config.vocab), rel=1e-6)


def test_bits_for_each_byte_are_counted_with_what_is_unknown(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("ab" * 900 + "aZ" * 100)  # the Z stands only in the last tenth
    fresh = DataRequest(files=(file,), base_tokenizer=Characters.train(["ab"]), valid_fraction=1.0)
    (tmp_path / "fresh").mkdir()
    task = task_on("generate", fresh, tmp_path / "fresh")

    class Uniform(Network):
        def __init__(self):
            super().__init__(CASES["gpt2"].network.config)
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, ids):
            return torch.zeros(*ids.shape, 50)

    known, _ = task_on("generate", DataRequest(files=(file,)), tmp_path).evaluate(Uniform())
    assert known["loss"] == pytest.approx(math.log(50), rel=1e-5)  # it knows every character
    figures, _ = task.evaluate(Uniform())
    nats = 2000 * math.log(50) + 100 * math.log(0x110000)
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / 2000, rel=1e-5)
    assert figures["loss"] == pytest.approx(nats / 2000, rel=1e-5)


@pytest.mark.parametrize("model", ["classifier", "bert"])
def test_a_classifier_learns_to_tell_labels_apart(tmp_path, model):
    settings = ["model.dim=32", "model.depth=1", "model.heads=2", "train.lr=3e-3"]
    result = train("classify", labelled(tmp_path), run=tmp_path / "run", settings=settings,
                   model=model, steps=40, device="cpu")  # fmt: skip
    assert result["accuracy"] == 1.0
    assert result["f1"] == 1.0
    assert load(tmp_path / "run").task["labels"] == ["neg", "pos"]


def test_a_translator_learns_words(tmp_path):
    settings = ["model.dim=64", "model.depth=1", "model.heads=2", "model.hidden=128",
                "model.dropout=0.0", "train.lr=3e-3"]  # fmt: skip
    result = train("translate", paired(tmp_path), run=tmp_path / "run", settings=settings,
                   tokenizer="words", steps=150, device="cpu")  # fmt: skip
    assert result["exact"] > 0.9
    assert result["chrf"] > 95
    assert result["baseline"]["chrf"] > 30  # word for word is easy here


def test_bert_learns_to_fill_masks(tmp_path, book):
    result = train(
        "fill-mask",
        book,
        run=tmp_path / "run",
        vocab=80,
        settings=[*TINY, "train.batch_size=16", "model.depth=2", "model.heads=8"],
        lr=5e-3,
        steps=200,
        device="cpu",
    )
    artifacts = Artifacts(tokenizer=load(tmp_path / "run").tokenizer)
    text = TASKS["fill-mask"].open(artifacts, tmp_path / "run" / "cache").dataset.train
    assert result["loss"] < frequency_loss(text.read(0, text.size).tolist()) * 0.7


def test_bert_learns_which_halves_belong_together(tmp_path):
    topics = ["cat dog cow pig", "red blue pink grey", "one two six ten", "sun rain snow wind"]
    file = tmp_path / "topics.txt"
    file.write_text(" ".join(" ".join([topics[i % 4]] * 40) for i in range(60)))
    result = train(
        "fill-mask", file, run=tmp_path / "run", vocab=100, steps=450, lr=3e-3, device="cpu",
        settings=[*TINY, "train.batch_size=16", "model.heads=4", "model.depth=2"], baseline=False,
        share=0.5,
    )  # fmt: skip
    assert result["next_accuracy"] > 0.7


def test_halves_follow_or_come_from_elsewhere(tmp_path, book):
    dataset = task_on("fill-mask", DataRequest(files=(book,), vocab=80), tmp_path).dataset
    batches, task = dataset.train_batches(64, 32, 0), dataset.mask
    is_next = torch.cat([batches.at(step)["is_next"] for step in range(60)])
    assert is_next.float().mean() == pytest.approx(0.5, abs=0.02)
    ids = 10 + torch.arange(29).expand(50, -1)
    others = 100 + ids
    text, segments, together = task.pair(ids, others, np.random.default_rng(0))
    for row, second, follow in zip(text, segments.bool(), together, strict=True):
        words = row[(row != task.first) & (row != task.last)]
        cut = int((~second).sum()) - 2
        assert row[0] == task.first
        assert row[cut + 1] == row[-1] == task.last
        assert words[:cut].tolist() == list(range(10, cut + 10))
        apart = words[cut:] - torch.arange(cut, 29) - 10
        assert apart.unique().tolist() == [0 if follow else 100]


def test_tokens_are_hidden_as_bert_hides_them(tmp_path, book):
    dataset = task_on("fill-mask", DataRequest(files=(book,), vocab=80), tmp_path).dataset
    batches, task = dataset.train_batches(64, 32, 0), dataset.mask
    shown, answers = [], []
    for step in range(60):
        batch = batches.at(step)
        shown.append(batch["ids"])
        answers.append(batch["targets"])
    shown, answers = torch.cat(shown), torch.cat(answers)
    masked_positions = answers >= 0
    assert masked_positions[:, 1:-1].float().mean() == pytest.approx(0.15, abs=0.01)
    assert not masked_positions[:, [0, -1]].any()
    assert (shown[masked_positions] == task.mask).float().mean() == pytest.approx(0.8, abs=0.02)
    kept = (shown[masked_positions] == answers[masked_positions]).float().mean()
    assert kept == pytest.approx(0.1, abs=0.02)
    assert torch.equal(batches.at(5)["ids"], batches.at(5)["ids"])


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_sample_that_needs_no_data(name, tmp_path):
    told = RecordingReporter()
    task = task_on(name, DataRequest(), tmp_path, told)
    assert told.lines
    batches = task.dataset.train_batches(2, 64, 0)
    assert task.objective.count(batches.at(0)) > 0
    assert batches.per_epoch > 1
    assert task.spec.baseline_model in task.spec.models
    assert task.dataset.size > 1000
    assert task.dataset.eval_size > 10


def test_bad_rows_are_skipped_counted_and_noted(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f"text number {i},{'x' if i % 2 else 'y'}" for i in range(100)]
    rows[10], rows[20] = "ragged", "no label,"
    file.write_text("text,label\n" + "\n".join(rows))
    with pytest.raises(GlassError, match=r"a.csv:12: 1 columns where there should be 2"):
        train("classify", file, run=tmp_path / "strict")
    told = RecordingReporter()
    train(
        "classify",
        file,
        run=tmp_path / "run",
        skip_bad=True,
        reporter=told,
        settings=["model.dim=8", "model.heads=1", "model.depth=1"],
        steps=2,
        device="cpu",
    )
    noted = (tmp_path / "run" / "skipped.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in noted]
    assert reasons == ["1 columns where there should be 2", "the label is empty"]
    assert any("2 bad rows were skipped" in line for line in told.lines)


def test_what_cannot_be_learnt_is_said(tmp_path):
    file = tmp_path / "a.txt"
    for content, message in (("", "the files are empty"), ("short", "too few for a window")):
        file.write_text(content)
        with pytest.raises(GlassError, match=message):
            train("generate", file, run=tmp_path / f"run{len(content)}")
    with pytest.raises(GlassError, match="unknown task 'generat'; did you mean 'generate'"):
        train("generat", run=tmp_path / "x")
    file.write_text("some text " * 500)
    assert not list(tmp_path.glob("run*"))  # what could not start leaves no litter
    with pytest.raises(GlassError, match=r"generate is done by gpt2, generator, .*, not by 'bert'"):
        train("generate", file, run=tmp_path / "b", model="bert")
    with pytest.raises(GlassError, match="does not preserve spaces"):
        train("generate", file, run=tmp_path / "w", tokenizer="words")
    for settings, message in (
        (["dim=3"], "must start with model. or train."),
        (["model.dims=3"], "no setting 'dims'"),
        (["train.lr=fast"], "rate must be a number"),
    ):
        with pytest.raises(GlassError, match=message):
            train("generate", file, run=tmp_path / message[:6], settings=settings)


def test_figures_can_be_looked_at_in_tensorboard(tmp_path, book):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(
        "generate", book, run=tmp_path / "run", steps=4, device="cpu", precision="float32",
        settings=[*TINY, "train.tensorboard=true"],
    )  # fmt: skip
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {"training/loss", "validation/bits_per_byte"} <= set(events.Tags()["scalars"])
    assert [e.step for e in events.Scalars("training/loss")] == [1, 2, 3, 4]


def test_files_to_validate_on_are_named(tmp_path):
    file, other = labelled(tmp_path), tmp_path / "other.csv"
    text = file.read_text().splitlines()
    other.write_text("\n".join([text[0], *text[1:11], *(f"new {line}" for line in text[1:31])]))
    told = RecordingReporter()
    result = train(
        "classify", file, valid=[other], run=tmp_path / "run", steps=2, device="cpu", reporter=told,
        settings=["model.dim=8", "model.heads=1", "model.depth=1"],
    )  # fmt: skip
    assert result["examples"] == 40
    assert "200 texts for training, 40 for validation" in told.lines
    assert any(line.startswith("data leak: 10 of the validation texts") for line in told.lines)
    pairs = tmp_path / "p.tsv"
    pairs.write_text(paired(tmp_path).read_text())
    small = ["model.dim=8", "model.heads=1", "model.depth=1", "model.hidden=8"]
    result = train("translate", pairs, valid=[pairs], run=tmp_path / "t", steps=1, settings=small,
                   device="cpu", reporter=told)  # fmt: skip
    assert result["examples"] == 625
    assert any(line.startswith("data leak: 625 of the validation sources") for line in told.lines)
    text = tmp_path / "b.txt"
    text.write_text("other words are here to be read\n" * 9)
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat. " * 100)
    result = train("generate", book, valid=text, run=tmp_path / "g", steps=1, settings=TINY,
                   device="cpu", reporter=told)  # fmt: skip
    assert result["bytes"] == text.stat().st_size
