"""Comparisons of several models under one budget, and the baseline of every run."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from cases import CASES
from examples import write_examples
from faults import wait_for_steps
from glassformer import MODELS, GlassError, Model, load
from glassformer.cli import glass
from glassformer.core.config import read_toml
from glassformer.core.folder import MANIFEST, write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.training.compare import Contender, compare, summarize_seeds
from glassformer.training.compare_report import COSTS
from glassformer.training.evaluate import evaluate
from glassformer.training.resume import resume
from glassformer.training.start import scale_to_parameters
from glassformer.training.train import train

TINY = ["model.dim=32", "model.depth=1", "model.context=32", "train.batch_size=4"]


def run_comparison(book, folder, *models, **options):
    settings = [s for s in TINY if "gpt2" in models[0] or "train" in s]
    return compare(
        "generate", book, models=models, run=folder, reporter=NullReporter(), steps=12, threads=1,
        settings=settings, device="cpu", **options,
    )  # fmt: skip


def test_models_are_compared_under_one_budget_and_trained_only_once(book, tmp_path):
    names = ("gpt2:heads=2", "gpt2:heads=4", "recurrent")
    _, rows = run_comparison(book, tmp_path / "both", *names)
    assert {row["name"] for row in rows} == set(names)
    assert all(row["steps"] == 12 for row in rows)
    assert [row["bits_per_byte"] for row in rows] == sorted(row["bits_per_byte"] for row in rows)
    assert all(row["memory"] > 0.1 and row["speed"] > 0 and row["parameters"] > 0 for row in rows)
    text = (tmp_path / "both" / "README.md").read_text()
    assert all(f"| {name} |" in text for name in names)
    assert (tmp_path / "both" / "compare.png").stat().st_size > 5000
    assert load(tmp_path / "both" / "gpt2-heads=2").config.heads == 2

    weights = tmp_path / "both" / "recurrent" / "best" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert run_comparison(book, tmp_path / "both", *names)[1] == rows
    assert before == weights.stat().st_mtime_ns
    with pytest.raises(GlassError, match="contains another comparison"):
        run_comparison(book, tmp_path / "both", *names, seed=3)


def test_invalid_comparisons_are_rejected(book, tmp_path):
    for models, message in (
        (("gpt2", "gtp2"), "unknown model 'gtp2'; did you mean 'gpt2'"),
        (("gpt2", "bert"), "'bert' is a model for fill-mask, not for generate"),
        (("gpt2",), "at least two"),
        (("gpt2", "gpt2"), "at least two different"),
        (("gpt2:size=3", "markov"), "unknown setting 'model.size'"),
    ):
        with pytest.raises(GlassError, match=message):
            run_comparison(book, tmp_path / "x" / str(len(message)), *models)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(GlassError, match="is not a comparison"):
        run_comparison(book, tmp_path / "mine", "gpt2", "markov")


def test_a_comparison_without_a_budget_has_the_default_one(tmp_path, monkeypatch):
    costs = dict.fromkeys(("bits_per_byte", "parameters", "steps", "speed", "memory", "seconds"), 1)
    minutes = []

    def train_contender(contender, path, arguments):
        minutes.append(arguments.get("minutes"))
        return costs

    monkeypatch.setattr("glassformer.training.compare.train_contender", train_contender)
    models, reporter = ("gpt2", "markov"), NullReporter()
    run, _ = compare("generate", models=models, run=tmp_path / "both", reporter=reporter)
    assert minutes == [5.0, 5.0]
    assert "# generate: 2 models, 5 minutes each" in (run / "README.md").read_text()


def test_a_budget_from_set_is_the_one_in_the_report(book, tmp_path, monkeypatch):
    costs = dict.fromkeys(("bits_per_byte", "parameters", "steps", "speed", "memory", "seconds"), 1)
    monkeypatch.setattr("glassformer.training.compare.train_contender", lambda *_: costs)
    for setting, budget in (("steps=1200", "1,200 steps"), ("epochs=2", "2 epochs")):
        run, _ = compare(
            "generate", book, models=("gpt2", "markov"), run=tmp_path / budget, minutes=3.0,
            settings=[f"train.{setting}"], reporter=NullReporter(),
        )  # fmt: skip
        assert f"# generate: 2 models, {budget} each\n" in (run / "README.md").read_text()


# --- several seeds --------------------------------------------------------------------------------


def test_numbers_are_averaged_over_the_seeds():
    results = [
        {"run": f"r{seed}", "model": "gpt2", "loss": loss, "steps": 12}
        for seed, loss in enumerate((1.0, 2.0, 6.0))
    ]
    summary = summarize_seeds(results)
    assert (summary["loss"], summary["steps"]) == (3.0, 12)
    assert summary["std"] == {"loss": pytest.approx(7**0.5), "steps": 0}
    assert summary["runs"] == results
    assert summary.keys() == {"loss", "steps", "std", "runs"}


def test_each_model_is_trained_with_each_seed(book, tmp_path):
    names, path = ("gpt2:heads=2", "recurrent"), tmp_path / "both"
    _, rows = run_comparison(book, path, *names, seeds=2)
    assert {row["name"] for row in rows} == set(names)
    for row in rows:
        values = [result["bits_per_byte"] for result in row["runs"]]
        assert row["bits_per_byte"] == pytest.approx(sum(values) / 2)
        assert values[0] != values[1]
        assert row["std"]["bits_per_byte"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    for seed in range(2):
        tables = read_toml(path / "gpt2-heads=2" / f"seed-{seed}" / "config.toml")
        assert tables["train"]["seed"] == seed
        assert tables["model"]["heads"] == 2
    text = (path / "README.md").read_text()
    assert "# generate: 2 models, 2 seeds, 12 steps each\n" in text
    assert "mean ± standard deviation over the seeds 0 to 1" in text
    assert len(re.findall(r"\| \d\S* ± \d\S*(?= \|)", text)) == 6  # three metrics of two models
    assert (path / "compare.png").stat().st_size > 5000

    (path / "recurrent" / "seed-1" / "result.json").unlink()  # as if stopped before it was written
    weights = path / "gpt2-heads=2" / "seed-1" / "best" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = run_comparison(book, path, *names, seeds=2)[1]
    assert [row["bits_per_byte"] for row in again] == [row["bits_per_byte"] for row in rows]
    assert before == weights.stat().st_mtime_ns
    with pytest.raises(GlassError, match="contains another comparison"):
        run_comparison(book, path, *names, seeds=3)


def test_the_command_prints_mean_and_deviation(book, tmp_path, monkeypatch):
    def train_contender(contender, path, arguments):
        loss = arguments["seed"] + (contender.model == "gpt2")
        return {"bits_per_byte": float(loss), "run": str(path), **dict.fromkeys(COSTS, 1)}

    monkeypatch.setattr("glassformer.training.compare.train_contender", train_contender)
    line = ["compare", "generate", str(book), "--models", "gpt2,markov", "--seeds", "3",
            "--steps", "9", "--run"]  # fmt: skip
    output = CliRunner().invoke(glass, [*line, str(tmp_path / "a")]).stdout
    assert re.search(r"^markov +1 ± 1 .*\ngpt2 +2 ± 1 ", output, re.MULTILINE)
    rows = CliRunner().invoke(glass, [*line, str(tmp_path / "b"), "--json"]).stdout.splitlines()
    assert [json.loads(row)["bits_per_byte"] for row in rows] == [1, 2]
    assert json.loads(rows[0])["std"]["bits_per_byte"] == 1
    assert len(json.loads(rows[0])["runs"]) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 1}, "at least 2 seeds, got 1"),
        ({"seeds": 2, "seed": 0}, "the seeds are 0 to 1: leave out --seed"),
        ({"seeds": 3, "settings": ["train.seed=4"]}, "the seeds are 0 to 2"),
    ],
)
def test_seeds_cannot_be_combined_with_a_seed(tmp_path, options, message):
    with pytest.raises(GlassError, match=message):
        compare("generate", models=("gpt2", "markov"), run=tmp_path / "x",
                reporter=NullReporter(), **options)  # fmt: skip
    assert not (tmp_path / "x").exists()


# --- contenders -----------------------------------------------------------------------------------


def test_folder_of_a_contender_is_a_valid_file_name():
    contender = Contender("decoder:score=plain:dim=64")
    assert (contender.model, contender.model_settings) == ("decoder", ["score=plain", "dim=64"])
    assert contender.settings == ["model.score=plain", "model.dim=64"]
    assert contender.folder == "decoder-score=plain-dim=64"
    plain = Contender("gpt2:prior=false:dim=64")
    assert plain.settings == ["train.prior=false", "model.dim=64"]
    assert plain.model_settings == ["dim=64"]


@pytest.mark.parametrize("name", ["gpt2", "recurrent", "convolutional", "translator", "bert"])
def test_dim_is_scaled_to_a_number_of_parameters(name):
    kind = MODELS[name]
    settings = {"heads": 4} if "heads" in kind.Config.__dataclass_fields__ else {}
    config = scale_to_parameters(name, kind.Config(vocab=100, depth=2, **settings), 400_000)
    size = sum(p.numel() for p in kind(config).parameters())
    assert abs(size - 400_000) < 40_000


# --- baselines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, spec in TASKS.items() if spec.baseline_model])
def test_a_baseline_is_fitted_directly(name, tmp_path):
    reporter, data, spec = RecordingReporter(), write_examples(tmp_path)[name], TASKS[name]
    model = spec.baseline_model
    result = train(name, data, model=model, run=tmp_path / "run", device="cpu", reporter=reporter)
    assert result["model"] == model
    assert result["steps"] == 0
    assert "baseline" not in result
    assert any("fitted directly" in line for line in reporter.lines)
    metrics = evaluate(tmp_path / "run", (data,))
    assert metrics[spec.metric.name] is not None
    model = load(tmp_path / "run")
    if name == "generate":
        assert "the" in model.generate("the cat sat on ", max_new_tokens=30, seed=0)
    elif name == "classify":
        assert next(iter(model.classify("the good film"))) == "1"
    elif name == "translate":
        assert model.translate("one two 7").startswith("eins zwei")
    elif name == "summarize":
        assert model.summarize("The one two 3 is here. Bye.") == "the one two 3 is here."
    elif name == "recommend":
        assert len(model.recommend("3", n=2)) == 2
    elif name == "fill-mask":
        guesses = dict(model.fill_mask("sat on the [MASK] and")[0])
        assert max(guesses, key=guesses.get) in ("mat", "m", "##at")
    with pytest.raises(GlassError, match="fitted directly and cannot be trained further"):
        resume(tmp_path / "run", NullReporter(), minutes=1)
    assert resume(tmp_path / "run", NullReporter())["steps"] == 0


def test_baseline_is_reported_with_the_metrics(tmp_path):
    data = write_examples(tmp_path)["classify"]
    reporter = RecordingReporter()
    settings = ["model.dim=16", "model.depth=1", "model.heads=2"]
    result = train(
        "classify", data, run=tmp_path / "run", model="classifier", steps=4, settings=settings,
        reporter=reporter,
    )  # fmt: skip
    assert result["baseline"]["model"] == "nb_svm"
    assert result["baseline"]["fraction"] == 1
    name = TASKS["classify"].baseline_name
    assert any(name in line and "accuracy" in line for line in reporter.lines)
    assert name in (tmp_path / "run" / "README.md").read_text()
    metrics = evaluate(tmp_path / "run", (data,))
    assert metrics["baseline"]["accuracy"] > 0.9
    assert load(tmp_path / "run" / "baseline").name == "nb_svm"
    assert "baseline" in resume(tmp_path / "run", NullReporter(), steps=6)

    none = train("classify", data, run=tmp_path / "no", model="classifier", steps=4,
                 settings=settings, baseline=False)  # fmt: skip
    assert "baseline" not in none
    assert not (tmp_path / "no" / "baseline").exists()
    assert "baseline" not in json.dumps(evaluate(tmp_path / "no", (data,)))


def test_model_fitted_directly_cannot_be_trained_further(book, tmp_path):
    train("generate", book, model="markov", run=tmp_path / "run", device="cpu")
    with pytest.raises(GlassError, match="fitted directly and cannot be trained further"):
        train("generate", book, base=tmp_path / "run", run=tmp_path / "on", steps=3)


def test_a_stopped_comparison_continues(book, tmp_path, monkeypatch):
    from glassformer.training import compare as module

    names = ("gpt2:heads=2", "recurrent")
    path = tmp_path / "both"
    run_comparison(book, path, *names)
    (path / "recurrent" / "result.json").unlink()  # as if stopped just before it was written
    (path / "README.md").unlink()
    _, rows = run_comparison(book, path, *names)
    assert {row["steps"] for row in rows} == {12}

    monkeypatch.chdir(tmp_path)
    arguments = {"task": "generate", "seed": 3}
    assert module.find_folder(arguments, Path("runs")) == Path("runs/compare-1")
    module.open_comparison(Path("runs/compare-1"), arguments)
    assert module.find_folder(arguments, Path("runs")) == Path("runs/compare-1")
    assert module.find_folder({**arguments, "seed": 4}, Path("runs")) == Path("runs/compare-2")


def test_settings_of_a_contender_override_common_settings(tmp_path, monkeypatch):
    from glassformer.training import compare as module

    requests = []

    def record_request(request):
        requests.append(json.loads(request))
        return 0, json.dumps({"seconds": 1})

    monkeypatch.setattr(module, "run_in_process", record_request)
    (tmp_path / "one").mkdir()
    common = {"task": "generate", "data": [], "settings": ["model.depth=9", "train.batch_size=4"]}
    module.train_contender(Contender("gpt2:depth=2"), tmp_path / "one", common)
    assert requests[0]["settings"] == [
        "model.depth=9",
        "train.batch_size=4",
        "model.depth=2",
    ]
    assert requests[0]["model"] == "gpt2"


def test_ctrl_c_gives_a_contender_time_to_save(book, tmp_path):
    command = [sys.executable, "-c", "from glassformer.cli import main; main()", "compare",
               "generate", str(book), "--models", "gpt2:heads=2,markov", "--steps", "100000",
               "--run", "both", "--threads", "1", "--set", "train.batch_size=4",
               "--set", "train.save_every=1"]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for_steps(tmp_path / "both" / "gpt2-heads=2", process)
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=600)[1]
    assert "stopped and saved" in errors
    assert "run the same command again to continue" in errors
    assert process.returncode == 1
    state = json.loads((tmp_path / "both" / "gpt2-heads=2" / "last" / "training.json").read_text())
    assert state["step"] > 0


def test_phrase_table_translates_words_of_one_token(tmp_path):
    letters = "abcdefghij"
    rows = [f"{letters[i % 10]}\t{letters[i % 10].upper()}" for i in range(100)]
    (tmp_path / "one.tsv").write_text("\n".join(rows))
    train("translate", tmp_path / "one.tsv", run=tmp_path / "run", model="phrase_table",
          tokenizer="characters", device="cpu")  # fmt: skip
    outputs = load(tmp_path / "run").translate(list(letters))
    correct = sum(a == b.upper() for a, b in zip(outputs, letters, strict=True))
    assert correct >= 7  # some are held out


def test_fraction_of_sorted_data_has_all_labels(tmp_path):
    rows = [f"word{i % 50} again,{'x' if i < 200 else 'y'}" for i in range(400)]
    (tmp_path / "sorted.csv").write_text("text,label\n" + "\n".join(rows))
    data = DataRequest(files=(tmp_path / "sorted.csv",))
    (tmp_path / "cache").mkdir()
    artifacts = TASKS["classify"].prepare(data, tmp_path / "cache", NullReporter())
    task = TASKS["classify"].open(artifacts, tmp_path / "cache")
    label_sets = []

    class Recorder:
        def fit(self, ids, labels, class_weights):
            label_sets.append(set(labels.tolist()))

    assert task.dataset.fit(Recorder(), 0.3) == pytest.approx(0.3, abs=0.01)
    assert label_sets == [{0, 1}]


def test_no_baseline_option_skips_the_baseline(book, tmp_path):
    line = ["train", "generate", str(book), "--run", str(tmp_path / "run"), "--steps", "2",
            "--no-baseline", *[x for s in TINY for x in ("--set", s)]]  # fmt: skip
    assert CliRunner().invoke(glass, [*line, "--set", "model.heads=2"]).exit_code == 0
    assert not (tmp_path / "run" / "baseline").exists()


@pytest.mark.parametrize(
    ("name", "table", "corrupt"),
    [
        ("markov", "counts.followers.1", lambda x: x.flip(0)),
        ("markov", "counts.cumulative.1", lambda x: x[:-1]),
        ("markov", "counts.contexts.keys.0", lambda x: x[:, None]),
        ("nb_svm", "svm.weight", lambda x: x[1:]),
        ("phrase_table", "translations.0", lambda x: x + 100),
        ("phrase_table", "translations.1", lambda x: x[:, :2]),
    ],
)
def test_inconsistent_tables_of_fitted_models_are_rejected(name, table, corrupt, tmp_path):
    case = CASES[name]
    Model(case.network).save(tmp_path / "model")
    state = load_file(tmp_path / "model" / "model.safetensors")
    state[table] = corrupt(state[table]).contiguous()
    save_file(state, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / MANIFEST).unlink()
    write_manifest(tmp_path / "model")
    with pytest.raises(GlassError, match="tables are corrupted"):
        load(tmp_path / "model")


def test_a_contender_is_trained_without_a_baseline_and_resumed_if_it_was_stopped(
    tmp_path, monkeypatch
):
    from glassformer.training import compare as module

    requests = []
    monkeypatch.setattr(
        module, "run_in_process", lambda text: requests.append(json.loads(text)) or (130, "{}")
    )
    common = {"task": "generate", "data": ["d"], "models": ["a"], "seeds": 2, "seed": 1, "lr": 0.5}
    for path in (tmp_path / "new", tmp_path / "begun"):
        with pytest.raises(GlassError, match="was stopped; run the same command again"):
            module.train_contender(Contender("gpt2"), path, common)
        (tmp_path / "begun").mkdir(exist_ok=True)
        (tmp_path / "begun" / "config.toml").write_text("")
    assert requests == [
        {"task": "generate", "data": ["d"], "seed": 1, "lr": 0.5, "model": "gpt2", "settings": [],
         "run": str(tmp_path / "new"), "baseline": False, "overwrite": False},
        {"resume": str(tmp_path / "begun")},
    ]  # fmt: skip
