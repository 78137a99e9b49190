"""What is set on the command line reaches the function that does the work."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from cases import CASES
from glassformer.api import Model
from glassformer.cli import glass
from glassformer.text.plain import Characters

FORMAT = {"encoding": "cp1252", "separator": "\t", "header": False}
FORMAT_OPTIONS = ("--encoding", "cp1252", "--separator", "tab", "--no-header")
MACHINE = {"seed": 3, "threads": 2, "device": "cpu"}
MACHINE_OPTIONS = ("--seed", 3, "--threads", 2, "--device", "cpu")
TOKENIZER = {"tokenizer": "words", "vocab": 99, "source_tokenizer": "bytes", "source_vocab": 88}
TOKENIZER_OPTIONS = ("--tokenizer", "words", "--vocab", 99, "--source-tokenizer", "bytes",
                     "--source-vocab", 88)  # fmt: skip


@pytest.fixture
def calls(monkeypatch):
    """Record calls of functions, which then return what they are given."""

    def replace(name, result=None):
        recorded = []

        def record(*args, **options):
            recorded.append((args, options))
            return result

        monkeypatch.setattr(name, staticmethod(record))  # no `self` for a method
        return recorded

    return replace


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text,label\na,b\n")
    return path


def invoke(*arguments, text=""):
    result = CliRunner().invoke(glass, [*map(str, arguments)], input=text)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


# --- training -------------------------------------------------------------------------------------


def test_train_passes_on_every_option(calls, file):
    recorded = calls("glassformer.training.train.train", {"run": "x", "seconds": 1})
    invoke(
        "train", "classify", file, "--config", file, "--run", "r", "--model", "gpt2", "--from",
        file, "--lora", 2, "--freeze", "a.*", "--freeze", "b", "--extend", "--minutes", 1.5,
        "--steps", 7, "--epochs", 2.5, "--text", "x", "--text", "y", "--label", "z",
        *FORMAT_OPTIONS, "--valid", "v", "--valid", "w", "--group", "g", "--multi-label",
        "--class-weights", "--image-size", 32, "--scale", 1, 5, *TOKENIZER_OPTIONS,
        *MACHINE_OPTIONS, "--save-every", 9, "--set", "model.dim=8", "--set", "train.lr=1",
        "--shrink-on-oom", "--skip-bad", "--overwrite", "--no-baseline", "--no-prior",
    )  # fmt: skip
    ((arguments, options),) = recorded
    assert arguments == ("classify", str(file))
    assert options == {
        "config": str(file), "run": "r", "model": "gpt2", "base": str(file), "lora": 2,
        "freeze": ("a.*", "b"), "extend": True, "minutes": 1.5, "steps": 7, "epochs": 2.5,
        "text": ("x", "y"), "label": "z", **FORMAT, "valid": ("v", "w"), "group": "g",
        "multi_label": True, "class_weights": True, "image_size": 32, "scale": (1.0, 5.0),
        **TOKENIZER, **MACHINE, "save_every": 9, "settings": ("model.dim=8", "train.lr=1"),
        "shrink_on_oom": True, "skip_bad": True, "overwrite": True, "baseline": False,
        "prior": False, "start_time": None,
    }  # fmt: skip


def test_train_leaves_out_what_is_not_set(calls, file):
    """Otherwise a default of the command line would replace a setting of the recipe."""
    recorded = calls("glassformer.training.train.train", {"run": "x", "seconds": 1})
    invoke("train", "generate", file)
    invoke("train", "translate", "--source", file, "--target", file.parent)
    invoke("train", "generate", file, "--header")
    assert recorded == [
        (("generate", str(file)), {"start_time": None}),
        (("translate", str(file), str(file.parent)), {"start_time": None}),
        (("generate", str(file)), {"start_time": None, "header": True}),
    ]


def test_the_time_since_the_command_was_started_counts_for_the_budget(calls, file):
    recorded = calls("glassformer.training.train.train", {"run": "x", "seconds": 1})
    result = CliRunner().invoke(glass, ["train", "generate", str(file)], obj=12.5)
    assert result.exit_code == 0, result.output
    assert recorded[0][1] == {"start_time": 12.5}


def test_resume_passes_on_its_budget(calls, tmp_path):
    recorded = calls("glassformer.training.resume.resume", {"run": "x", "seconds": 1})
    invoke("resume", tmp_path)
    invoke("resume", tmp_path, "--steps", 9)
    invoke("resume", tmp_path, "--minutes", 0.5)
    assert [arguments for arguments, _ in recorded] == [(tmp_path,)] * 3
    assert [options for _, options in recorded] == [
        {"steps": None, "minutes": None},
        {"steps": 9, "minutes": None},
        {"steps": None, "minutes": 0.5},
    ]


def test_compare_passes_on_every_option(calls, file):
    recorded = calls("glassformer.training.compare.compare", (Path("r"), []))
    invoke(
        "compare", "translate", file, "--models", "a:dim=8, b,", "--run", "r", "--minutes", 1.5,
        "--steps", 7, "--epochs", 2.5, "--seeds", 3, "--params", 5000, "--text", "x", "--label",
        "z", *FORMAT_OPTIONS, "--valid", file, "--skip-bad", *TOKENIZER_OPTIONS, *MACHINE_OPTIONS,
        "--set", "model.dim=8", "--json",
    )  # fmt: skip
    ((arguments, options),) = recorded
    assert arguments == ("translate", str(file))
    options.pop("reporter")
    assert options == {
        "models": ["a:dim=8", "b"], "run": Path("r"), "minutes": 1.5, "steps": 7, "epochs": 2.5,
        "seeds": 3, "parameters": 5000, "text": ("x",), "label": "z", **FORMAT,
        "valid": (str(file),), "skip_bad": True, **TOKENIZER, **MACHINE,
        "settings": ("model.dim=8",),
    }  # fmt: skip


def test_models_passes_on_its_budget_and_the_format_of_the_data(calls, file):
    row = {"model": "gpt2"}
    default = SimpleNamespace(training=SimpleNamespace(steps=3), row=lambda: row)
    recorded = calls("glassformer.training.defaults.find_defaults", [default])
    invoke("models", "classify", file, "--minutes", 7, "--text", "x", "--label", "z",
           *FORMAT_OPTIONS, "--json")  # fmt: skip
    ((arguments, options),) = recorded
    assert arguments == ("classify", str(file))
    options.pop("reporter")
    assert options == {"minutes": 7.0, "text": ("x",), "label": "z", **FORMAT}


# --- data and metrics -----------------------------------------------------------------------------


def test_evaluate_passes_on_every_option(calls, file, tmp_path):
    recorded = calls("glassformer.training.evaluate.evaluate", {})
    plot, predictions = tmp_path / "p.png", tmp_path / "p.csv"
    invoke(
        "evaluate", tmp_path, file, "--text", "x", "--label", "z", *FORMAT_OPTIONS, "--context", 9,
        "--skip-bad", "--predictions", predictions, "--plot", plot,
    )  # fmt: skip
    invoke("evaluate", tmp_path, "--source", file, "--target", tmp_path / "data.csv")
    (first, options), (second, defaults) = recorded
    assert first == (tmp_path, (file,))
    assert second == (tmp_path, (file, file))
    assert options.pop("reporter") is not None
    assert options == {
        "text": ("x",), "label": "z", **FORMAT, "context": 9, "skip_bad": True,
        "predictions": predictions, "plot": plot,
    }  # fmt: skip
    assert not any(value for name, value in defaults.items() if name != "reporter")


def test_check_data_reads_the_data_as_training_would(calls, file, tmp_path):
    report = {"bad_rows": 0, "error": None}
    recorded = calls("glassformer.tasks.check.check", report)
    invoke(
        "check-data", "classify", file, "--text", "x", "--label", "z", *FORMAT_OPTIONS, "--valid",
        file, "--group", "g", "--multi-label", "--json",
    )  # fmt: skip
    ((task, request), _) = recorded[0]
    assert task == "classify"
    found = {name: getattr(request, name) for name in (*FORMAT, "text", "label", "group")}
    assert found == {**FORMAT, "text": ("x",), "label": "z", "group": "g"}
    assert (request.files, request.valid, request.multi_label) == ((file,), (file,), True)
    invoke("check-data", "translate", "--source", file, "--target", tmp_path, "--json")
    assert recorded[1][0][1].files == (file, tmp_path)


# --- use ------------------------------------------------------------------------------------------


@pytest.fixture
def model(monkeypatch):
    """Make the commands load this model."""
    special = ("<unk>", "<start>", "<end>")
    made = Model(CASES["gpt2"].network, Characters("abc", special), {"labels": ["x", "y", "z"]})
    monkeypatch.setattr("glassformer.api.load", lambda _path: made)
    for check in ("require_trait", "require_labels", "require_masks"):
        monkeypatch.setattr(Model, check, lambda *_: None)
    return made


def test_generate_passes_on_every_option(calls, model, tmp_path):
    recorded = calls("glassformer.api.Model.stream", ["c"])
    invoke(
        "generate", tmp_path, "ab", "-n", 7, "-t", 0.5, "--top-k", 3, "--top-p", 0.9, "--min-p",
        0.1, "--repetition-penalty", 1.25, "--stop", "x", "--stop", "y", "--samples", 2,
        "--seed", 5,
    )  # fmt: skip
    shared = {
        "max_new_tokens": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1,
        "repetition_penalty": 1.25, "stop": ("x", "y"),
    }  # fmt: skip
    assert recorded == [(("ab",), {"seed": seed, **shared}) for seed in (5, 6)]


def test_translate_passes_on_its_search_or_its_sampling(calls, model, tmp_path):
    recorded = calls("glassformer.api.Model.translate", ["b"])
    invoke("translate", tmp_path, "a", "--beam", 3, "--length-penalty", 1.5)
    invoke("translate", tmp_path, "a", "--temperature", 0.5, "--samples", 2, "--seed", 7)
    search = {"beam": 3, "length_penalty": 1.5, "temperature": None, "seed": None}
    assert recorded[0] == ((["a"],), search)
    assert [(o["temperature"], o["seed"]) for _, o in recorded[1:]] == [(0.5, 7), (0.5, 8)]


def test_fill_mask_and_recommend_pass_on_how_many(calls, model, tmp_path):
    masks = calls("glassformer.api.Model.fill_mask", [[("a", 0.5)]])
    invoke("fill-mask", tmp_path, "a [MASK]", "--top", 7)
    assert masks == [(("a [MASK]",), {"top": 7})]
    rows = [{"score": 1.0, "item": "i", "title": "t"}]
    users, items = (calls(f"glassformer.api.Model.{n}", rows) for n in ("recommend", "similar"))
    assert invoke("recommend", tmp_path, "--user", "u", "-n", 3) == "1.000\ti\tt\n"
    invoke("recommend", tmp_path, "--similar-to", "i", "-n", 4)
    assert (users, items) == ([(("u", 3), {})], [(("i", 4), {})])


def test_summarize_passes_on_the_title_and_the_beam(calls, model, file, tmp_path):
    read = SimpleNamespace(is_whole=True, tokens=1, ids=[1], sentences=1, sentences_read=1)
    extracts = calls("glassformer.api.Model.extract", read)
    summaries = calls("glassformer.api.Model.summarize", ["s"])
    assert invoke("summarize", tmp_path, file, file, "--title", "T", "--beam", 3) == "s\n"
    pile = "\n\n".join([file.read_text()] * 2)
    assert extracts == [((pile,), {"title": "T"})]
    assert summaries == [(([read],), {"beam": 3})]


def test_paint_passes_on_every_option_and_lays_out_the_sheet(calls, model, tmp_path):
    recorded = calls("glassformer.api.Model.paint", np.zeros((12, 4, 4, 1), dtype=np.uint8))
    out = tmp_path / "x.png"
    line = ("paint", tmp_path, "--out", out, "--overwrite")
    invoke(*line, "-n", 12, "--class", "x", "--seed", 5, "--columns", 2)
    assert recorded == [((12,), {"label": "x", "seed": 5})]
    with Image.open(out) as image:
        assert image.size == (2 * 6 + 2, 6 * 6 + 2)  # two columns, six rows
    invoke(*line, "-n", 12)
    assert recorded[1] == ((12,), {"label": None, "seed": 0})
    with Image.open(out) as image:
        assert image.size == (3 * 6 + 2, 4 * 6 + 2)  # as many columns as classes


def test_heads_and_patch_pass_on_their_texts(calls, model, tmp_path):
    report = SimpleNamespace(steps=list)
    heads, patches = (calls(f"glassformer.api.Model.{n}", report) for n in ("heads", "patch"))
    invoke("heads", tmp_path, "ab")
    invoke("heads", tmp_path)
    invoke("patch", tmp_path, "clean", "corrupt")
    assert [arguments for arguments, _ in heads] == [("ab",), (None,)]
    assert [arguments for arguments, _ in patches] == [("clean", "corrupt")]


def test_convert_and_average_pass_on_every_option(calls, model, file, tmp_path):
    loads = calls("glassformer.api.load", model)
    saves, strips = (calls(f"glassformer.api.Model.{n}") for n in ("save", "strip_prior"))
    invoke("convert", tmp_path, "out", "--to", "onnx", "--tokenizer", file, "--ignore", "a",
           "--ignore", "b", "--strip-prior", "--overwrite")  # fmt: skip
    invoke("convert", tmp_path, "out")
    options = {"tokenizer": str(file), "ignore": ("a", "b")}
    assert loads[0] == ((str(tmp_path),), options)
    assert saves == [
        (("out",), {"format": "onnx", "overwrite": True}),
        (("out",), {"format": "glassformer", "overwrite": False}),
    ]
    assert len(strips) == 1
    averages = calls("glassformer.checkpoint.average")
    invoke("average", tmp_path, file, "--out", "mean", "--overwrite")
    assert averages == [(((tmp_path, file), Path("mean")), {"overwrite": True})]
