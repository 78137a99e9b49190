"""Folders that were made to break something: each is refused in one line, and nothing hangs."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cases import CASES
from glassformer import MODELS, GlassError, Model, load, text
from glassformer.core import folder
from glassformer.core.folder import find_subfolder, safe_join, wrap_read_errors, write_manifest
from glassformer.text.components import MOST_GROWTH, REGEXES, check_components, is_linear
from glassformer.text.plain import Bytes, Characters
from glassformer.text.scored import ScoredTokenizer
from glassformer.text.subword import BERT_SPECIAL_TOKENS, BPE, WordPiece
from glassformer.text.tokenizer import REPLACEMENT
from glassformer.training.run import damage

SAMPLE = ["the cat sat on the mat and the dog sat on the log"] * 3


def sign(path):
    (path / "manifest.json").unlink(missing_ok=True)
    write_manifest(path)


def refused(path, match):
    with pytest.raises(GlassError, match=match) as error:
        load(path)
    assert "\n" not in str(error.value)


@pytest.fixture
def ours(tmp_path):
    Model(CASES["generator"].network, Characters("abc")).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def theirs(tmp_path):
    Model(CASES["gpt2"].network).save(tmp_path / "gpt2", format="huggingface")
    return tmp_path / "gpt2"


def change(path, **values):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **values}))


# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["GPT2LMHeadModel", [3], {"a": 1}, [["GPT2LMHeadModel"]], 3])
def test_architectures_are_a_list_of_names(theirs, wrong):
    change(theirs / "config.json", architectures=wrong)
    refused(theirs, "architectures to be a list of names")


def test_a_link_to_itself_is_refused(ours):
    for name in ("config.toml", "model.safetensors", "manifest.json"):
        (ours / name).rename(ours.parent / "aside")
        (ours / name).symlink_to(ours / name)
        refused(ours, "leads out of the folder|has no file|is not a model folder")
        assert damage_of(ours)
        (ours / name).unlink()
        (ours.parent / "aside").rename(ours / name)
    assert load(ours)


def damage_of(path):
    try:
        return damage(path)
    except GlassError as error:
        return str(error)


def test_weights_that_are_no_numbers_are_refused(ours):
    file = ours / "model.safetensors"
    state = load_file(file)
    for wrong in (float("nan"), float("inf")):
        state["head.bias"][3] = wrong
        save_file(state, file)
        sign(ours)
        refused(ours, "head.bias has values that are not finite")


def test_what_does_not_fit_together_is_refused(ours, tmp_path):
    Model(CASES["generator"].network, Bytes()).save(tmp_path / "bytes")
    refused(tmp_path / "bytes", "the tokenizer has 256 tokens, the network only 50")
    classifier = Model(CASES["classifier"].network, Characters("abc"), {"labels": ["a", "b"]})
    classifier.save(tmp_path / "labels")
    refused(tmp_path / "labels", "has 2 labels, but its network has 3 classes")
    for wrong in ('labels = "abc"', "labels = [1, 2, 3]", 'eos = "x"'):
        file = tmp_path / "labels" / "config.toml"
        file.write_text(file.read_text().partition("[task]")[0] + f"[task]\n{wrong}\n")
        sign(tmp_path / "labels")
        refused(tmp_path / "labels", "to be a list")


def test_labels_need_a_network_that_sorts_texts(tmp_path):
    bert = CASES["bert"].network
    Model(bert, Characters("abc"), {"labels": ["a", "b"]}).save(tmp_path / "labels")
    refused(tmp_path / "labels", "has labels, but its network is not a classifier")


def test_best_must_be_in_its_run(ours, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(ours)
    refused(run, "best is a link that leads out of")
    with pytest.raises(GlassError, match="leads out of"):
        damage(run)
    (run / "best").unlink()
    shutil.copytree(ours, run / "best")
    assert load(run).name == "generator"
    assert find_subfolder(run, "last") is None


def test_a_folder_that_may_not_be_read_is_told_so(ours, monkeypatch):
    def denied(self, *_args, **_more):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.is_file", denied)
    with pytest.raises(GlassError, match=r"manifest\.json: Permission denied"):
        safe_join(ours, "manifest.json")


def adapter(path, base):
    """A folder that says it is an adapter for another."""
    path.mkdir()
    settings = {"vocab": 50, "context": 32, "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0}
    lines = [f"{name} = {value}" for name, value in settings.items()]
    base_table = [f"[adapter]\nrank = 2\nbase = {json.dumps(str(base))}\nsha256 = 'x'"]
    (path / "config.toml").write_text("\n".join(["[model]\nname = 'gpt2'", *lines, *base_table]))
    save_file({"x": torch.zeros(1)}, path / "adapter.safetensors")
    sign(path)
    return path


def test_adapters_that_name_each_other_end(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.checkpoint.fingerprint", lambda _path: "x")
    one = adapter(tmp_path / "one", tmp_path / "two")
    adapter(tmp_path / "two", one)
    refused(one, "more than 8 adapters are stacked")


@pytest.mark.parametrize("base", ["a\0b", "x" * 5000, ""])
def test_a_base_that_no_folder_can_be_is_refused(tmp_path, base):
    refused(adapter(tmp_path / "one", base), str(tmp_path / "one"))


def test_any_failure_to_read_becomes_one_line_that_names_the_file(tmp_path):
    for error in (
        KeyError("x"), TypeError("several\nlines"), RecursionError(), EOFError(), OSError(5, "bad"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), RuntimeError("x"), GlassError("x"),
    ):  # fmt: skip
        with (
            pytest.raises(GlassError, match="some-file") as found,
            wrap_read_errors(tmp_path / "some-file"),
        ):
            raise error
        assert "\n" not in str(found.value)
    with pytest.raises(MemoryError), wrap_read_errors(tmp_path):
        raise MemoryError
    with pytest.raises(RuntimeError, match="allocate memory"), wrap_read_errors(tmp_path):
        raise RuntimeError("can't allocate memory")


def test_an_error_of_writing_names_the_file(tmp_path):
    with (
        pytest.raises(OSError, match="some-file"),
        folder.wrap_write_errors(tmp_path / "some-file"),
    ):
        raise OSError(28, "No space left on device")


# --- tokenizers -----------------------------------------------------------------------------------


def bpe_json(tmp_path, **parts):
    content = json.loads(BPE.train(SAMPLE, vocab=280).to_json())
    for path, value in parts.items():
        *outer, last = path.split("__")
        holder = content
        for name in outer:
            holder = holder[name]
        holder[last] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    return tmp_path / "tokenizer.json"


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
REGEX = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a|aa)+b"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 10}}, "1,024 times longer"),
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 40}}, "40 components"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 999}}, "1,000 times longer"),
        ({"normalizer": REGEX}, r"pattern .*\(a\+\)\+\$.* is not one that is known"),
        ({"pre_tokenizer": SPLIT}, "is not one that is known to be harmless"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "not supported"),
        ({"pre_tokenizer": {"type": "Unheard"}}, "'Unheard', which is not supported"),
        (
            {"pre_tokenizer": {"type": "Sequence", "normalizers": [], "pretokenizers": [SPLIT]}},
            "is not one that is known to be harmless",
        ),
        ({"pre_tokenizer": {"type": "Sequence", "normalizers": []}}, "pretokenizers"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 2**40, "stop": 0}}, "strips"),
        ({"model__vocab__a": 2**33}, "the id of 'a' is 8589934592"),
        ({"model__vocab__a": -1}, "the id of 'a' is -1"),
        ({"model__unk_token": "absent"}, "unknown token 'absent' is not in the vocabulary"),
        ({"model__dropout": 0.5}, "leaves out merges"),
        ({"model__merges": [["", "a"]]}, "damaged"),
        ({"added_tokens": [{"id": 3, "content": ""}]}, "a token is ''"),
        ({"model": {"type": "BPE"}}, "damaged"),
    ],
)
def test_what_a_tokenizer_may_not_hold_is_refused_by_name(tmp_path, parts, message):
    with pytest.raises(GlassError, match=message) as error:
        text.load(bpe_json(tmp_path, **parts))
    assert "\n" not in str(error.value)
    assert "tokenizer.json" in str(error.value)


def test_words_of_wordpiece_have_a_length(tmp_path):
    content = json.loads(WordPiece.train(SAMPLE, vocab=80).to_json())
    content["model"]["max_input_chars_per_word"] = 10**9
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(GlassError, match="max_input_chars_per_word is 1000000000"):
        text.load(tmp_path / "tokenizer.json")


def test_padding_that_a_tokenizer_asks_for_is_not_done(tmp_path):
    padding = {
        "strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0,
        "pad_token": "x", "pad_to_multiple_of": None,
    }  # fmt: skip
    loaded = text.load(bpe_json(tmp_path, padding=padding))
    assert loaded.encode("cat") == BPE.train(SAMPLE, vocab=280).encode("cat")


def test_the_tokenizers_of_gpt2_bert_and_llama_are_allowed():
    llama = {
        "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1}, "merges": [], "unk_token": "<unk>"},
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    }  # fmt: skip
    check_components(llama)
    for regex in REGEXES:
        split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}
        check_components({**llama, "pre_tokenizer": split})
    check_components(json.loads(BPE.train(SAMPLE, vocab=280).to_json()))
    check_components(json.loads(WordPiece.train(SAMPLE, vocab=80).to_json()))
    assert MOST_GROWTH > 2


@pytest.mark.parametrize(
    ("regex", "harmless"),
    [
        ("[\\r\\n]", True), (r"\s?\p{L}+", True), (r"\s?\p{P}+", True), ("[一-龥가-힣]+", True),
        (r"\p{N}+|\s+", True), (r"[^\s]", True), ("a?b+", True),
        ("(a+)+$", False), ("a+b", False), ("a*a*b", False), ("(a|aa)+b", False), ("[a", False),
        (r"\s+(?!\S)", False), ("a{2,}b", False), ("^a+$", False),
    ],
)  # fmt: skip
def test_a_regular_expression_is_allowed_if_it_cannot_go_back(regex, harmless):
    assert is_linear(regex) is harmless


def test_a_special_token_that_the_network_does_not_know_is_left_out(tmp_path):
    """As in models whose padding was added to the tokenizer alone."""
    tokenizer = BPE.train(SAMPLE, vocab=280, special_tokens=("<s>", "<pad>"))
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=tokenizer.vocab - 1, context=16, dim=16, depth=1, heads=2))
    Model(network, tokenizer).save(tmp_path / "m")
    model = load(tmp_path / "m")
    assert "<pad>" not in model.tokenizer.special_tokens
    assert model.generate("the", max_new_tokens=3, temperature=0.0)
    small = kind(kind.Config(vocab=200, context=16, dim=16, depth=1, heads=2))
    Model(small, tokenizer).save(tmp_path / "small")
    refused(tmp_path / "small", "the network only 200")


def test_merges_with_an_empty_half_are_refused(tmp_path):
    vocab = json.loads(BPE.train(SAMPLE, vocab=280).to_json())["model"]["vocab"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    for wrong in ("a ", " a", "a", "a b c", "zzz zzz"):
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{wrong}\n")
        with pytest.raises(GlassError, match=r"merges\.txt: merge 1"):
            BPE.read(tmp_path / "vocab.json", tmp_path / "merges.txt")
    (tmp_path / "vocab.json").write_text(json.dumps({**vocab, "a": 2**32 + 1}))
    with pytest.raises(GlassError, match=r"vocab\.json: the id of 'a'"):
        BPE.read(tmp_path / "vocab.json", tmp_path / "merges.txt")


@pytest.mark.parametrize(
    "tokenizer",
    [
        Bytes(["<end>"]),
        Characters("abc"),
        ScoredTokenizer([b"<unk>", b"<s>", b"</s>", b"a"], [0.0] * 4),
    ],
    ids=lambda tokenizer: tokenizer.kind,
)
def test_an_id_that_is_no_token_is_shown_and_not_an_error(tokenizer):
    assert tokenizer.decode([tokenizer.vocab, 10**6]) == REPLACEMENT * 2
    assert tokenizer.token(tokenizer.vocab) == REPLACEMENT


def test_very_long_words_do_not_stop_a_tokenizer_from_learning():
    text = "a" * 200_000 + " " + SAMPLE[0]
    for kind in (BPE, WordPiece):
        tokenizer = kind.train([text] * 2, vocab=300)
        assert tokenizer.vocab > 256 or kind is WordPiece
        assert tokenizer.encode("the cat")
    assert set(BERT_SPECIAL_TOKENS) <= WordPiece.train([text], vocab=80).special_tokens.keys()
