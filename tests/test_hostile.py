"""Hostile and corrupted folders give one-line errors, and none makes the program hang."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cases import CASES
from glassformer import MODELS, GlassError, Model, load, text
from glassformer.core import folder
from glassformer.core.folder import find_subfolder, safe_join, wrap_read_errors, write_manifest
from glassformer.text.components import MAX_GROWTH, REGEXES, check_components, is_linear
from glassformer.text.plain import Bytes, Characters
from glassformer.text.scored import ScoredTokenizer
from glassformer.text.subword import BERT_SPECIAL_TOKENS, BPE, WordPiece
from glassformer.text.tokenizer import REPLACEMENT
from glassformer.training.run import find_damage

SAMPLE = ["the cat sat on the mat and the dog sat on the log"] * 3


def update_manifest(path):
    (path / "manifest.json").unlink(missing_ok=True)
    write_manifest(path)


def assert_rejected(path, match):
    with pytest.raises(GlassError, match=match) as error:
        load(path)
    assert "\n" not in str(error.value)


@pytest.fixture
def model_folder(tmp_path):
    Model(CASES["generator"].network, Characters("abc")).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def hugging_face_folder(tmp_path):
    Model(CASES["gpt2"].network).save(tmp_path / "gpt2", format="huggingface")
    return tmp_path / "gpt2"


def update_json(path, **values):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **values}))


# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("invalid", ["GPT2LMHeadModel", [3], {"a": 1}, [["GPT2LMHeadModel"]], 3])
def test_architectures_must_be_a_list_of_names(hugging_face_folder, invalid):
    update_json(hugging_face_folder / "config.json", architectures=invalid)
    assert_rejected(hugging_face_folder, "expected architectures to be a list of names")


def test_a_link_to_itself_is_rejected(model_folder):
    for name in ("config.toml", "model.safetensors", "manifest.json"):
        file, backup = model_folder / name, model_folder.parent / "backup"
        file.rename(backup)
        file.symlink_to(file)
        assert_rejected(model_folder, "points outside the folder|has no file|is not a model folder")
        assert list_damage(model_folder)
        file.unlink()
        backup.rename(file)
    assert load(model_folder)


def list_damage(path):
    try:
        return find_damage(path)
    except GlassError as error:
        return str(error)


def test_weights_that_are_not_finite_are_rejected(model_folder):
    file = model_folder / "model.safetensors"
    state = load_file(file)
    for invalid in (float("nan"), float("inf")):
        state["head.bias"][3] = invalid
        save_file(state, file)
        update_manifest(model_folder)
        assert_rejected(model_folder, "head.bias has values that are not finite")


def test_a_tokenizer_or_labels_that_do_not_fit_the_network_are_rejected(model_folder, tmp_path):
    Model(CASES["generator"].network, Bytes()).save(tmp_path / "bytes")
    assert_rejected(tmp_path / "bytes", "the tokenizer has 256 tokens, the network only 50")
    classifier = Model(CASES["classifier"].network, Characters("abc"), {"labels": ["a", "b"]})
    classifier.save(tmp_path / "labels")
    assert_rejected(tmp_path / "labels", "has 2 labels, but its network has 3 classes")
    for invalid in ('labels = "abc"', "labels = [1, 2, 3]", 'eos = "x"'):
        file = tmp_path / "labels" / "config.toml"
        file.write_text(file.read_text().partition("[task]")[0] + f"[task]\n{invalid}\n")
        update_manifest(tmp_path / "labels")
        assert_rejected(tmp_path / "labels", "expected (labels|eos) to be a list")


@pytest.mark.parametrize("name", ["[[]]", "{ a = 1 }", "3"])
def test_a_task_name_that_is_not_a_string_is_rejected(name, tmp_path):
    Model(CASES["generator"].network, Characters("abc"), {"name": "generate"}).save(tmp_path / "m")
    file = tmp_path / "m" / "config.toml"
    file.write_text(file.read_text().replace('name = "generate"\n', f"name = {name}\n"))
    update_manifest(tmp_path / "m")
    assert_rejected(tmp_path / "m", "expected the name of a task, got")


def test_a_tokenizer_with_cls_but_without_sep_is_rejected():
    tokenizer = Characters("abc", ["<unk>", "[CLS]"])
    with pytest.raises(GlassError, match=r"has the special token \[CLS\] but not \[SEP\]"):
        Model(CASES["bert_encoder"].network, tokenizer).embed(["ab"])


def test_labels_are_rejected_if_the_network_is_not_a_classifier(tmp_path):
    bert = CASES["bert"].network
    Model(bert, Characters("abc"), {"labels": ["a", "b"]}).save(tmp_path / "labels")
    assert_rejected(tmp_path / "labels", "has labels, but its network is not a classifier")


def test_a_best_checkpoint_outside_its_run_is_rejected(model_folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(model_folder)
    assert_rejected(run, "best is a link that points outside")
    with pytest.raises(GlassError, match="points outside"):
        find_damage(run)
    (run / "best").unlink()
    shutil.copytree(model_folder, run / "best")
    assert load(run).name == "generator"
    assert find_subfolder(run, "last") is None


def test_a_missing_permission_is_reported_with_the_file(model_folder, monkeypatch):
    def deny(self, *_args, **_kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.is_file", deny)
    with pytest.raises(GlassError, match=r"manifest\.json: Permission denied"):
        safe_join(model_folder, "manifest.json")


def write_adapter(path, base):
    """Write the folder of an adapter for another model."""
    path.mkdir()
    settings = {"vocab": 50, "context": 32, "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0}
    lines = [f"{name} = {value}" for name, value in settings.items()]
    base_table = [f"[adapter]\nrank = 2\nbase = {json.dumps(str(base))}\nsha256 = 'x'"]
    (path / "config.toml").write_text("\n".join(["[model]\nname = 'gpt2'", *lines, *base_table]))
    save_file({"x": torch.zeros(1)}, path / "adapter.safetensors")
    update_manifest(path)
    return path


def test_adapters_based_on_each_other_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.checkpoint.hash_weights", lambda _path: "x")
    one = write_adapter(tmp_path / "one", tmp_path / "two")
    write_adapter(tmp_path / "two", one)
    assert_rejected(one, "more than 8 adapters are stacked")


@pytest.mark.parametrize("base", ["a\0b", "x" * 5000, ""])
def test_an_adapter_with_an_invalid_base_path_is_rejected(tmp_path, base):
    assert_rejected(write_adapter(tmp_path / "one", base), str(tmp_path / "one"))


def test_every_read_error_becomes_one_line_with_the_file_name(tmp_path):
    for error in (
        KeyError("x"), TypeError("several\nlines"), RecursionError(), EOFError(), OSError(5, "bad"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), RuntimeError("x"), GlassError("x"),
    ):  # fmt: skip
        with (
            pytest.raises(GlassError, match="some-file") as raised,
            wrap_read_errors(tmp_path / "some-file"),
        ):
            raise error
        assert "\n" not in str(raised.value)
    with pytest.raises(MemoryError), wrap_read_errors(tmp_path):
        raise MemoryError
    with pytest.raises(RuntimeError, match="allocate memory"), wrap_read_errors(tmp_path):
        raise RuntimeError("can't allocate memory")


def test_a_write_error_reports_the_file(tmp_path):
    with (
        pytest.raises(OSError, match="some-file"),
        folder.wrap_write_errors(tmp_path / "some-file"),
    ):
        raise OSError(28, "No space left on device")


# --- tokenizers -----------------------------------------------------------------------------------


def write_bpe(tmp_path, **changes):
    """Write a BPE tokenizer's file with values changed: `model__dropout=0.5`."""
    content = json.loads(BPE.train(SAMPLE, vocab=280).to_json())
    for path, value in changes.items():
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


def nest_sequences(depth):
    component = REPLACE
    for _ in range(depth):
        component = {"type": "Sequence", "normalizers": [component]}
    return component


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 10}}, "1,024 times longer"),
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 40}}, "40 components"),
        ({"normalizer": nest_sequences(33)}, "nested more than 32 levels deep"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 999}}, "1,000 times longer"),
        ({"normalizer": REGEX}, r"pattern .*\(a\+\)\+\$.* is not known"),
        ({"pre_tokenizer": SPLIT}, "is not known to run in linear time"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "not supported"),
        ({"pre_tokenizer": {"type": "Unknown"}}, "pre_tokenizer 'Unknown' is not supported"),
        (
            {"pre_tokenizer": {"type": "Sequence", "normalizers": [], "pretokenizers": [SPLIT]}},
            "is not known to run in linear time",
        ),
        ({"pre_tokenizer": {"type": "Sequence", "normalizers": []}}, "pretokenizers"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 2**40, "stop": 0}}, "strips"),
        ({"model__vocab__a": 2**33}, "the id of 'a' must be from 0 to .*, got 8589934592"),
        ({"model__vocab__a": -1}, "the id of 'a' must be from 0 to .*, got -1"),
        ({"model__unk_token": "absent"}, "unknown token 'absent' is not in the vocabulary"),
        ({"model__dropout": 0.5}, "drops merges at random"),
        ({"model__merges": [["", "a"]]}, "corrupted"),
        ({"added_tokens": [{"id": 3, "content": ""}]}, "'' is not a valid token"),
        ({"model": {"type": "BPE"}}, "corrupted"),
    ],
)
def test_invalid_or_expensive_tokenizer_components_are_rejected(tmp_path, changes, message):
    with pytest.raises(GlassError, match=message) as error:
        text.load(write_bpe(tmp_path, **changes))
    assert "\n" not in str(error.value)
    assert "tokenizer.json" in str(error.value)


def test_the_word_length_of_wordpiece_is_limited(tmp_path):
    content = json.loads(WordPiece.train(SAMPLE, vocab=80).to_json())
    content["model"]["max_input_chars_per_word"] = 10**9
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(GlassError, match="max_input_chars_per_word is 1000000000"):
        text.load(tmp_path / "tokenizer.json")


def test_padding_in_a_tokenizer_file_is_ignored(tmp_path):
    padding = {
        "strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0,
        "pad_token": "x", "pad_to_multiple_of": None,
    }  # fmt: skip
    loaded = text.load(write_bpe(tmp_path, padding=padding))
    assert loaded.encode("cat") == BPE.train(SAMPLE, vocab=280).encode("cat")


def test_the_tokenizers_of_gpt2_bert_and_llama_are_accepted():
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
    assert MAX_GROWTH > 2


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("[\\r\\n]", True), (r"\s?\p{L}+", True), (r"\s?\p{P}+", True), ("[一-龥가-힣]+", True),
        (r"\p{N}+|\s+", True), (r"[^\s]", True), ("a?b+", True),
        ("(a+)+$", False), ("a+b", False), ("a*a*b", False), ("(a|aa)+b", False), ("[a", False),
        (r"\s+(?!\S)", False), ("a{2,}b", False), ("^a+$", False),
    ],
)  # fmt: skip
def test_only_regular_expressions_that_never_backtrack_are_linear(regex, expected):
    assert is_linear(regex) is expected


def test_a_special_token_beyond_the_networks_vocab_is_dropped(tmp_path):
    """Some published models have a padding token in the tokenizer but not in the network."""
    tokenizer = BPE.train(SAMPLE, vocab=280, special_tokens=("<s>", "<pad>"))
    gpt2 = MODELS["gpt2"]
    network = gpt2(gpt2.Config(vocab=tokenizer.vocab - 1, context=16, dim=16, depth=1, heads=2))
    Model(network, tokenizer).save(tmp_path / "m")
    model = load(tmp_path / "m")
    assert "<pad>" not in model.tokenizer.special_tokens
    assert model.generate("the", max_new_tokens=3, temperature=0.0)
    small = gpt2(gpt2.Config(vocab=200, context=16, dim=16, depth=1, heads=2))
    Model(small, tokenizer).save(tmp_path / "small")
    assert_rejected(tmp_path / "small", "the network only 200")


def test_merges_that_are_not_pairs_of_tokens_are_rejected(tmp_path):
    vocab = json.loads(BPE.train(SAMPLE, vocab=280).to_json())["model"]["vocab"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    for invalid in ("a ", " a", "a", "a b c", "zzz zzz"):
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{invalid}\n")
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
def test_an_id_outside_the_vocabulary_is_decoded_as_the_replacement_character(tokenizer):
    assert tokenizer.decode([tokenizer.vocab, 10**6]) == REPLACEMENT * 2
    assert tokenizer.token(tokenizer.vocab) == REPLACEMENT


def test_tokenizers_can_be_trained_on_very_long_words():
    text = "a" * 200_000 + " " + SAMPLE[0]
    for cls in (BPE, WordPiece):
        tokenizer = cls.train([text] * 2, vocab=300)
        assert tokenizer.vocab > 256 or cls is WordPiece
        assert tokenizer.encode("the cat")
    assert set(BERT_SPECIAL_TOKENS) <= WordPiece.train([text], vocab=80).special_tokens.keys()
