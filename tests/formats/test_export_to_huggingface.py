"""Models with their tokenizers, exported to Hugging Face and run on text by `transformers`."""

import json
import logging
import random

import pytest
import torch
from tokenizers import Tokenizer as Engine

from cases import CASES
from formats.parity import close, randomize
from glassformer import MODELS, GlassError, load, text
from glassformer.api import Model
from glassformer.formats.tokenizer_json import to_engine
from glassformer.tasks.text_pairs import encode_pair
from glassformer.text.plain import Bytes, Characters, Words
from glassformer.text.subword import BPE, WordPiece

transformers = pytest.importorskip("transformers")
SAMPLE = ["The quick brown fox jumps over the lazy dog; it's 12²", "机器学习 😀\n\tlazy"] * 3
TEXTS = ["The quick fox", "lazy", "the lazy dog jumps over"]
LABELS = ["negative", "neutral", "positive"]
SIZES = {"context": 32, "dim": 32, "depth": 2, "heads": 4}
TOKENIZERS = {
    "bpe": BPE.train(SAMPLE, vocab=280),
    "bpe with <sep>": BPE.train(SAMPLE, vocab=280, special_tokens=("<|endoftext|>", "<sep>")),
    "wordpiece": WordPiece.train(SAMPLE, vocab=80),
    "words": Words.train(SAMPLE, special_tokens=("<unk>", "<sep>")),
    "words of BERT": Words.train(SAMPLE, special_tokens=("<unk>", "[CLS]", "[SEP]")),
    "characters": Characters.train(SAMPLE),
    "bytes": Bytes(["<start>", "<end>"]),
}
EXPORTED = {
    "gpt2": ("bpe", "AutoModelForCausalLM"),
    "llama": ("characters", "AutoModelForCausalLM"),
    "bert": ("wordpiece", "AutoModelForPreTraining"),
    "bert_classifier": ("wordpiece", "AutoModelForSequenceClassification"),
    "bert_encoder": ("wordpiece", "AutoModel"),
}


def build_model(name):
    tokenizer = TOKENIZERS[EXPORTED[name][0]]
    settings = {**SIZES, "vocab": tokenizer.vocab}
    settings |= {"classes": 3} if name == "bert_classifier" else {}
    settings |= {"hidden": 48, "kv_heads": 2} if name == "llama" else {}
    task = {"labels": LABELS} if name == "bert_classifier" else {}
    network = MODELS[name](MODELS[name].Config(**settings))
    return Model(randomize(network), tokenizer, task)


@pytest.mark.parametrize("name", EXPORTED)
@torch.no_grad()
def test_transformers_computes_the_same_logits_for_a_padded_batch_of_texts(name, tmp_path):
    model = build_model(name)
    model.save(tmp_path / "x", format="huggingface")
    theirs = getattr(transformers, EXPORTED[name][1]).from_pretrained(tmp_path / "x").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.unk_token  # characters have none
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    rows = [encode_pair(model.tokenizer, (text,)) for text in TEXTS]
    keep = batch["attention_mask"].bool()
    assert [ids[mask].tolist() for ids, mask in zip(batch["input_ids"], keep, strict=True)] == rows
    output = theirs(**batch)
    expected = output.get("logits", output.get("prediction_logits", output[0]))
    actual = model.network(batch["input_ids"], keep=keep)
    real = keep if actual.ndim == 3 else slice(None)
    close(actual[real], expected[real], atol=1e-5, rtol=1e-5)
    reloaded = load(tmp_path / "x")
    assert reloaded.name == name
    assert torch.equal(reloaded.network(batch["input_ids"], keep=keep), actual)
    assert [encode_pair(reloaded.tokenizer, (text,)) for text in TEXTS] == rows


@torch.no_grad()
def test_pairs_of_texts_have_the_same_ids_segments_and_logits(tmp_path):
    model = build_model("bert_classifier")
    model.save(tmp_path / "x", format="huggingface")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "x").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    batch = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    ours = model.codec.encode(pairs)
    assert torch.equal(batch["input_ids"], ours["ids"])
    segments = batch["token_type_ids"]
    assert torch.equal(segments[ours["keep"]], ours["segments"][ours["keep"]])
    close(model.network(**ours), theirs(**batch).logits, atol=1e-5, rtol=1e-5)


def test_labels_are_exported_and_loaded_in_order(tmp_path):
    model = build_model("bert_classifier")
    model.save(tmp_path / "x", format="huggingface")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "x")
    assert config.id2label == dict(enumerate(LABELS))
    assert config.label2id == {label: i for i, label in enumerate(LABELS)}
    assert (config.num_labels, config.problem_type) == (3, "single_label_classification")
    assert load(tmp_path / "x").classify(TEXTS) == model.classify(TEXTS)
    model.task = {}
    model.save(tmp_path / "y", format="huggingface")
    assert load(tmp_path / "y").task == {"labels": ["LABEL_0", "LABEL_1", "LABEL_2"]}


@torch.no_grad()
def test_several_labels_per_text_are_exported_and_loaded(tmp_path):
    model = build_model("bert_classifier")
    model.task["multi_label"] = True
    model.save(tmp_path / "x", format="huggingface")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "x")
    assert config.problem_type == "multi_label_classification"
    reloaded = load(tmp_path / "x")
    assert reloaded.task == {"labels": LABELS, "multi_label": True}
    assert reloaded.classify(TEXTS) == model.classify(TEXTS)


@pytest.mark.parametrize("id2label", [None, [], {"0": "a", "1": "a", "2": "b"}])
def test_unusable_labels_are_not_loaded(id2label, tmp_path):
    build_model("bert_classifier").save(tmp_path / "x", format="huggingface")
    file = tmp_path / "x" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"id2label": id2label}))
    assert load(tmp_path / "x").task == {}


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_transformers_generates_the_same_text_without_a_warning(
    name, tmp_path, caplog, monkeypatch
):
    model = build_model(name)
    model.save(tmp_path / "x", format="huggingface")
    special = model.tokenizer.special_tokens
    end = special.get("<|endoftext|>")
    for file in ("config.json", "generation_config.json"):
        content = json.loads((tmp_path / "x" / file).read_text())
        ids = [content[f"{role}_token_id"] for role in ("bos", "eos", "pad")]
        assert ids == [end, end, end]
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="transformers"):
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
        inputs = tokenizer("The quick", return_tensors="pt")
        ids = theirs.generate(**inputs, max_new_tokens=8, do_sample=False)[0].tolist()
    assert not caplog.records
    new = tokenizer.decode(ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert new == model.generate("The quick", max_new_tokens=8, temperature=0.0)


def test_end_of_text_ids_of_the_metadata_are_exported(tmp_path):
    model = build_model("gpt2")
    model.task = {"eos": [7, 8]}
    model.save(tmp_path / "x", format="huggingface")
    config = transformers.GenerationConfig.from_pretrained(tmp_path / "x")
    assert (config.eos_token_id, config.pad_token_id) == ([7, 8], 7)
    assert load(tmp_path / "x").task == {"eos": [7, 8]}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("gpt2_classifier", r"gpt2, bert, .* instead \(--model\); or export .* `--to onnx`"),
        ("speedrun", r"cannot export speedrun to Hugging Face: .* `--to onnx`"),
        ("speedrun with a prior", r"cannot export speedrun to Hugging Face: .* `--to onnx`"),
        ("markov", r"cannot export markov to Hugging Face: .* instead \(--model\)$"),
        ("gpt2 with a prior", r"a prior to Hugging Face: .*`glass convert --strip-prior`"),
    ],
)
def test_a_model_without_a_counterpart_is_rejected_with_a_way_out(case, message, tmp_path):
    with pytest.raises(GlassError, match=message):
        Model(CASES[case].network).save(tmp_path / "x", format="huggingface")
    assert not list(tmp_path.iterdir())


# --- tokenizers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_library_encodes_and_decodes_like_our_tokenizers(name, tmp_path):
    tokenizer, choose = TOKENIZERS[name], random.Random(0)
    engine = Engine.from_str(to_engine(tokenizer).to_str())
    (tmp_path / "tokenizer.json").write_text(engine.to_str(), encoding="utf-8")
    reloaded = text.load(tmp_path / "tokenizer.json")
    assert reloaded.vocab == tokenizer.vocab
    assert reloaded.special_tokens == tokenizer.special_tokens
    characters = "".join(sorted(set("".join(SAMPLE)))) + "ñ\u0301'ー가\x1c\u00a0_٣"
    for _ in range(500):
        sample = "".join(choose.choices(characters, k=choose.randrange(14)))
        ids = tokenizer.encode(sample)
        assert engine.encode(sample, add_special_tokens=False).ids == ids
        assert engine.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)
        assert reloaded.encode(sample) == ids


@pytest.mark.parametrize("name", sorted(TOKENIZERS.keys() - {"characters", "bytes"}))
def test_the_library_adds_the_special_tokens_of_texts_and_pairs(name):
    tokenizer = TOKENIZERS[name]
    engine = to_engine(tokenizer)
    for texts in (("quick",), ("quick brown", "lazy dog")):
        assert engine.encode(*texts).ids == encode_pair(tokenizer, texts)


def test_words_are_split_alike_at_every_letter_that_python_knows():
    tokenizer = Words([])
    engine = to_engine(tokenizer)
    letters = [c for c in map(chr, range(0x3000)) if c.isprintable() or c.isspace()]
    assert len(letters) > 10_000
    for letter in letters:
        split = [word for word, _ in engine.pre_tokenizer.pre_tokenize_str(f"a{letter}b")]
        assert split == tokenizer.split(f"a{letter}b"), letter
