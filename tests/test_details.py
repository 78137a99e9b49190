"""Exact values and errors of folders, weights, predictions, tokenizers and settings."""

import copy
import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import glassformer
from cases import CASES, ids
from glassformer import MODELS, TOKENIZERS, GlassError, checkpoint, weights
from glassformer.api import Model, load
from glassformer.checkpoint import Adapter
from glassformer.core.bounds import BOUNDS, check_bounds
from glassformer.core.config import did_you_mean, override
from glassformer.core.errors import is_memory_error
from glassformer.core.metrics import Metrics
from glassformer.core.reporter import format_duration, format_value
from glassformer.core.world import World
from glassformer.inspection.plots import PLOTS
from glassformer.lessons import LESSONS
from glassformer.models.network import Network, Trait
from glassformer.nn.lora import add_lora
from glassformer.predict import CODECS, codec_for, embed_texts, inputs_for, predict, stream_text
from glassformer.registry import build_model, find_model, model_name
from glassformer.tasks import TASKS
from glassformer.tasks.classify import ClassifyCodec
from glassformer.tasks.fill_mask import FillMaskCodec
from glassformer.tasks.generate import GenerateCodec
from glassformer.tasks.task import Artifacts
from glassformer.tasks.translate import TranslateCodec
from glassformer.text.by_hand import CHAR_TO_BYTE
from glassformer.text.plain import Bytes, Characters, Words, split_words
from glassformer.text.scored import ScoredTokenizer
from glassformer.text.subword import (
    BPE,
    WordPiece,
    choose_characters,
    repeat_words,
    split_long_words,
)
from glassformer.text.tokenizer import clean
from glassformer.training.evaluate import evaluate
from glassformer.training.settings import TrainingSettings

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"


def letters(count=50, special_tokens=("<unk>",)):
    """A tokenizer with `count` tokens."""
    return Characters(LETTERS[: count - len(special_tokens)], special_tokens)


def gpt2(vocab=50, context=32, seed=0, kind="gpt2", **more):
    torch.manual_seed(seed)
    sizes = {"vocab": vocab, "context": context, "dim": 16, "depth": 1, "heads": 2, "dropout": 0.0}
    return MODELS[kind](MODELS[kind].Config(**{**sizes, **more})).eval()


def classifier(classes=2, **more):
    return gpt2(kind="classifier", classes=classes, **more)


# --- consistency ----------------------------------------------------------------------------------


def test_special_tokens_without_an_embedding_are_removed(tmp_path):
    words = BPE.train(["ab ab ab"], vocab=260, special_tokens=("<a>", "<b>"))
    network = gpt2(vocab=words.vocab - 2)
    found = checkpoint.check_consistency(tmp_path, network, words, {})[1]
    assert found.special_tokens == {}
    words = BPE.train(["ab ab ab"], vocab=260, special_tokens=("<a>", "<b>"))
    checkpoint.check_consistency(tmp_path, gpt2(vocab=words.vocab - 1), words, {})
    assert list(words.special_tokens) == ["<a>"]
    words = BPE.train(["ab ab ab"], vocab=260, special_tokens=("<a>", "<b>"))
    with pytest.raises(GlassError, match=f"has {words.vocab} tokens, the network only 257"):
        checkpoint.check_consistency(tmp_path, gpt2(vocab=257), words, {})


def test_a_tokenizer_may_be_smaller_than_its_network(tmp_path):
    network, words, task = gpt2(), letters(40), {"eos": [3]}
    assert checkpoint.check_consistency(tmp_path, network, words, task) == (network, words, task)


@pytest.mark.parametrize(
    ("network", "task", "message"),
    [
        ("gpt2", {"eos": 3}, "expected eos to be a list of ids"),
        ("gpt2", {"eos": ["3"]}, "expected eos to be a list of ids"),
        ("gpt2", {"labels": ["a", "b"]}, "has labels, but its network is not a classifier"),
        ("classifier", {"labels": ["a", "b"]}, "has 2 labels, but its network has 3 classes"),
        ("classifier", {"labels": ["a", "b", 3]}, "expected labels to be a list of strings"),
        ("classifier", {"labels": "abc"}, "expected labels to be a list of strings"),
    ],
)
def test_a_task_that_does_not_fit_its_network_is_refused(tmp_path, network, task, message):
    with pytest.raises(GlassError, match=message):
        checkpoint.check_consistency(tmp_path, CASES[network].network, letters(), task)
    fits = {"labels": ["a", "b", "c"]}
    found = checkpoint.check_consistency(tmp_path, CASES["classifier"].network, letters(), fits)
    assert found[2] == fits


def test_tensors_that_fit_are_copied_and_the_others_are_named():
    old, new = gpt2(vocab=5, context=8, seed=1), gpt2(vocab=7, context=4, seed=2)
    skipped = checkpoint.load_matching(new, old.state_dict())
    assert skipped == []
    assert torch.equal(new.token.weight[:5], old.token.weight)
    mean = old.token.weight.mean(dim=0)
    torch.testing.assert_close(new.token.weight[5:], mean.expand(2, -1))
    assert torch.equal(new.position.weight, old.position.weight[:4])
    assert torch.equal(new.norm.weight, old.norm.weight)
    wide = gpt2(vocab=5, context=8, seed=3, hidden=24)
    kept = copy.deepcopy(wide.state_dict())
    skipped = checkpoint.load_matching(wide, old.state_dict())
    assert sorted(skipped) == [
        "blocks.0.feedforward.down.weight",
        "blocks.0.feedforward.up.bias",
        "blocks.0.feedforward.up.weight",
    ]
    assert all(torch.equal(wide.state_dict()[name], kept[name]) for name in skipped)


def test_a_classifier_copies_its_body_but_not_its_head():
    body, network = gpt2(seed=1), gpt2(seed=2, kind="gpt2_classifier", classes=3)
    skipped = checkpoint.load_matching(network, body.state_dict())
    assert sorted(skipped) == ["head.bias", "head.weight"]
    assert torch.equal(network.body.token.weight, body.token.weight)
    other = gpt2(seed=4, kind="gpt2_classifier", classes=3)
    head = network.head.weight.detach().clone()
    assert checkpoint.load_matching(network, other.state_dict(), exclude=("head",)) == skipped
    assert torch.equal(network.head.weight, head)
    checkpoint.load_matching(network, other.state_dict())
    assert torch.equal(network.head.weight, other.head.weight)


# --- folders --------------------------------------------------------------------------------------


def test_the_best_weights_are_preferred_to_the_last(tmp_path):
    run, best, last = tmp_path / "run", gpt2(seed=1), gpt2(seed=2)
    run.mkdir()
    checkpoint.save(run / "last", last, letters())
    found = checkpoint.open_model(run)[0]
    assert torch.equal(found.token.weight, last.token.weight)
    checkpoint.save(run / "best", best, letters())
    found = checkpoint.open_model(run)[0]
    assert torch.equal(found.token.weight, best.token.weight)
    (run / "best" / "config.toml").write_text("x")
    with pytest.raises(GlassError, match=r"best.config.toml is corrupted.*; .*last may be intact"):
        checkpoint.open_model(run)


def test_a_folder_keeps_its_task_and_its_tokenizer(tmp_path):
    task = {"name": "classify", "labels": ["b", "a"], "text": ["x"]}
    network = classifier().double()
    checkpoint.save(tmp_path / "m", network, letters(), task=task)
    found, words, again = checkpoint.load(tmp_path / "m")
    assert again == task
    assert words.to_json() == letters().to_json()
    assert found.config == network.config
    assert not found.training
    assert found.head.weight.dtype == torch.float64
    checkpoint.save(tmp_path / "n", network, None)
    assert checkpoint.load(tmp_path / "n")[1:] == (None, {})


def test_a_long_list_is_saved_in_a_file_of_its_own(tmp_path):
    task = {"name": "recommend", "titles": [f"Film {i}" for i in range(2000)], "users": ["a", "ü"]}
    checkpoint.save(tmp_path / "m", gpt2(), letters(), task=task)
    assert json.loads((tmp_path / "m" / "lists.json").read_text()) == {"titles": task["titles"]}
    assert "Film 1" not in (tmp_path / "m" / "config.toml").read_text()
    assert checkpoint.load(tmp_path / "m")[2] == task
    checkpoint.save(tmp_path / "n", gpt2(), letters(), task={"users": ["a"]})
    assert not (tmp_path / "n" / "lists.json").exists()
    for content in ("[]", '{"titles": "a"}'):
        (tmp_path / "m" / "lists.json").write_text(content)
        with pytest.raises(GlassError, match="expected lists by name"):
            checkpoint.read_lists(tmp_path / "m" / "lists.json")


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(GlassError, match="does not exist"):
        checkpoint.open_model(tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GlassError, match=r"is not a model folder: it has neither config\.toml"):
        checkpoint.open_model(tmp_path / "empty")
    checkpoint.save(tmp_path / "m", gpt2(), None)
    with pytest.raises(GlassError, match="`ignore` does not apply"):
        checkpoint.open_model(tmp_path / "m", ["x"])
    with pytest.raises(GlassError, match=r"only for a llama2\.c file"):
        checkpoint.open_model(tmp_path / "m", tokenizer=tmp_path / "t")


def test_an_average_is_of_the_last_weights(tmp_path):
    networks = [gpt2(seed=seed) for seed in range(3)]
    for i, network in enumerate(networks):
        (tmp_path / str(i)).mkdir()
        checkpoint.save(tmp_path / str(i) / "last", network, letters(), task={"name": "generate"})
    checkpoint.save(tmp_path / "0" / "best", gpt2(seed=9), letters())
    paths = [tmp_path / str(i) for i in range(3)]
    checkpoint.average(paths, tmp_path / "mean")
    found, _, task = checkpoint.load(tmp_path / "mean")
    expected = sum(network.token.weight.detach().double() for network in networks) / 3
    torch.testing.assert_close(found.token.weight.double(), expected, atol=1e-7, rtol=1e-6)
    assert task == {"name": "generate"}


@pytest.mark.parametrize(
    ("other", "words", "task", "message"),
    [
        (gpt2(context=16), letters(), {}, "their models differ"),
        (gpt2(kind="generator"), letters(), {}, "their models differ"),
        (gpt2(), letters(40), {}, "their tokenizers differ"),
        (gpt2(), None, {}, "their tokenizers differ"),
    ],
)
def test_models_that_differ_cannot_be_averaged(tmp_path, other, words, task, message):
    checkpoint.save(tmp_path / "a", gpt2(), letters())
    checkpoint.save(tmp_path / "b", other, words, task=task)
    with pytest.raises(GlassError, match=message):
        checkpoint.average([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_models_with_different_labels_cannot_be_averaged(tmp_path):
    for name, labels in (("a", ["x", "y"]), ("b", ["y", "x"])):
        checkpoint.save(tmp_path / name, classifier(), letters(), task={"labels": labels})
    with pytest.raises(GlassError, match="their labels differ"):
        checkpoint.average([tmp_path / "a", tmp_path / "b"], tmp_path / "c")


# --- adapters -------------------------------------------------------------------------------------


def save_adapter(tmp_path, rank=2):
    """A saved model and a saved adapter for it that changes its outputs."""
    base, path = gpt2(seed=1), tmp_path / "base"
    checkpoint.save(path, base, letters())
    network = copy.deepcopy(base)
    add_lora(network, network.stacks, rank)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    about = Adapter(rank, str(path), checkpoint.hash_weights(path))
    checkpoint.save(tmp_path / "small", network, letters(), adapter=(about, names))
    return base, network, names


def test_an_adapter_holds_the_trained_tensors_and_nothing_else(tmp_path):
    base, network, names = save_adapter(tmp_path)
    held = weights.read(tmp_path / "small" / "adapter.safetensors")
    assert sorted(held) == sorted(names)
    beside = checkpoint.load(tmp_path / "small", merge_adapter=False)[0]
    text = ids()
    torch.testing.assert_close(beside(text), network(text))
    assert [n for n, p in beside.named_parameters() if p.requires_grad] == names
    merged = checkpoint.load(tmp_path / "small")[0]
    torch.testing.assert_close(merged(text), network(text), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(merged(text), base(text), atol=1e-3)
    assert merged.state_dict().keys() == base.state_dict().keys()
    assert checkpoint.read_adapter(tmp_path / "small").rank == 2
    assert checkpoint.read_adapter(tmp_path / "base") is None


def test_an_adapter_without_its_base_is_refused(tmp_path):
    save_adapter(tmp_path)
    (tmp_path / "base").rename(tmp_path / "away")
    with pytest.raises(GlassError, match="which does not exist"):
        checkpoint.load(tmp_path / "small")
    checkpoint.save(tmp_path / "base", gpt2(seed=5), letters())
    with pytest.raises(GlassError, match="whose weights have changed"):
        checkpoint.load(tmp_path / "small")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "the adapter's rank or base is invalid"),
        ({"rank": 4097}, "the adapter's rank or base is invalid"),
        ({"base": "{small}"}, "the adapter's rank or base is invalid"),
        ({"rank": 3}, "does not match the model"),
    ],
)
def test_an_invalid_adapter_is_refused(tmp_path, change, message):
    _, network, names = save_adapter(tmp_path)
    base = tmp_path / "base"
    values = {"rank": 2, "base": str(base), "sha256": checkpoint.hash_weights(base), **change}
    values["base"] = values["base"].format(small=tmp_path / "small")
    checkpoint.save(
        tmp_path / "small", network, letters(), adapter=(Adapter(**values), names), overwrite=True
    )
    with pytest.raises(GlassError, match=message):
        checkpoint.load(tmp_path / "small")


def test_at_most_eight_adapters_may_be_stacked(tmp_path):
    save_adapter(tmp_path)
    checkpoint.load(tmp_path / "small", depth=7)
    with pytest.raises(GlassError, match="more than 8 adapters are stacked"):
        checkpoint.load(tmp_path / "small", depth=8)


# --- weights --------------------------------------------------------------------------------------


def test_half_precision_becomes_single_and_other_types_stay(tmp_path):
    kinds = {"a": torch.float16, "b": torch.bfloat16, "c": torch.float32, "d": torch.float64,
             "e": torch.int64, "f": torch.uint8}  # fmt: skip
    state = {name: torch.ones(3).to(kind) for name, kind in kinds.items()}
    weights.write(state, tmp_path / "x.safetensors")
    found = weights.read(tmp_path / "x.safetensors")
    single = torch.float32
    expected = kinds | {"a": single, "b": single}
    assert {name: value.dtype for name, value in found.items()} == expected


def test_tensors_that_do_not_fit_are_named():
    network = gpt2()
    make, state = (lambda: gpt2()), network.state_dict()
    found = weights.build_with_weights(make, state, "x")
    assert torch.equal(found.token.weight, network.token.weight)
    assert not found.training
    rest = {name: value for name, value in state.items() if name != "norm.bias"}
    with pytest.raises(GlassError, match=r"x is missing the tensors norm\.bias"):
        weights.build_with_weights(make, rest, "x")
    with pytest.raises(GlassError, match="has unexpected tensors: more"):
        weights.build_with_weights(make, {**state, "more": torch.ones(1)}, "x")
    for value, message in (
        (torch.ones(17), r"norm\.bias: expected shape \(16,\) from the config, got \(17,\)"),
        (torch.ones(16).long(), "expected floating point, got int64"),
        (torch.full((16,), float("nan")), "not finite"),
        (torch.full((16,), float("inf")), "not finite"),
    ):
        with pytest.raises(GlassError, match=message):
            weights.build_with_weights(make, {**state, "norm.bias": value}, "x")


def test_weights_of_mixed_precision_become_single():
    state = gpt2().state_dict()
    mixed = {**state, "norm.bias": state["norm.bias"].double()}
    found = weights.build_with_weights(gpt2, mixed, "x")
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    double = {name: value.double() for name, value in state.items()}
    found = weights.build_with_weights(gpt2, double, "x")
    assert {p.dtype for p in found.parameters()} == {torch.float64}


def test_a_long_list_of_names_is_shortened():
    assert weights.list_some("cab") == "a, b, c"
    assert weights.list_some("abcdef") == "a, b, c, d, e, f"
    assert weights.list_some("abcdefgh") == "a, b, c, d, e, f and 2 more"


def test_a_weight_file_has_the_permissions_of_its_folder(tmp_path):
    tmp_path.chmod(0o750)
    weights.write({"a": torch.ones(2, 3).T}, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").stat().st_mode & 0o777 == 0o640
    assert weights.read(tmp_path / "x.safetensors")["a"].shape == (3, 2)


def test_a_model_is_identified_by_its_class():
    assert model_name(CASES["bert_encoder"].network) == "bert_encoder"
    assert find_model("gpt2") is MODELS["gpt2"]
    with pytest.raises(GlassError, match="unknown model 'gpt3'; did you mean 'gpt2'"):
        find_model("gpt3")
    with pytest.raises(GlassError, match="is not a registered model"):
        model_name(torch.nn.Linear(1, 1))
    network = build_model("gpt2", {"vocab": 9, "dim": 8, "depth": 1, "heads": 2, "context": 4})
    assert (network.config.vocab, network.context) == (9, 4)


# --- predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "codec"),
    [("gpt2", GenerateCodec), ("bert", FillMaskCodec), ("classifier", ClassifyCodec),
     ("bert_encoder", ClassifyCodec), ("translator", TranslateCodec), ("nb_svm", ClassifyCodec),
     ("phrase_table", TranslateCodec), ("markov", GenerateCodec), ("neighbors", FillMaskCodec)],
)  # fmt: skip
def test_the_codec_follows_the_task_or_else_the_traits_of_the_network(name, codec):
    words = letters(special_tokens=("<unk>", "<start>", "<end>"))
    network = CASES[name].network
    assert type(codec_for(network, Artifacts(tokenizer=words))) is codec
    with_task = Artifacts({"name": "generate"}, words)
    assert type(codec_for(network, with_task)) is GenerateCodec
    with pytest.raises(GlassError, match="has no tokenizer"):
        codec_for(network, Artifacts())
    assert set(CODECS) < set(Trait)


def test_examples_are_predicted_in_batches_and_in_order():
    class Echo:
        batch_size = 3
        seen = []

        def encode(self, examples, context=None):
            self.seen.append((list(examples), context))
            return {"ids": torch.tensor(examples)}

        def run(self, network, batch, plus=0):
            return batch["ids"] + plus

        def decode(self, output):
            return output.tolist()

    codec = Echo()
    found = list(predict(CASES["gpt2"].network, codec, [1, 2, 3, 4, 5, 6, 7], plus=10))
    assert found == [11, 12, 13, 14, 15, 16, 17]
    assert codec.seen == [([1, 2, 3], 32), ([4, 5, 6], 32), ([7], 32)]
    assert list(predict(CASES["gpt2"].network, codec, [])) == []


def test_each_codec_has_its_batch_size():
    sizes = [codec.batch_size for codec in (ClassifyCodec, FillMaskCodec, TranslateCodec)]
    assert sizes == [32, 32, 16]
    assert GenerateCodec.batch_size == 1


@torch.no_grad()
def test_an_embedding_is_the_mean_over_the_real_tokens_of_a_text():
    network, words = CASES["gpt2"].network, letters()
    found = embed_texts(network, words, ["ab", "abcd", "c"], batch_size=2)
    assert found.dtype == np.float32
    for text, vector in zip(["ab", "abcd", "c"], found, strict=True):
        features = network.features(torch.tensor([words.encode(text)]))[0]
        np.testing.assert_allclose(vector, features.mean(dim=0).numpy(), atol=1e-5)
    assert embed_texts(network, words, []).shape == (0, 32)
    with pytest.raises(GlassError, match="cannot embed texts with markov"):
        embed_texts(CASES["markov"].network, words, ["a"])


def test_inputs_are_encoded_as_for_prediction():
    words = letters(special_tokens=("<unk>", "<start>", "<end>"))
    network = CASES["translator"].network
    found = inputs_for(network, words, "ab", "cd")
    assert found["ids"].tolist() == [[1, *words.encode("cd")]]
    assert found["source"].tolist() == [words.encode("ab")]
    own = inputs_for(network, words, "ab")
    codec = TranslateCodec(Artifacts(tokenizer=words))
    assert own["ids"].tolist() == [[1, *codec.run(network, codec.encode(["ab"]))[0]]]
    assert inputs_for(CASES["gpt2"].network, letters(), "ab")["ids"].tolist() == [
        letters().encode("ab")
    ]
    assert inputs_for(network, words, "ab", "")["ids"].tolist() == [[1]]
    with pytest.raises(GlassError, match="the text is empty"):
        inputs_for(CASES["gpt2"].network, letters(), "")


class Alphabet(Network):
    """Predicts the letter after each letter."""

    traits = frozenset({Trait.CAUSAL_LM, Trait.CACHED})

    def __init__(self):
        super().__init__(SimpleNamespace(vocab=50, context=None))
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def cache(self, capacity):
        return SimpleNamespace(length=0)

    def forward(self, ids, keep=None, cache=None):
        return torch.nn.functional.one_hot((ids + 1) % 50, 50).float() * 99


def test_a_stream_continues_its_prompt_and_stops():
    words = letters()
    codec = GenerateCodec(Artifacts({"eos": [words.encode("h")[0]]}, words))
    assert "".join(stream_text(Alphabet(), codec, "abc")) == "defg"
    assert "".join(stream_text(Alphabet(), codec, "abc", max_new_tokens=2)) == "de"
    assert "".join(stream_text(Alphabet(), codec, "abc", stop=["fg"])) == "de"
    assert codec.decode(codec.run(Alphabet(), codec.encode(["e"]))) == ["fg"]


def test_what_a_model_cannot_do_is_refused():
    model = Model(gpt2(), letters())
    for attempt, message in (
        (lambda: model.classify("a"), "not trained to classify"),
        (lambda: model.translate("a"), "not trained to translate"),
        (lambda: model.fill_mask("a [MASK]"), "not trained to fill masks"),
        (lambda: Model(gpt2()).generate("a"), "has no tokenizer"),
        (lambda: model.generate("a", max_new_tokens=-1), "max_new_tokens must be"),
        (lambda: model.draw("no such", "a"), "unknown plot 'no such'"),
        (lambda: Model(classifier(), letters()).stream("a"), "not trained to generate"),
    ):
        with pytest.raises(GlassError, match=message):
            attempt()
    pairs = Model(classifier(), letters(), {"labels": ["x", "y"], "text": ["a", "b"]})
    with pytest.raises(GlassError, match=r"expects 2 texts \(a, b\)"):
        pairs.classify(["one"])
    single = Model(classifier(), letters(), {"labels": ["x", "y"]})
    with pytest.raises(GlassError, match=r"expects 1 text \(text\)"):
        single.classify([("one", "two")])
    assert set(single.classify("one")) == {"x", "y"}
    assert [set(answer) for answer in single.classify(["one", "two"])] == [{"x", "y"}] * 2


@pytest.mark.parametrize("penalty", [11.0, -11.0, float("nan")])
def test_a_length_penalty_out_of_range_is_refused(penalty):
    words = letters(special_tokens=("<unk>", "<start>", "<end>"))
    model = Model(CASES["translator"].network, words)
    with pytest.raises(GlassError, match="length_penalty must be"):
        model.translate("ab", length_penalty=penalty)


def test_the_translation_of_an_empty_text_is_empty():
    words = letters(special_tokens=("<unk>", "<start>", "<end>"))
    model = Model(CASES["phrase_table"].network, words)
    assert model.translate(["", "  ", "ab"])[:2] == ["", ""]
    assert model.translate("") == ""
    assert isinstance(model.translate("ab"), str)


def test_a_saved_model_is_loaded_unchanged(tmp_path):
    model = Model(classifier(), letters(), {"name": "classify", "labels": ["x", "y"]})
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.name, again.task) == ("classifier", model.task)
    assert again.classify("abc") == pytest.approx(model.classify("abc"))
    size = sum(p.numel() for p in model.network.parameters())
    assert (
        repr(model) == f"<glassformer.Model classifier: {size:,} parameters, tokenizer: characters>"
    )
    with pytest.raises(GlassError):
        model.save(tmp_path / "m")
    model.save(tmp_path / "m", overwrite=True)


def test_the_answer_is_the_most_likely_label_if_it_reaches_the_threshold():
    model, probs = Model(classifier(), letters(), {"labels": ["x", "y"]}), {"y": 0.7, "x": 0.3}
    found = [model.choose_labels(probs, threshold) for threshold in (None, 0.0, 0.7, 0.71)]
    assert found == [["y"], ["y"], ["y"], []]
    assert model.predict_label(probs, ("abc",)) == ("y", 0.7)
    assert model.predict_label(probs, ("abc",), threshold=0.8) == (None, 0.7)
    assert model.predict_label(probs, ("ab一二",)) == ("y", 0.7)  # half of the tokens are unknown
    assert model.predict_label(probs, ("a一", "二")) == (None, 0.7)  # two of three are


def test_of_several_labels_all_from_the_threshold_are_chosen_in_the_order_of_the_labels():
    task = {"labels": ["x", "y", "z"], "multi_label": True}
    model, probs = Model(classifier(3), letters(), task), {"y": 0.7, "x": 0.5, "z": 0.2}
    assert model.choose_labels(probs) == ["x", "y"]
    assert model.choose_labels(probs, 0.0) == ["x", "y", "z"]
    assert model.choose_labels(probs, 0.51) == ["y"]
    assert model.predict_label(probs, ("abc",), threshold=0.9) == ("", 0.7)
    model.task["threshold"] = 0.2
    assert model.predict_label(probs, ("abc",)) == ("x|y|z", 0.7)


def test_probabilities_have_a_column_for_each_label_in_their_order():
    model = Model(classifier(), letters(), {"labels": ["x", "y"]})
    model.classify = lambda _texts: [{"y": 0.75, "x": 0.25}, {"x": 0.5, "y": 0.5}]
    assert model.predict_proba(["a", "b"]).tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert model.predict(["a", "b"], threshold=0.6) == ["y", None]


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_an_evaluation_on_other_data_agrees_with_the_probabilities_of_classify(
    tmp_path, temperature
):
    """Both divide the logits by the temperature that was fitted in training."""
    task = {"name": "classify", "text": ["text"], "label": "label", "labels": ["x", "y"]}
    model = Model(classifier(), letters(), task | {"temperature": temperature})
    with torch.no_grad():
        model.network.head.weight.mul_(20)
    model.save(tmp_path / "model")
    rows = [("abc", "x"), ("dea", "y"), ("bbb", "x"), ("fa", "y")]
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    found = model.classify([text for text, _ in rows])
    expected = -sum(math.log(probs[label]) for probs, (_, label) in zip(found, rows, strict=True))
    assert evaluate(tmp_path / "model", (file,))["loss"] == pytest.approx(expected / 4, rel=1e-4)


def test_summarize_passes_on_its_options_and_one_text_gives_one_summary(monkeypatch):
    words = letters(special_tokens=("<unk>", "<sep>", "<end>"))
    model, seen = Model(CASES["summarizer"].network, words), []

    def fake(_network, _codec, texts, **options):
        seen.append((texts, options))
        return (f"summary of {text}" for text in texts)

    monkeypatch.setattr("glassformer.api.predict", fake)
    model.extract = lambda text, *, title=None: f"{text} about {title}"
    options = {"beam": 3, "length_penalty": 1.5}
    assert model.summarize(["a", "b"], **options) == ["summary of a", "summary of b"]
    assert model.summarize("a") == "summary of a about None"
    assert model.summarize(["a", "b"], title="T") == "summary of a\n\nb about T"
    assert seen[0] == (["a", "b"], {"beam_size": 3, "length_penalty": 1.5})
    assert seen[1][1] == {"beam_size": 1, "length_penalty": 0.6}


def test_the_functions_of_python_pass_on_their_options(monkeypatch, tmp_path):
    calls = []

    def record(name, result):
        fake = lambda *args, **options: calls.append((args, options)) or result
        monkeypatch.setattr(f"glassformer.{name}", fake)

    record("checkpoint.open_model", (gpt2(), letters(), {"name": "generate"}))
    load("m", ignore=["a"], tokenizer="t.bin")
    assert calls.pop() == ((Path("m"), ["a"]), {"tokenizer": Path("t.bin")})
    record("training.evaluate.evaluate", {"loss": 1.0})
    options = {"text": "x", "plot": "p.png", "predictions": "p.csv", "skip_bad": True}
    assert glassformer.evaluate("run", "a.csv", **options) == {"loss": 1.0}
    paths = {"plot": Path("p.png"), "predictions": Path("p.csv")}
    expected = {"text": ("x",), "skip_bad": True, **paths}
    assert calls.pop() == ((Path("run"), (Path("a.csv"),)), expected)
    trained = Model(gpt2())
    trained.metrics = Metrics({"run": "r"})
    glassformer.evaluate(trained)  # its own validation data
    assert calls.pop() == ((Path("r"), ()), {})
    record("training.compare.compare", (tmp_path, [{"name": "a"}]))
    assert glassformer.compare("classify", "a.csv", models="a,b", steps=3) == [{"name": "a"}]
    args, options = calls.pop()
    assert (args, options.pop("reporter") is None) == (("classify", "a.csv"), False)
    assert options == {"models": ["a", "b"], "steps": 3}
    record("training.resume.resume", {"run": "r", "steps": 9})
    assert glassformer.resume("r", minutes=0.5).metrics["steps"] == 9
    assert calls[0] == ((Path("r"),), {"minutes": 0.5})


# --- tokenizers -----------------------------------------------------------------------------------


def test_tokens_are_ordered_by_frequency():
    words = Words.train(["b a c a b a d"], vocab=4, special_tokens=("<unk>", "<x>"))
    assert words.tokens == ("<unk>", "<x>", "a", "b")
    assert words.encode("a b c") == [2, 3, 0]
    twice = Words.train(["b a c a b a d"], min_count=2)
    assert twice.tokens == ("<unk>", "a", "b")
    assert Words.train(["b a c"]).tokens == ("<unk>", "a", "b", "c")
    assert Words.train(["b a"], vocab=1).tokens == ("<unk>",)


def test_an_extended_tokenizer_keeps_its_ids():
    words = Words.train(["a b"], special_tokens=("<unk>", "<x>"))
    longer = words.extend(["c d d a"])
    assert longer.tokens == ("<unk>", "<x>", "a", "b", "d", "c")
    assert longer.special_tokens == words.special_tokens
    assert type(longer) is Words
    with pytest.raises(ValueError, match="tokens must be distinct"):
        Words(["a", "a"])
    with pytest.raises(ValueError, match="special_tokens must include <unk>"):
        Words(["a"], ["<x>"])


def test_unknown_ids_are_decoded_as_replacement_characters():
    words = Characters("ab")
    assert words.decode([1, 2, 9]) == "ab\ufffd"
    assert words.token(0) == "<unk>"
    assert Bytes(("<x>",)).token(256) == "<x>"
    assert Bytes(("<x>",)).token(257) == "\ufffd"
    assert [Bytes().token(i) for i in (32, 33, 126, 127, 10, 200)] == [
        "20",
        "!",
        "~",
        "7f",
        "0a",
        "c8",
    ]
    assert Bytes(("<x>",)).decode([97, 256, 98]) == "a<x>b"
    assert clean("a\ud800b") == "a\ufffdb"
    assert clean("a😀") == "a😀"


def test_text_is_split_into_words_punctuation_and_single_ideographs():
    assert split_words("It's a cat, isn't it?") == ["It's", "a", "cat", ",", "isn't", "it", "?"]
    assert split_words("ab你好c 3.5") == ["ab", "你", "好", "c", "3", ".", "5"]
    assert split_words("'quoted' a_b") == ["'", "quoted", "'", "a_b"]


def test_long_words_are_split_before_training():
    assert split_long_words("a" * 1000 + "b") == "a" * 1000 + " b"
    assert split_long_words("a" * 999) == "a" * 999
    assert split_long_words("a b") == "a b"


def test_letters_take_a_quarter_of_the_vocabulary_and_words_with_others_are_dropped():
    counts = Counter({"aab": 5, "abc": 2, "xy": 1})
    kept, words = choose_characters(counts, vocab=12)
    assert kept == ["a", "b", "c", "##a", "##b", "##c"]
    assert words == Counter({"aab": 5, "abc": 2})
    kept, words = choose_characters(counts, vocab=8)
    assert kept == ["a", "b", "##a", "##b"]
    assert list(repeat_words(Counter({"ab": 5}), max_words=2)) == ["ab ab", "ab ab", "ab"]


def test_pieces_have_readable_names():
    bpe = BPE.train(["ab ab ab"], vocab=258)
    assert bpe.vocab == 258
    a, half = bpe.encode("ab")[0], bpe.encode("ä")[0]
    assert bpe.token(a) == "ab"
    assert bpe.token(half) == "c3"
    assert bpe.token(bpe.special_tokens["<|endoftext|>"]) == "<|endoftext|>"
    assert bpe.special_tokens["<|endoftext|>"] == 257  # after all others
    assert len(CHAR_TO_BYTE) == 256
    pieces = WordPiece.train(["The cats sat"] * 5, vocab=60)
    assert pieces.encode("the") == pieces.encode("THE")
    assert "[UNK]" in pieces.special_tokens
    cased = WordPiece.train(["The cats sat"] * 5, vocab=60, lower=False)
    assert cased.encode("The") != cased.encode("THE")


def test_a_prefix_is_put_before_each_text():
    bpe = BPE.train(["ab ab ab"], vocab=258)
    assert bpe.prefix == []
    marked = bpe.with_prefix("<|endoftext|>")
    assert marked.prefix == [257]
    assert marked.encode("ab") == bpe.encode("ab")
    assert marked.with_prefix(None).prefix == []


def test_scored_pieces_fall_back_to_bytes():
    texts = [b"<unk>", b"<s>", b"</s>", b"<0x61>", b"<0xC3>", b" ", b"b", b"c", b"bc", b" b"]
    words = ScoredTokenizer(texts, [0.0] * 8 + [-1.0, -2.0])
    assert words.encode("bc") == [5, 8]  # the pair with the higher score is merged first
    assert words.encode("a") == [5, 3]
    assert words.encode("ä") == [5, 4, 0]  # a byte without a piece is unknown
    assert words.encode("") == []
    assert words.decode([5, 8]) == "bc"
    assert words.decode([3]) == "a"
    assert (words.prefix, words.special_tokens["</s>"]) == ([1], 2)
    for pieces, scores in (([b"a"] * 2, [0.0] * 2), ([b"a"] * 4, [0.0] * 3)):
        with pytest.raises(ValueError, match="expected at least 3 pieces and a score for each"):
            ScoredTokenizer(pieces, scores)


# --- settings and other details -------------------------------------------------------------------


@pytest.mark.parametrize("name", BOUNDS)
def test_the_bounds_are_allowed_and_values_beyond_them_are_not(name):
    low, high = BOUNDS[name]
    check_bounds({name: low})
    check_bounds({name: high})
    check_bounds({name: None})
    step = 1 if isinstance(low, int) and isinstance(high, int) else 1e-9 * max(abs(high), 1e-30)
    for wrong in (low - max(step, abs(low)), high + max(step, abs(high) * 1e-6), True, "1"):
        with pytest.raises(GlassError, match=f"{name} must be"):
            check_bounds({name: wrong})
    if not isinstance(high, int):
        with pytest.raises(GlassError, match="must be finite"):
            check_bounds({name: float("nan")})


def test_numbers_and_durations_are_formatted_for_people():
    found = [format_value(v) for v in (1234567, 0.123456, 1234.5, -2000.4, 999.94, "x", 12.0)]
    assert found == ["1,234,567", "0.1235", "1,234", "-2,000", "999.9", "x", "12"]
    assert [format_duration(s) for s in (0, 59.6, 3599, 3600)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:00:00",
    ]


def test_errors_suggest_the_new_name_of_a_renamed_setting():
    assert did_you_mean("rate", ["lr", "grate"]) == "; did you mean 'lr'?"
    assert did_you_mean("rate", ["other"]) == ""
    assert did_you_mean("lrr", ["lr"]) == "; did you mean 'lr'?"
    assert did_you_mean("nolesson", LESSONS) == ""  # "position" is not like it
    assert did_you_mean("nopicture", PLOTS) == ""
    assert did_you_mean("sumarize", TASKS) == "; did you mean 'summarize'?"
    assert did_you_mean("bpee", TOKENIZERS) == "; did you mean 'bpe'?"
    with pytest.raises(GlassError, match="unknown setting 'batch'; did you mean 'batch_size'"):
        override(TrainingSettings(), "batch=3")
    with pytest.raises(GlassError, match=r"unknown setting 'train.learning_rate'.*'train.lr'\?$"):
        override(TrainingSettings(), "learning_rate=3", where="train.")


def test_errors_about_an_unknown_setting_name_the_command_that_lists_them():
    with pytest.raises(GlassError, match=r"'train\.zz'; `glass models --training` lists the train"):
        override(TrainingSettings(), "zz=3", where="train.")
    with pytest.raises(GlassError, match=r"'model\.zz'; `glass models TASK` lists the model"):
        override(MODELS["gpt2"].Config(), "zz=3", where="model.")


def test_memory_errors_are_recognized_by_their_message():
    assert is_memory_error(MemoryError())
    for text in ("can't allocate memory", "CUDA out of memory", "not enough memory: x"):
        assert is_memory_error(RuntimeError(text))
    assert not is_memory_error(RuntimeError("shapes do not match"))


def test_processes_share_the_rows_of_a_batch():
    batch = {"ids": torch.arange(5), "targets": torch.arange(5) + 10}
    parts = [World(rank, 2).shard(batch) for rank in range(2)]
    assert [part["ids"].tolist() for part in parts] == [[0, 2, 4], [1, 3]]
    assert parts[1]["targets"].tolist() == [11, 13]
    assert World().shard(batch) is batch
    assert (World().broadcast(3), World().all_reduce(4)) == (3, 4)


def test_a_file_that_is_not_safetensors_is_named(tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"nonsense")
    with pytest.raises(GlassError, match="is corrupted or not a safetensors file"):
        weights.read(file)
    save_file({"a": torch.ones(2)}, file)
    assert list(weights.read(file)) == ["a"]


def test_a_manifest_lists_every_file_with_its_size(tmp_path):
    checkpoint.save(
        tmp_path / "m", gpt2(), letters(), write_extra=lambda f: (f / "more").write_text("abc")
    )
    listed = json.loads((tmp_path / "m" / "manifest.json").read_text())["files"]
    assert sorted(listed) == ["config.toml", "model.safetensors", "more", "tokenizer.json"]
    assert listed["more"]["bytes"] == 3
