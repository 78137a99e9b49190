"""Models exported to ONNX, run by ONNX Runtime, and their READMEs, which are run too."""

import ast
import copy
import json
import re
import runpy
import shutil
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from cases import CASES, Case
from glassformer import MODELS, GlassError, load
from glassformer.api import Model
from glassformer.cli import glass
from glassformer.formats import onnx as onnx_format
from glassformer.models.network import Trait
from glassformer.text.plain import Characters, Words
from glassformer.text.subword import WordPiece

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
TEXTS = ["a lovely film", "an awful one"]  # in the programs of the READMEs
SAMPLE = ["The cat sat on the mat. A lovely film, an awful one."] * 3
LABELS = ["bad", "good", "odd"]
TOKENIZERS = {
    "translate": Characters.train(SAMPLE, special_tokens=("<unk>", "<start>", "<end>")),
    "generate": Characters.train(SAMPLE),
    "fill-mask": WordPiece.train(SAMPLE, vocab=60),
    "classify": Words.train(SAMPLE, special_tokens=("<unk>", "<sep>")),
}
USED_CASES = {  # each model in the case that says most
    "bert": "bert by distance",
    "llama": "llama",
    "decoder": "decoder: additive, rotary",
    "translator": "two vocabularies",
    "sparse": "sparse: strided, heads",
    "universal": "universal: True",
}
NAMES = (  # without those that share all their parts with another, as an export takes seconds
    *("gpt2", "llama", "speedrun", "decoder", "bert", "bert_encoder", "bert_classifier"),
    *("gpt2_classifier", "convolutional_classifier", "text_cnn", "translator"),
    *("sparse", "universal"),
)


def test_models_that_are_fitted_or_recurrent_or_not_for_plain_text_cannot_be_exported():
    """A memory of earlier segments is a recurrence too."""
    models = set(onnx_format.exportable_models())
    trained = {name for name in MODELS if Trait.FITTED not in MODELS[name].traits}
    recurrent = {"recurrent", "recurrent_classifier", "recurrent_translator", "transformer_xl"}
    other_data = {"vision", "image_cnn", "sagan", "summarizer", "factorization", "sasrec"}
    assert trained - models == recurrent | other_data
    untested = models - set(NAMES)
    others = {"generator", "classifier", "convolutional", "speedrun_translator"}
    others |= {"post_norm_decoder", "unprojected_decoder"}
    assert untested == {*others, "universal_classifier", "universal_translator"}
    traits = {trait for name in NAMES for trait in MODELS[name].traits}
    assert traits == {trait for name in models for trait in MODELS[name].traits}


def build_model(name):
    """A model with one layer and a tokenizer."""
    case = CASES[USED_CASES.get(name, name)]
    task = onnx_format.find_task(case.network)
    tokenizer = TOKENIZERS["fill-mask" if "bert" in name else task]
    settings = {**case.settings, "vocab": tokenizer.vocab}
    settings |= {"depth": 1} if "depth" in settings else {}
    settings |= {"context": 64} if "context" in settings else {}
    metadata = {"name": task}
    if task == "classify":
        several = {"multi_label": True} if name == "convolutional_classifier" else {}
        metadata |= {"labels": LABELS, "temperature": 1.5, **several}
    return Model(Case(name, settings).network, tokenizer, metadata)


def open_session(folder):
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", NAMES)
def test_exported_model_computes_the_same_without_pytorch(name, tmp_path, monkeypatch, capsys):
    model, folder = build_model(name), tmp_path / "out"
    before = copy.deepcopy(model.network.state_dict())
    model.save(folder, format="onnx")
    assert capsys.readouterr() == ("", "")
    assert all(torch.equal(v, before[key]) for key, v in model.network.state_dict().items())
    assert_same_outputs(folder, model)
    assert_graph_is_described(folder, model)
    monkeypatch.chdir(folder)
    variables = run_program(tmp_path / "program.py", (folder / "README.md").read_text())
    README_CHECKS[onnx_format.find_task(model.network)](model, variables, capsys.readouterr().out)


def assert_same_outputs(folder, model):
    """Compare the outputs for batches of several sizes, with padding in those of three rows."""
    session = open_session(folder)
    for sizes in ((1, 1, 1), (1, 13, 6), (5, 2, 9), (3, 64, 17)):
        batch = onnx_format.make_batch(model.network, *sizes)
        assert batch["ids"].shape == sizes[:2]
        with torch.inference_mode():
            expected = model.network(**batch).numpy()
        (actual,) = session.run(None, {key: value.numpy() for key, value in batch.items()})
        np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=1e-5)
        keep = batch.get("source_keep", batch.get("keep"))
        assert keep is None or sizes[0] != 3 or keep.all(dim=1).tolist() == [True, False, False]


def assert_graph_is_described(folder, model):
    """Check the files, the graph and the config."""
    files = {file.name for file in folder.iterdir()}
    assert files == {"model.onnx", "tokenizer.json", "config.json", "README.md"}
    content = (folder / "model.onnx").read_bytes()
    assert not any(path in content for path in (b"site-packages", b"glassformer", b".py"))
    graph = onnx.load_from_string(content)
    onnx.checker.check_model(graph)
    assert graph.opset_import[0].version == onnx_format.OPSET >= 18
    network, config = model.network, json.loads((folder / "config.json").read_text())
    names = ("ids",) if network.has(Trait.CAUSAL_LM) else network.forward_inputs
    assert tuple(config["inputs"]) == names
    for name, entry in config["inputs"].items():
        length = "source_length" if name.startswith("source") else "length"
        assert entry["shape"] == ["batch", length]
        assert entry["type"] == ("tensor(bool)" if name.endswith("keep") else "tensor(int64)")
    ((output, entry),) = config["outputs"].items()
    is_classifier = network.has(Trait.CLASSIFIER)
    assert output == ("features" if config["task"] == "embed" else "logits")
    assert entry["shape"][:-1] == (["batch"] if is_classifier else ["batch", "length"])
    assert config["context"] == network.context
    assert config["special_tokens"] == model.tokenizer.special_tokens
    assert config.get("labels") == (LABELS if is_classifier else None)


# --- the programs in the READMEs ------------------------------------------------------------------


def run_program(file, readme):
    """Run the program in a README and return its variables."""
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    file.write_text(program)
    return runpy.run_path(str(file))


def assert_classifies(model, variables, output):
    np.testing.assert_allclose(variables["probs"], model.predict_proba(TEXTS), atol=1e-5)
    assert [list(ast.literal_eval(line)) for line in output.splitlines()] == [LABELS, LABELS]


def assert_generates(model, variables, output):
    continuation = model.generate("The", max_new_tokens=50, temperature=0.0)
    assert output == f"The{continuation}\n".replace("<unk>", "")


def assert_fills_masks(model, variables, output):
    masks = model.fill_mask("the [MASK] sat on the [MASK]", top=5)
    assert len(output.splitlines()) == len(masks) == 2
    for line, candidates in zip(output.splitlines(), masks, strict=True):
        ids = [model.tokenizer.engine.token_to_id(t) for t in ast.literal_eval(line)]
        assert list(map(model.tokenizer.token, ids)) == [token for token, _ in candidates]


def assert_embeds(model, variables, output):
    np.testing.assert_allclose(variables["vectors"], model.embed(TEXTS), atol=1e-5, rtol=1e-5)


def assert_translates(model, variables, output):
    (expected,) = model.codec.run(model.network, model.codec.encode(TEXTS[:1]), beam_size=0)
    assert len(expected) > 3
    assert variables["ids"][1 : 1 + len(expected)] == expected
    assert output.strip()


README_CHECKS = {
    "classify": assert_classifies,
    "generate": assert_generates,
    "fill-mask": assert_fills_masks,
    "embed": assert_embeds,
    "translate": assert_translates,
}


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("text_cnn with a prior", r"a prior to ONNX: .*`glass convert --strip-prior`"),
        ("speedrun_translator with a prior", r"a prior to ONNX"),
        ("markov", r"cannot export markov to ONNX: train one of .*gpt2.* instead \(--model\)$"),
        ("recurrent: lstm", r"cannot export recurrent to ONNX: train one of .*gpt2"),
    ],
)
def test_what_onnx_cannot_hold_is_rejected_with_a_way_out(case, message, tmp_path):
    with pytest.raises(GlassError, match=message):
        Model(CASES[case].network).save(tmp_path / "x", format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", onnx_format.PACKAGES)
def test_a_missing_package_is_reported(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(GlassError, match=rf"needs {package}: pip install 'glassformer\[export\]'"):
        build_model("text_cnn").save(tmp_path / "x", format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def exported_text_cnn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx") / "text_cnn"
    build_model("text_cnn").save(folder, format="onnx")
    return folder


@pytest.fixture
def exported_graph(exported_text_cnn, monkeypatch):
    """Instead of exporting, copy the graph of a text_cnn."""
    file = exported_text_cnn / "model.onnx"
    monkeypatch.setattr(onnx_format, "export_graph", lambda _network, new: shutil.copy(file, new))


@pytest.mark.usefixtures("exported_graph")
def test_a_graph_that_differs_from_the_network_is_not_written(tmp_path):
    torch.manual_seed(0)
    network = MODELS["text_cnn"](build_model("text_cnn").config)
    torch.nn.init.normal_(network.head.weight)
    with pytest.raises(GlassError, match=r"differs from the network .* so it was not written"):
        Model(network).save(tmp_path / "x", format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("exported_graph")
def test_a_folder_is_replaced_only_with_overwrite(tmp_path):
    model = build_model("text_cnn")
    model.save(tmp_path / "x", format="onnx")
    with pytest.raises(GlassError, match="already exists"):
        model.save(tmp_path / "x", format="onnx")
    (tmp_path / "x" / "README.md").unlink()
    model.save(tmp_path / "x", format="onnx", overwrite=True)
    assert (tmp_path / "x" / "README.md").exists()


@pytest.mark.usefixtures("exported_graph")
def test_a_model_without_a_tokenizer_has_no_program_in_its_readme(tmp_path):
    Model(build_model("text_cnn").network).save(tmp_path / "x", format="onnx")
    assert not (tmp_path / "x" / "tokenizer.json").exists()
    text = (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
    assert "no tokenizer" in text
    assert "```" not in text
    assert json.loads((tmp_path / "x" / "config.json").read_text())["labels"] == ["0", "1", "2"]


def test_a_context_of_one_token_is_reported(tmp_path):
    settings = {"vocab": 9, "context": 1, "dim": 8, "depth": 1, "heads": 1}
    with pytest.raises(GlassError, match="torch cannot export the model to ONNX"):
        Model(Case("generator", settings).network).save(tmp_path / "x", format="onnx")
    assert not list(tmp_path.iterdir())


def test_an_exported_folder_cannot_be_loaded(exported_text_cnn):
    with pytest.raises(GlassError, match="is an ONNX model, for use with ONNX Runtime"):
        load(exported_text_cnn)


def test_convert_writes_an_onnx_folder(tmp_path):
    prior = CASES["text_cnn with a prior"]
    Model(prior.network, None, {"name": "classify", "labels": LABELS}).save(tmp_path / "run")
    arguments = ["convert", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "onnx"]
    result = CliRunner().invoke(glass, arguments)
    assert "--strip-prior" in str(result.exception)
    result = CliRunner().invoke(glass, [*arguments, "--strip-prior"])
    assert result.exit_code == 0, result.exception
    first, second = result.stdout.splitlines()
    assert first.startswith("<glassformer.Model text_cnn: ")
    assert second == f"wrote {tmp_path / 'out'}"
    assert result.stderr.startswith("removed the prior: expect a much higher loss")
    assert [entry.name for entry in open_session(tmp_path / "out").get_inputs()] == ["ids", "keep"]
