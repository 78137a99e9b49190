"""The training loop: accumulation, checkpointing, schedules, stopping and resuming."""

import copy
import json
import math
import re
import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
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
from glassformer.core.world import World
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.nn.block import enable_checkpointing
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.generate import GenerateObjective, token_nats
from glassformer.tasks.task import Artifacts
from glassformer.text.plain import Characters
from glassformer.training import recovery
from glassformer.training.autotune import Autotune
from glassformer.training.budget import StepBudget
from glassformer.training.checkpointer import Checkpointer
from glassformer.training.evaluator import format_metrics
from glassformer.training.optimizers import EMA, adamw
from glassformer.training.plots import find_spikes
from glassformer.training.resume import resume
from glassformer.training.run import Run, next_run
from glassformer.training.settings import TrainingSettings, lr_at
from glassformer.training.setup import format_budget
from glassformer.training.step import Step
from glassformer.training.train import train
from glassformer.training.trainer import Trainer

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "model.context=32", "train.batch_size=4"]


def small_trainer(tmp_path, book, **settings):
    run = Run.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
    task = open_task("generate", DataRequest(files=(book,)), run.cache)
    options = TrainingSettings(**{"steps": 20, "device": "cpu", "precision": "float32", **settings})
    torch.manual_seed(0)
    kind, vocab = MODELS["gpt2"], task.artifacts.tokenizer.vocab
    config = kind.Config(vocab=vocab, context=16, dim=32, depth=2, heads=2, dropout=0.0)
    return make_trainer(kind(config), task, options, run)


def open_task(name, request, folder, reporter=None):
    spec = TASKS[name]
    return spec.open(spec.prepare(request, folder, reporter or NullReporter()), folder)


def make_trainer(network, task, settings, run):
    batches = task.dataset.train_batches(settings.batch, network.context, settings.seed)
    step, budget = Step(network, task.objective, settings), StepBudget(settings.steps)
    return Trainer(step, task, batches, budget, Checkpointer(run, task), NullReporter())


def take_step(trainer):
    return trainer.take_step(trainer.budget.begin(trainer.state.step))


def weights_of(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()])


# --- the step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 5, 99])
def test_micro_batches_give_the_same_step_as_the_full_batch(tmp_path, book, count):
    full = small_trainer(tmp_path, book, batch_size=32)
    split = small_trainer(tmp_path, book, batch_size=32, accumulate=count)
    expected, result = take_step(full), take_step(split)
    assert expected.loss == pytest.approx(result.loss, abs=1e-5)
    assert expected.grad_norm == pytest.approx(result.grad_norm, abs=1e-5)
    assert expected.count == result.count
    torch.testing.assert_close(
        weights_of(full.network), weights_of(split.network), atol=1e-6, rtol=1e-5
    )


class Threads(World):
    """Processes as threads: each adds its values to those of the others."""

    def __init__(self, rank, values, barrier):
        super().__init__(rank, len(values))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "barrier", barrier)

    def all_reduce(self, value):
        self.barrier.wait()
        self.values[self.rank] = value
        self.barrier.wait()
        return sum(self.values)


def test_two_processes_take_the_same_step_as_one(tmp_path, book):
    single = small_trainer(tmp_path, book, batch_size=7)
    expected, batch = take_step(single), single.batches.at(0)
    values, barrier = [None, None], threading.Barrier(2, timeout=60)
    networks = [small_trainer(tmp_path, book, batch_size=7).network for _ in values]

    def train_one(rank):
        world = Threads(rank, values, barrier)
        step = Step(networks[rank], single.task.objective, single.settings, world)
        return step(batch, expected.lr, 0)

    with ThreadPoolExecutor(2) as pool:
        results = [*pool.map(train_one, range(2))]
    for network, result in zip(networks, results, strict=True):
        assert result.count == expected.count
        assert result.loss == pytest.approx(expected.loss, abs=1e-5)
        assert result.grad_norm == pytest.approx(expected.grad_norm, abs=1e-5)
        close = torch.testing.assert_close
        close(weights_of(network), weights_of(single.network), atol=1e-5, rtol=1e-5)


def test_micro_batches_are_weighted_by_their_predictions(tmp_path):
    """With sentences of different lengths, the mean of the means would be another number."""
    file, gradients = tmp_path / "pairs.tsv", []
    file.write_text("\n".join(f"{'a ' * (i % 9)}b\t{'x ' * (i % 7)}{i} y" for i in range(80)))
    kind = MODELS["translator"]
    for count in (1, 3):
        run = Run.create(tmp_path / f"run{count}")
        task = open_task("translate", DataRequest(files=(file,)), run.cache)
        torch.manual_seed(0)
        vocab = task.artifacts.tokenizer.vocab
        config = kind.Config(vocab=vocab, dim=16, depth=1, heads=2, hidden=16, dropout=0.0)
        settings = TrainingSettings(
            steps=9, device="cpu", precision="float32", accumulate=count, batch_tokens=1024
        )
        trainer = make_trainer(kind(config), task, settings, run)
        batch, (optimizer,) = trainer.batches.at(0), trainer.step.optimizers.values()
        trainer.step.backward(batch, trainer.step.make_loss_generators(batch), optimizer)
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.network.parameters()]))
    torch.testing.assert_close(*gradients, atol=1e-7, rtol=1e-5)


def test_activation_checkpointing_does_not_change_the_weights(tmp_path, book):
    plain, recomputed = (small_trainer(tmp_path, book, checkpointing=c) for c in (False, True))
    for _ in range(3):
        take_step(plain)
        take_step(recomputed)
    torch.testing.assert_close(weights_of(plain.network), weights_of(recomputed.network))
    network = copy.deepcopy(CASES["gpt2"].network)
    enable_checkpointing(network)
    text = ids()
    assert torch.equal(network(text), CASES["gpt2"].network(text))


def test_only_matrices_have_weight_decay(tmp_path, book):
    network = copy.deepcopy(CASES["gpt2"].network)
    optimizer = adamw(network, TrainingSettings(weight_decay=0.3), None)
    decays = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    for name, parameter in network.named_parameters():
        assert decays[id(parameter)] == (0.3 if parameter.ndim >= 2 else 0.0), name
    assert optimizer.defaults["fused"]


def test_adamw_follows_the_formulas_of_its_paper():
    """Compares five steps of the optimizer with the formulas, written out."""
    network = Network(None)
    network.add_module("layer", torch.nn.Linear(3, 2))
    settings = TrainingSettings(lr=0.1, weight_decay=0.2, beta2=0.95)
    optimizer = adamw(network, settings, None)
    expected = {name: p.detach().double().clone() for name, p in network.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in expected.items()}
    second = {name: torch.zeros_like(value) for name, value in expected.items()}
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
            expected[name] -= 0.1 * (decay * expected[name] + mean / (square.sqrt() + 1e-8))
        optimizer.step()
    for name, p in network.named_parameters():
        torch.testing.assert_close(p.double(), expected[name], atol=1e-6, rtol=1e-5)


def test_the_gradient_is_clipped(tmp_path, book):
    trainer = small_trainer(tmp_path, book, clip=0.01, weight_decay=0.0)
    norms = []
    (optimizer,) = trainer.step.optimizers.values()
    step = optimizer.step

    def record_norm(*args, **options):
        norms.append(
            math.sqrt(sum(float(p.grad.square().sum()) for p in trainer.network.parameters()))
        )
        return step(*args, **options)

    optimizer.step = record_norm
    assert take_step(trainer).grad_norm > 0.01
    assert norms[0] == pytest.approx(0.01, rel=1e-3)


def test_averaged_weights_follow_by_their_decay():
    network = copy.deepcopy(CASES["gpt2"].network)
    average = EMA(network, 0.9)
    before = weights_of(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    average.update(network, 1000)
    torch.testing.assert_close(weights_of(average.network), before + 0.1)


def test_averaged_weights_follow_quickly_at_first():
    """Otherwise the initial weights would dominate the average."""
    network = copy.deepcopy(CASES["gpt2"].network)
    average, before = EMA(network, 0.999), weights_of(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    average.update(network, 1)
    torch.testing.assert_close(weights_of(average.network), before + 1 - 2 / 11)


def test_rolling_back_keeps_the_best_metric_and_the_time_spent(tmp_path, book):
    trainer = small_trainer(tmp_path, book)
    take_step(trainer)
    trainer.save()
    take_step(trainer)
    trainer.state.best, trainer.state.seconds = 1.25, 7.5
    recovery.reload_checkpoint(trainer)
    assert (trainer.state.step, trainer.state.best, trainer.state.seconds) == (1, 1.25, 7.5)


def test_a_run_that_stopped_early_can_be_extended(tmp_path, book):
    options = {"lr": 0.0, "patience": 1, "evaluate_every": 4, "device": "cpu", "steps": 40}
    result = train(
        "generate",
        book,
        prior=False,
        run=tmp_path / "run",
        settings=TINY,
        reporter=NullReporter(),
        **options,
    )
    assert result["steps"] == 8
    assert resume(tmp_path / "run", NullReporter(), steps=60)["steps"] > 8


def test_evaluation_is_without_dropout_and_training_continues_with_it(tmp_path, book, monkeypatch):
    trainer, modes = small_trainer(tmp_path, book, ema_decay=0.5), []
    scores = GenerateObjective.scores

    def record_mode(self, network, batch):
        modes.append(network.training)
        return scores(self, network, batch)

    monkeypatch.setattr(GenerateObjective, "scores", record_mode)
    trainer.network.train()
    trainer.evaluate()
    assert modes
    assert not any(modes)
    assert trainer.network.training
    trainer.step.ema = None
    modes.clear()
    trainer.evaluate()
    assert modes
    assert not any(modes)
    assert trainer.network.training


def test_trial_steps_change_neither_weights_nor_random_numbers(tmp_path, book):
    trainer = small_trainer(tmp_path, book)
    weights, rng_state = weights_of(trainer.network).clone(), torch.get_rng_state()
    network, task = trainer.network, trainer.task

    def losses_with_dropout(*args, **options):
        torch.rand(3)  # as dropout does
        yield from losses(*args, **options)

    losses, task.objective.losses = task.objective.losses, losses_with_dropout
    autotune = Autotune(network, task, trainer.batches, NullReporter())
    assert autotune.time_step(replace(trainer.settings, lr=1.0), rounds=2) > 0
    assert autotune.decide(replace(trainer.settings, steps=None, minutes=0.1)).eval_limit > 0
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert torch.equal(weights_of(network), weights)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        ("cosine", lambda o: schedulers.CosineAnnealingLR(o, 100, eta_min=0.2)),
        ("linear", lambda o: schedulers.LinearLR(o, 1.0, 0.1, 100)),
    ],
)
def test_schedules_equal_those_of_torch(schedule, theirs):
    settings = TrainingSettings(lr=2.0, warmup=0.0, schedule=schedule, min_lr_ratio=0.1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    reference = theirs(optimizer)
    for step in range(100):
        assert lr_at(step, 100, settings) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_the_learning_rate_rises_and_falls(schedule):
    settings = TrainingSettings(lr=1.0, warmup=0.1, schedule=schedule, min_lr_ratio=0.1)
    lrs = [lr_at(step, 1000, settings) for step in range(1000)]
    assert lrs[:100] == sorted(lrs[:100])
    assert lrs[100] == pytest.approx(1.0)
    assert lrs[100:] == sorted(lrs[100:], reverse=True)
    assert lrs[-1] == pytest.approx(0.1, abs=0.01)
    halfway = {"cosine": 0.55, "linear": 0.55, "constant": 1.0}[schedule]
    assert lrs[550] == pytest.approx(halfway, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 3, "minutes": 1.0}, "one budget"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"label_smoothing": 2.0}, "label_smoothing must be at least 0.0 and at most 1.0"),
    ],
)
def test_errors_name_invalid_settings(settings, message):
    with pytest.raises(GlassError, match=message):
        TrainingSettings(**settings)


def test_spikes_of_the_loss_are_found():
    noise = [math.sin(i * 7.0) * 0.05 for i in range(200)]
    falling = [3 * 0.99**i + n for i, n in enumerate(noise)]
    assert find_spikes(falling) == []
    falling[120] += 1.5
    assert find_spikes(falling) == [120]


def test_durations_are_formatted_with_minutes_and_hours():
    assert [format_duration(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]


# --- runs -----------------------------------------------------------------------------------------


def frequency_loss(ids):
    """Nats per token of a unigram model: the entropy of the token frequencies."""
    probs = [count / len(ids) for count in Counter(ids).values()]
    return -sum(prob * math.log(prob) for prob in probs)


def test_a_run_folder_holds_all_files_of_a_run(tmp_path, book):
    reporter = RecordingReporter()
    result = train(
        "generate",
        book,
        prior=False,
        run=tmp_path / "run",
        settings=TINY,
        steps=30,
        device="cpu",
        reporter=reporter,
    )
    run = tmp_path / "run"
    names = {p.name for p in run.iterdir()}
    assert names >= {
        "config.toml", "tokenizer.json", "metrics.jsonl", "train.log", "plots", "env.json",
        "README.md", "best", "last", "cache", "baseline",
    }  # fmt: skip
    plots = {p.name for p in (run / "plots").iterdir()}
    assert plots == {"loss.png", "lr.png", "bits_per_byte.png"}
    assert result["bits_per_byte"] < frequency_loss(book.read_text()) / math.log(2)
    assert result["baseline"]["model"] == "markov"
    model = load(run)
    assert model.task["name"] == "generate"
    assert model.tokenizer.decode(model.tokenizer.encode("the cat")) == "the cat"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 30
    assert any("NOT better than the baseline" in line for line in reporter.lines)


def test_progress_labels_every_number(tmp_path, book):
    trainer = small_trainer(tmp_path, book)
    trainer.baseline, trainer.state.best = {"bits_per_byte": 2.5}, 1.25
    lines = []
    trainer.reporter.status = lines.append
    trainer.report(take_step(trainer))
    pattern = (
        r"step 1/20  train loss \d\.\d{3}  best valid loss 1\.25  \(baseline bits per byte 2\.5\)  "
        r"lr \d\.\de-\d\d  grad norm \d+\.\d\d  [\d,]+ tokens/s  \d+\.\d GB  ETA \d+:\d\d"
    )
    assert re.fullmatch(pattern, lines[0]), lines[0]
    metrics = {"loss": 0.61891, "exact": 0.0, "bleu": 4.12, "chrf": 30.14, "examples": 3}
    assert format_metrics(metrics) == "valid loss 0.6189  exact match 0.0%  BLEU 4.1  chrF 30.1"
    settings = (TrainingSettings(minutes=1.0), TrainingSettings(minutes=0.5))
    assert [format_budget(s) for s in settings] == ["1 minute", "0.5 minutes"]


def test_existing_folders_are_not_overwritten(tmp_path, book):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("mine")
    with pytest.raises(GlassError, match="already exists"):
        Run.create(tmp_path / "mine")
    with pytest.raises(GlassError, match="is not a run folder"):
        Run.create(tmp_path / "mine", overwrite=True)
    assert next_run(tmp_path, "generate") == tmp_path / "generate-1"
    (tmp_path / "generate-1").mkdir()
    assert next_run(tmp_path, "generate") == tmp_path / "generate-2"


@pytest.mark.parametrize("extra", [[], ["train.ema_decay=0.9", "model.dropout=0.1"]])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_run(tmp_path, book, extra, monkeypatch):
    options = {"steps": 24, "device": "cpu", "evaluate_every": 8, "save_every": 6}
    options["precision"] = "float32"
    settings = [*TINY, *extra]
    train("generate", book, run=tmp_path / "reference", settings=settings, **options)

    take_step = Trainer.take_step

    def take_step_and_stop(self, moment):
        result = take_step(self, moment)
        self.is_stopping = self.state.step in (7, 15)
        return result

    monkeypatch.setattr(Trainer, "take_step", take_step_and_stop)
    train("generate", book, run=tmp_path / "stopped", settings=settings, **options)
    resume(tmp_path / "stopped")
    assert json.loads((tmp_path / "stopped/last/training.json").read_text())["step"] == 15
    resume(tmp_path / "stopped")
    for name in ("last", "best"):
        files = (tmp_path / run / name / "model.safetensors" for run in ("reference", "stopped"))
        expected, resumed = (file.read_bytes() for file in files)
        assert expected == resumed


def test_the_best_weights_are_chosen_by_best_metric(tmp_path):
    """By default the loss; a metric that the task lacks is rejected before training."""
    file, small = write_reviews(tmp_path), ["model.dim=16", "model.heads=1", "model.depth=1"]
    options = {"steps": 30, "evaluate_every": 3, "device": "cpu", "reporter": NullReporter()}
    for metric, sign in (("loss", -1), ("accuracy", 1)):
        run = tmp_path / metric
        train(
            "classify",
            file,
            run=run,
            model="classifier",
            settings=[*small, f"train.best_metric={metric}"],
            **options,
        )
        lines = [m for m in Run(run).metrics() if m["kind"] == "validation"]
        best = max(lines, key=lambda m: sign * m[metric])  # the first, of several
        saved = checkpoint.load(run / "best")[0].state_dict()
        last = checkpoint.load(run / "last")[0].state_dict()
        is_last = best["step"] == 30
        assert all(torch.equal(saved[n], last[n]) for n in last) == is_last
        state = json.loads((run / "last" / "training.json").read_text())
        assert state["best"] == best[metric]
    for metric, message in (("bleu", "classify has no metric 'bleu'"), ("acuracy", "did you mean")):
        settings = [*small, f"train.best_metric={metric}"]
        with pytest.raises(GlassError, match=message):
            train(
                "classify",
                file,
                run=tmp_path / "x",
                model="classifier",
                settings=settings,
                **options,
            )
        assert not (tmp_path / "x").exists()


def test_a_run_that_does_not_improve_stops_early_by_default(tmp_path, book):
    """After half of its evaluations, and at least five."""
    options = {"settings": TINY, "steps": 100, "lr": 0.0, "device": "cpu"}
    result = train("generate", book, prior=False, run=tmp_path / "run", **options)
    assert result["steps"] == 60  # the first of ten evaluations is the best
    result = train("generate", book, prior=False, run=tmp_path / "never", patience=0, **options)
    assert result["steps"] == 100


def test_patience_stops_a_run_that_does_not_improve(tmp_path, book):
    settings = [*TINY, "train.patience=2", "train.lr=0.0"]
    result = train(
        "generate", book, prior=False, run=tmp_path / "run", settings=settings, steps=100,
        evaluate_every=5, device="cpu",
    )  # fmt: skip
    assert result["steps"] == 15


def test_ctrl_c_saves_and_prints_how_to_resume(tmp_path, book):
    process = subprocess.Popen(
        [*COMMAND, "train", "generate", str(book), "--run", "run", "--steps", "100000",
         "--save-every", "5", "--threads", "1", *[x for s in TINY for x in ("--set", s)]],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_steps(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert "glass resume run" in errors
    assert saved_step(tmp_path / "run") >= 5
    load(tmp_path / "run" / "last")


# --- every task -----------------------------------------------------------------------------------


def write_reviews(tmp_path):
    file = tmp_path / "reviews.csv"
    good, bad = "a wonderful and lovely film", "a terrible and boring film"
    rows = [f"{i} {good if i % 2 else bad},{'pos' if i % 2 else 'neg'}" for i in range(200)]
    file.write_text("text,label\n" + "\n".join(rows))
    return file


def write_pairs(tmp_path):
    file, words = tmp_path / "pairs.tsv", "one two three four five".split()
    german = dict(zip(words, "eins zwei drei vier fuenf".split(), strict=True))
    rows = []
    for i in range(625):
        source = [words[i // 5**k % 5] for k in range(4)]
        rows.append(" ".join(source) + "\t" + " ".join(german[w] for w in source))
    file.write_text("\n".join(rows))
    return file


def test_predictions_of_an_epoch_are_counted_exactly(tmp_path):
    for name, file in (("classify", write_reviews(tmp_path)), ("translate", write_pairs(tmp_path))):
        (tmp_path / name).mkdir()
        task = open_task(name, DataRequest(files=(file,)), tmp_path / name)
        batches = task.dataset.train_batches(1024, None, 0)
        counts = [task.objective.count(batches.at(step)) for step in range(batches.per_epoch)]
        assert sum(counts) == task.dataset.n_targets


@torch.no_grad()
def test_running_text_is_evaluated_in_windows_of_the_context(tmp_path, book):
    network = CASES["gpt2"].network
    task = open_task("generate", DataRequest(files=(book,)), tmp_path)
    text = torch.from_numpy(task.dataset.valid.read(0, task.dataset.valid.size))
    last = len(text) - 1
    nats = [math.log(network.config.vocab)]  # for the first token
    for start in range(0, last, 7):
        logits = network(text[None, start : min(start + 7, last)])[0]
        nats.append(float(F.cross_entropy(logits, text[start + 1 : start + 8], reduction="sum")))
    sums = [task.evaluate(network, context=context)[1].sums for context in (7, 5)]
    assert sums[0]["tokens"] == len(text)
    assert sums[0]["nats"] == pytest.approx(sum(nats), rel=1e-5)
    assert sums[1]["nats"] != pytest.approx(sum(nats), rel=1e-4)


@torch.no_grad()
def test_fitted_models_are_evaluated_with_the_full_context_of_every_token(
    tmp_path, book, monkeypatch
):
    """Their long windows overlap by more than the model looks back."""
    monkeypatch.setattr("glassformer.tasks.generate.FITTED_WINDOW", 50)
    network = CASES["markov"].network
    task = open_task("generate", DataRequest(files=(book,)), tmp_path)
    text = torch.from_numpy(task.dataset.valid.read(0, task.dataset.valid.size))
    nats = math.log(network.config.vocab) - float(network.target_probs(text).double().log().sum())
    assert task.evaluate(network)[1].sums["nats"] == pytest.approx(nats, rel=1e-6)
    total = token_nats(network, {"ids": text[None, :-1], "targets": text[None, 1:]})
    expected = nats - math.log(network.config.vocab)
    assert float(total.sum()) == pytest.approx(expected, rel=1e-6)


def test_bits_per_byte_include_the_cost_of_unknown_characters(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("ab" * 900 + "aZ" * 100)  # Z occurs only in the last tenth
    request = DataRequest(
        files=(file,),
        base_tokenizer=Characters.train(["ab"]),
        valid_fraction=1.0,
        is_evaluation=True,
    )
    (tmp_path / "unknown").mkdir()
    task = open_task("generate", request, tmp_path / "unknown")

    class Uniform(Network):
        def __init__(self):
            super().__init__(CASES["gpt2"].network.config)
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, ids):
            return torch.zeros(*ids.shape, 50)

    known, _ = open_task("generate", DataRequest(files=(file,)), tmp_path).evaluate(Uniform())
    assert known["loss"] == pytest.approx(math.log(50), rel=1e-5)  # it knows every character
    metrics, _ = task.evaluate(Uniform())
    nats = 2000 * math.log(50) + 100 * math.log(0x110000)
    assert metrics["bits_per_byte"] == pytest.approx(nats / math.log(2) / 2000, rel=1e-5)
    assert metrics["loss"] == pytest.approx(nats / 2000, rel=1e-5)


@pytest.mark.parametrize("model", ["classifier", "bert"])
def test_a_classifier_learns_the_labels(tmp_path, model):
    settings = ["model.dim=32", "model.depth=1", "model.heads=2", "train.lr=3e-3"]
    result = train("classify", write_reviews(tmp_path), run=tmp_path / "run", settings=settings,
                   model=model, steps=40, device="cpu")  # fmt: skip
    assert result["accuracy"] == 1.0
    assert result["f1"] == 1.0
    assert load(tmp_path / "run").task["labels"] == ["neg", "pos"]


@pytest.mark.parametrize(
    ("model", "lr", "steps"), [("translator", 3e-3, 150), ("speedrun_translator", 0.02, 300)]
)
def test_a_translator_learns_words(tmp_path, model, lr, steps):
    settings = ["model.dim=64", "model.depth=1", "model.heads=2", "model.hidden=128",
                "model.dropout=0.0", "train.batch_tokens=2048", f"train.lr={lr}"]  # fmt: skip
    result = train("translate", write_pairs(tmp_path), run=tmp_path / "run", settings=settings,
                   model=model, tokenizer="words", steps=steps, device="cpu")  # fmt: skip
    assert result["exact"] > 0.9
    assert result["chrf"] > 95
    assert result["baseline"]["chrf"] > 30  # translating word by word is easy here


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


def test_bert_learns_next_sentence_prediction(tmp_path):
    topics = ["cat dog cow pig", "red blue pink gray", "one two six ten", "sun rain snow wind"]
    file = tmp_path / "topics.txt"
    file.write_text(" ".join(" ".join([topics[i % 4]] * 40) for i in range(60)))
    result = train(
        "fill-mask", file, run=tmp_path / "run", vocab=100, steps=450, lr=3e-3, device="cpu",
        settings=[*TINY, "train.batch_size=16", "model.heads=4", "model.depth=2"], baseline=False,
        valid_fraction=0.5,
    )  # fmt: skip
    assert result["next_accuracy"] > 0.7


def test_second_halves_follow_the_first_or_come_from_elsewhere(tmp_path, book):
    dataset = open_task("fill-mask", DataRequest(files=(book,), vocab=80), tmp_path).dataset
    batches, masker = dataset.train_batches(64, 32, 0), dataset.masker
    is_next = torch.cat([batches.at(step)["is_next"] for step in range(60)])
    assert is_next.float().mean() == pytest.approx(0.5, abs=0.02)
    ids = 10 + torch.arange(29).expand(50, -1)
    others = 100 + ids
    text, segments, together = masker.make_pairs(ids, others, np.random.default_rng(0))
    for row, second, follow in zip(text, segments.bool(), together, strict=True):
        words = row[(row != masker.cls) & (row != masker.sep)]
        cut = int((~second).sum()) - 2
        assert row[0] == masker.cls
        assert row[cut + 1] == row[-1] == masker.sep
        assert words[:cut].tolist() == list(range(10, cut + 10))
        offsets = words[cut:] - torch.arange(cut, 29) - 10
        assert offsets.unique().tolist() == [0 if follow else 100]


def test_tokens_are_masked_as_in_the_bert_paper(tmp_path, book):
    dataset = open_task("fill-mask", DataRequest(files=(book,), vocab=80), tmp_path).dataset
    batches, masker = dataset.train_batches(64, 32, 0), dataset.masker
    all_batches = [batches.at(step) for step in range(60)]
    ids, targets = (torch.cat([b[name] for b in all_batches]) for name in ("ids", "targets"))
    is_masked = targets >= 0
    assert is_masked[:, 1:-1].float().mean() == pytest.approx(0.15, abs=0.01)
    assert not is_masked[:, [0, -1]].any()
    assert (ids[is_masked] == masker.mask).float().mean() == pytest.approx(0.8, abs=0.02)
    unchanged = (ids[is_masked] == targets[is_masked]).float().mean()
    assert unchanged == pytest.approx(0.1, abs=0.02)
    assert torch.equal(batches.at(5)["ids"], batches.at(5)["ids"])


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_sample_that_needs_no_data(name, tmp_path):
    reporter = RecordingReporter()
    task = open_task(name, DataRequest(), tmp_path, reporter)
    assert reporter.lines
    batches = task.dataset.train_batches(2, 64, 0)
    assert task.objective.count(batches.at(0)) > 0
    assert batches.per_epoch > 1
    assert task.spec.baseline_model in (None, *task.spec.models)
    assert task.dataset.size > 1000
    assert task.dataset.eval_size > 10


def test_bad_rows_are_skipped_counted_and_logged(tmp_path):
    file = tmp_path / "a.csv"
    rows = [f"text number {i},{'x' if i % 2 else 'y'}" for i in range(100)]
    rows[10], rows[20] = "ragged", "no label,"
    file.write_text("text,label\n" + "\n".join(rows))
    with pytest.raises(GlassError, match=r"a.csv:12: expected 2 columns, got 1"):
        train("classify", file, run=tmp_path / "strict")
    reporter = RecordingReporter()
    train(
        "classify",
        file,
        run=tmp_path / "run",
        skip_bad=True,
        reporter=reporter,
        settings=["model.dim=8"],
        steps=2,
        device="cpu",
    )
    lines = (tmp_path / "run" / "skipped.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert reasons == ["expected 2 columns, got 1", "the label is empty"]
    assert any("2 bad rows were skipped" in line for line in reporter.lines)


def test_requests_that_cannot_be_trained_are_rejected(tmp_path):
    file = tmp_path / "a.txt"
    for content, message in (("", "the files are empty"), ("short", "too few tokens")):
        file.write_text(content)
        with pytest.raises(GlassError, match=message):
            train("generate", file, run=tmp_path / f"run{len(content)}")
    with pytest.raises(GlassError, match="unknown task 'generat'; did you mean 'generate'"):
        train("generat", run=tmp_path / "x")
    file.write_text("some text " * 500)
    assert not list(tmp_path.glob("run*"))  # a run that could not start leaves no folder
    message = r"'bert' is a model for .*, not for generate; models for generate: speedrun, gpt2"
    with pytest.raises(GlassError, match=message):
        train("generate", file, run=tmp_path / "b", model="bert")
    with pytest.raises(GlassError, match="preserves neither spaces nor capitals"):
        train("generate", file, run=tmp_path / "w", tokenizer="wordpiece")
    for settings, message in (
        (["dim=3"], "unknown setting 'dim': settings start with model. or train."),
        (["model.dims=3"], "unknown setting 'model.dims'"),
        (["train.lr=fast"], "train.lr must be a number"),
    ):
        with pytest.raises(GlassError, match=message):
            train("generate", file, run=tmp_path / message[:6], settings=settings)


def test_metrics_are_written_for_tensorboard(tmp_path, book):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(
        "generate", book, run=tmp_path / "run", steps=4, device="cpu", precision="float32",
        settings=[*TINY, "train.tensorboard=true"],
    )  # fmt: skip
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {"training/loss", "validation/bits_per_byte"} <= set(events.Tags()["scalars"])
    assert [e.step for e in events.Scalars("training/loss")] == [1, 2, 3, 4]


def test_validation_files_are_used_and_leaks_are_reported(tmp_path):
    file, other = write_reviews(tmp_path), tmp_path / "other.csv"
    text = file.read_text().splitlines()
    other.write_text("\n".join([text[0], *text[1:11], *(f"new {line}" for line in text[1:31])]))
    reporter = RecordingReporter()
    result = train(
        "classify", file, valid=[other], run=tmp_path / "run", steps=2, device="cpu",
        settings=["model.dim=8"], reporter=reporter,
    )  # fmt: skip
    assert result["examples"] == 40
    assert "200 texts for training, 40 for validation" in reporter.lines
    assert any(line.startswith("data leak: 10 of the validation texts") for line in reporter.lines)
    pairs = tmp_path / "p.tsv"
    pairs.write_text(write_pairs(tmp_path).read_text())
    small = ["model.dim=8", "model.heads=1", "model.depth=1", "model.hidden=8"]
    result = train("translate", pairs, valid=[pairs], run=tmp_path / "t", steps=1, settings=small,
                   device="cpu", reporter=reporter)  # fmt: skip
    assert result["examples"] == 625
    assert any(
        line.startswith("data leak: 625 of the validation sources") for line in reporter.lines
    )
    text = tmp_path / "b.txt"
    text.write_text("other words are here to be read\n" * 9)
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat. " * 100)
    result = train("generate", book, valid=text, run=tmp_path / "g", steps=1, settings=TINY,
                   device="cpu", reporter=reporter)  # fmt: skip
    assert result["bytes"] == text.stat().st_size
