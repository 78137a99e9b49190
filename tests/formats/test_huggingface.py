"""Hugging Face folders: shards, old names, rejected settings, malicious files, tokenizers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from formats.test_bert import random_model as random_bert
from formats.test_gpt2 import random_model as random_gpt2
from formats.test_llama import random_model as random_llama
from glassformer import GlassError, load
from glassformer.api import Model
from glassformer.models.generator import Config, Generator
from glassformer.text.scored import ScoredTokenizer
from glassformer.text.subword import BPE, WordPiece

transformers = pytest.importorskip("transformers")
SAMPLE = ["The quick brown fox jumps over the lazy dog", "机器学习 😀"]


@pytest.fixture
def gpt2(tmp_path):
    random_gpt2(0).save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def update_config(folder, **settings):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def read_tensors(folder):
    return load_file(folder / "model.safetensors")


def assert_same_weights(a, b):
    first, second = a.network.state_dict(), b.network.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("make", [random_gpt2, random_bert, random_llama])
def test_shards_load_as_one_model(make, tmp_path):
    theirs = make(0)
    theirs.save_pretrained(tmp_path / "single")
    theirs.save_pretrained(tmp_path / "sharded", max_shard_size="4KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    assert_same_weights(load(tmp_path / "single"), load(tmp_path / "sharded"))


def test_index_cannot_name_files_outside_the_folder(gpt2, tmp_path):
    (gpt2 / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = gpt2 / "model.safetensors.index.json"
    for name in ("../outside.safetensors", str(tmp_path / "outside.safetensors")):
        index.write_text(json.dumps({"weight_map": {"wte.weight": name}}))
        with pytest.raises(GlassError, match="points outside the folder"):
            load(gpt2)
    index.write_text("[]")
    with pytest.raises(GlassError, match="no weight_map"):
        load(gpt2)


def test_tensorflow_names_and_constant_tensors_are_accepted(tmp_path):
    theirs = random_bert(0)
    theirs.save_pretrained(tmp_path)
    plain, state = load(tmp_path), read_tensors(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): v
        for name, v in state.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(16)[None]
    old["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    save_file(old, tmp_path / "model.safetensors")
    assert_same_weights(load(tmp_path), plain)


def test_gpt2_buffers_and_tied_head_are_accepted(gpt2):
    plain, state = load(gpt2), read_tensors(gpt2)
    state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
    state["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    state["lm_head.weight"] = state["transformer.wte.weight"].clone()
    save_file(state, gpt2 / "model.safetensors")
    assert_same_weights(load(gpt2), plain)
    state["lm_head.weight"] += 1
    save_file(state, gpt2 / "model.safetensors")
    with pytest.raises(GlassError, match=r"lm_head.weight differs from transformer.wte.weight"):
        load(gpt2)


def test_llama_constants_and_tied_head_are_accepted(tmp_path):
    theirs = next(m for m in map(random_llama, range(20)) if m.config.tie_word_embeddings)
    theirs.save_pretrained(tmp_path)
    plain, state = load(tmp_path), read_tensors(tmp_path)
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()
    save_file(state, tmp_path / "model.safetensors")
    assert_same_weights(load(tmp_path), plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"scale_attn_weights": False}, "scale_attn_weights = False"),
        ({"add_cross_attention": True}, "add_cross_attention = True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings = False"),
        (
            {"activation_function": "quick_gelu"},
            "activation_function = 'quick_gelu': expected one of",
        ),
        ({"new_setting": 3}, "unknown setting new_setting = 3"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        (
            {"architectures": ["GPT2ForTokenClassification"]},
            "unsupported architecture GPT2ForTokenClassification",
        ),
        ({"model_type": ["gpt2"]}, "unsupported model_type"),
        ({"activation_function": ["gelu"]}, "expected one of"),
        ({"layer_norm_epsilon": 10**400}, "too large"),
        ({"model_type": "mamba"}, "model_type 'mamba': expected one of gpt2, bert, llama"),
        ({"n_embd": "wide"}, "model.dim must be an integer, got 'wide'"),
        ({"n_layer": 10**9}, "depth must be at least 1 and at most 1,000"),
        ({"n_embd": 4096, "n_head": 4}, "expected shape .* from the config"),
        ({"n_layer": 5}, "is missing the tensors blocks"),
    ],
)
def test_setting_that_may_change_the_output_is_rejected(gpt2, settings, message):
    update_config(gpt2, **settings)
    with pytest.raises(GlassError, match=message):
        load(gpt2)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (random_bert, {"is_decoder": True}, "is_decoder = True"),
        (random_bert, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        (random_llama, {"pretraining_tp": 2}, "pretraining_tp = 2"),
        (random_bert, {"architectures": ["BertForTokenClassification"]}, "BertForTokenClass"),
        (random_llama, {"rope_parameters": [1]}, "to be a table"),
        (random_llama, {"rope_scaling": {"type": "default", "factor": 2.0}}, "both set"),
        (random_llama, {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "lack low"),
        (random_llama, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "type 'yarn'"),
        (random_llama, {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
         "partial_rotary_factor = 0.5"),
        (random_llama, {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": None},
         "type 'linear'"),
    ],
)  # fmt: skip
def test_unsupported_settings_of_bert_and_llama_are_rejected(make, settings, message, tmp_path):
    make(0).save_pretrained(tmp_path)
    update_config(tmp_path, **settings)
    with pytest.raises(GlassError, match=message) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'config.json'}: ")


def test_settings_without_effect_are_ignored(gpt2):
    plain = load(gpt2)
    update_config(
        gpt2, n_ctx=16, task_specific_params={"x": 1}, torch_dtype="float16", new_and_off=False
    )
    update_config(gpt2, _num_labels=1, predict_special_tokens=True, output_past=True)
    assert_same_weights(load(gpt2), plain)
    update_config(gpt2, new_setting=3)
    assert_same_weights(load(gpt2, ignore=["new_setting"]), plain)


def test_unknown_and_missing_tensors_are_listed(gpt2):
    state = read_tensors(gpt2)
    state["transformer.h.0.adapter.weight"] = torch.ones(2)
    state["score.weight"] = torch.ones(2)
    save_file(state, gpt2 / "model.safetensors")
    with pytest.raises(GlassError, match=r"score.weight, transformer.h.0.adapter.weight"):
        load(gpt2)
    load(gpt2, ignore=["score.*", "*.adapter.*"])
    del state["transformer.h.0.ln_1.weight"]
    save_file(state, gpt2 / "model.safetensors")
    with pytest.raises(GlassError, match=r"is missing the tensors blocks.0.attention_norm.weight"):
        load(gpt2, ignore=["score.*", "*.adapter.*"])


def test_tensors_with_invalid_shapes_are_rejected(gpt2):
    state = read_tensors(gpt2)
    for wrong in (torch.ones(1), torch.tensor(1.0), torch.ones(2, 2, 2)):
        save_file({**state, "transformer.h.0.attn.c_attn.bias": wrong}, gpt2 / "model.safetensors")
        with pytest.raises(GlassError, match=r"c_attn.bias has an invalid shape"):
            load(gpt2)


def test_bert_without_learned_positions_cannot_be_exported(tmp_path):
    from glassformer.models.bert import Bert, Config

    small = Config(vocab=20, context=8, dim=8, depth=1, heads=2, position="alibi")
    with pytest.raises(GlassError, match="its positions are not learned"):
        Model(Bert(small)).save(tmp_path / "x", format="huggingface")


def test_pickled_weights_are_rejected(gpt2):
    (gpt2 / "model.safetensors").rename(gpt2 / "pytorch_model.bin")
    with pytest.raises(GlassError, match="pickle files, which can run code"):
        load(gpt2)


def test_half_precision_loads_as_float32(gpt2):
    save_file({k: v.half() for k, v in read_tensors(gpt2).items()}, gpt2 / "model.safetensors")
    assert {p.dtype for p in load(gpt2).network.parameters()} == {torch.float32}


def test_corrupted_config_is_rejected(gpt2):
    for content in ("{", "[]", '"gpt2"', "[" * 100_000):
        (gpt2 / "config.json").write_text(content)
        with pytest.raises(GlassError, match=r"config.json"):
            load(gpt2)


# --- tokenizers -----------------------------------------------------------------------------------


def test_tokenizer_is_optional(gpt2):
    assert load(gpt2).tokenizer is None


def test_old_tokenizer_files_of_gpt2_and_bert_are_loaded(tmp_path):
    gpt2 = tmp_path / "gpt2"
    random_gpt2(0, vocab=280).save_pretrained(gpt2)
    bpe = BPE.train(SAMPLE * 3, vocab=280)
    content = json.loads(bpe.to_json())["model"]
    (gpt2 / "vocab.json").write_text(json.dumps(content["vocab"]))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in content["merges"])]
    (gpt2 / "merges.txt").write_text("\n".join(lines))
    assert load(gpt2).tokenizer.encode(SAMPLE[0]) == bpe.encode(SAMPLE[0])

    random_bert(0, vocab=80).save_pretrained(tmp_path / "bert")
    cased = WordPiece.train(SAMPLE * 3, vocab=80, lower=False)
    ids = cased.engine.get_vocab()
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(sorted(ids, key=ids.get)))
    (tmp_path / "bert" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load(tmp_path / "bert").tokenizer.encode("The The the") == cased.encode("The The the")
    for wrong in ("[]", '{"do_lower_case": "no"}'):
        (tmp_path / "bert" / "tokenizer_config.json").write_text(wrong)
        with pytest.raises(GlassError, match=r"tokenizer_config.json"):
            load(tmp_path / "bert")


@pytest.mark.parametrize("accents", [True, False])
@pytest.mark.parametrize("ideographs", [True, False])
def test_bert_accents_and_ideographs_match_transformers(tmp_path, accents, ideographs):
    random_bert(0).save_pretrained(tmp_path)
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "cafe",
        "café",
        "学",
        "学习",
        "##习",
        "习",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    config = {"do_lower_case": True, "strip_accents": accents, "tokenize_chinese_chars": ideographs}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.BertTokenizer(vocab={t: i for i, t in enumerate(tokens)}, **config)
    expected = theirs("Café 学习", add_special_tokens=False)["input_ids"]
    assert load(tmp_path).tokenizer.encode("Café 学习") == expected


def test_exported_tokenizer_loads_in_transformers(tmp_path):
    theirs = random_gpt2(0, vocab=280)
    theirs.save_pretrained(tmp_path / "a")
    model = load(tmp_path / "a")
    model.tokenizer = BPE.train(SAMPLE * 3, vocab=280)
    model.save(tmp_path / "b", format="huggingface")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    assert theirs(SAMPLE[0])["input_ids"] == model.tokenizer.encode(SAMPLE[0])
    assert load(tmp_path / "b").tokenizer.encode(SAMPLE[1]) == model.tokenizer.encode(SAMPLE[1])


def test_unsupported_tokenizers_models_and_formats_are_reported(gpt2, tmp_path):
    scored = ScoredTokenizer([b"<unk>", b"<s>", b"</s>", b"a"], [0.0] * 4)
    model = Model(load(gpt2).network, scored)
    with pytest.warns(UserWarning, match="cannot export one of kind 'scored'"):
        model.save(tmp_path / "out", format="huggingface")
    assert load(tmp_path / "out").tokenizer is None
    model = Model(Generator(Config(vocab=9, context=8, dim=8, depth=1, heads=1)))
    with pytest.raises(GlassError, match="cannot export generator"):
        model.save(tmp_path / "no", format="huggingface")
    with pytest.raises(
        GlassError, match="unknown format 'gguf': expected one of glassformer, huggingface"
    ):
        model.save(tmp_path / "no", format="gguf")


def test_saving_in_our_format_preserves_weights_and_config(gpt2, tmp_path):
    model = load(gpt2)
    model.save(tmp_path / "ours")
    assert_same_weights(load(tmp_path / "ours"), model)
    assert load(tmp_path / "ours").config == model.config
