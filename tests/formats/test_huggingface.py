"""Hugging Face folders: shards, old names, settings that are refused, files that attack."""

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
from glassformer.text.plain import Characters
from glassformer.text.subword import BPE, WordPiece

transformers = pytest.importorskip("transformers")
SAMPLE = ["The quick brown fox jumps over the lazy dog", "机器学习 😀"]


@pytest.fixture
def gpt2(tmp_path):
    random_gpt2(0).save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def change(folder, **settings):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def tensors(folder):
    return load_file(folder / "model.safetensors")


def same(a, b):
    mine, other = a.network.state_dict(), b.network.state_dict()
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)


@pytest.mark.parametrize("make", [random_gpt2, random_bert, random_llama])
def test_shards_are_read_as_one(make, tmp_path):
    theirs = make(0)
    theirs.save_pretrained(tmp_path / "one")
    theirs.save_pretrained(tmp_path / "many", max_shard_size="4KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    same(load(tmp_path / "one"), load(tmp_path / "many"))


def test_an_index_cannot_lead_out_of_the_folder(gpt2, tmp_path):
    (gpt2 / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = gpt2 / "model.safetensors.index.json"
    for name in ("../outside.safetensors", str(tmp_path / "outside.safetensors")):
        index.write_text(json.dumps({"weight_map": {"wte.weight": name}}))
        with pytest.raises(GlassError, match="leads out of the folder"):
            load(gpt2)
    index.write_text("[]")
    with pytest.raises(GlassError, match="no weight_map"):
        load(gpt2)


def test_old_names_and_constants_are_understood(tmp_path):
    theirs = random_bert(0)
    theirs.save_pretrained(tmp_path)
    plain, state = load(tmp_path), tensors(tmp_path)
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
    same(load(tmp_path), plain)


def test_gpt2s_buffers_and_tied_head_are_understood(gpt2):
    plain, state = load(gpt2), tensors(gpt2)
    state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
    state["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    state["lm_head.weight"] = state["transformer.wte.weight"].clone()
    save_file(state, gpt2 / "model.safetensors")
    same(load(gpt2), plain)
    state["lm_head.weight"] += 1
    save_file(state, gpt2 / "model.safetensors")
    with pytest.raises(GlassError, match=r"lm_head.weight differs from transformer.wte.weight"):
        load(gpt2)


def test_llamas_constants_and_tied_head_are_understood(tmp_path):
    theirs = next(m for m in map(random_llama, range(20)) if m.config.tie_word_embeddings)
    theirs.save_pretrained(tmp_path)
    plain, state = load(tmp_path), tensors(tmp_path)
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()
    save_file(state, tmp_path / "model.safetensors")
    same(load(tmp_path), plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"scale_attn_weights": False}, "scale_attn_weights = False"),
        ({"add_cross_attention": True}, "add_cross_attention = True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings = False"),
        ({"activation_function": "quick_gelu"}, "activation_function = 'quick_gelu'; known are"),
        ({"a_new_trick": 3}, "a_new_trick = 3, which Glassformer does not know"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        ({"architectures": ["GPT2ForTokenClassification"]}, "is a GPT2ForTokenClassification"),
        ({"model_type": ["gpt2"]}, "is of type"),
        ({"activation_function": ["gelu"]}, "known are"),
        ({"layer_norm_epsilon": 10**400}, "too large"),
        ({"model_type": "mamba"}, "type 'mamba'; known are gpt2, bert, llama"),
        ({"n_embd": "wide"}, "model.dim must be an integer, got 'wide'"),
        ({"n_layer": 10**9}, "depth must be at least 1 and at most 1,000"),
        ({"n_embd": 4096, "n_head": 4}, "but its config asks for"),
        ({"n_layer": 5}, "lacks blocks"),
    ],
)
def test_a_setting_that_would_change_numbers_is_refused_by_name(gpt2, settings, message):
    change(gpt2, **settings)
    with pytest.raises(GlassError, match=message):
        load(gpt2)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (random_bert, {"is_decoder": True}, "is_decoder = True"),
        (random_bert, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        (random_llama, {"pretraining_tp": 2}, "pretraining_tp = 2"),
        (random_bert, {"architectures": ["BertForTokenClassification"]}, "BertForTokenClass"),
        (random_llama, {"rope_parameters": [1]}, "must be a table"),
        (random_llama, {"rope_scaling": {"type": "default", "factor": 2.0}}, "both set"),
        (random_llama, {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "lack low"),
        (random_llama, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "type 'yarn'"),
        (random_llama, {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
         "partial_rotary_factor = 0.5"),
        (random_llama, {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": None},
         "type 'linear'"),
    ],
)  # fmt: skip
def test_the_other_families_refuse_too(make, settings, message, tmp_path):
    make(0).save_pretrained(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(GlassError, match=message):
        load(tmp_path)


def test_what_changes_no_number_is_passed_over(gpt2):
    plain = load(gpt2)
    change(gpt2, n_ctx=16, task_specific_params={"x": 1}, torch_dtype="float16", new_and_off=False)
    change(gpt2, _num_labels=1, predict_special_tokens=True, output_past=True)
    same(load(gpt2), plain)
    change(gpt2, a_new_trick=3)
    same(load(gpt2, ignore=["a_new_trick"]), plain)


def test_unmatched_tensors_are_listed(gpt2):
    state = tensors(gpt2)
    state["transformer.h.0.adapter.weight"] = torch.ones(2)
    state["score.weight"] = torch.ones(2)
    save_file(state, gpt2 / "model.safetensors")
    with pytest.raises(GlassError, match=r"score.weight, transformer.h.0.adapter.weight"):
        load(gpt2)
    load(gpt2, ignore=["score.*", "*.adapter.*"])
    del state["transformer.h.0.ln_1.weight"]
    save_file(state, gpt2 / "model.safetensors")
    with pytest.raises(GlassError, match=r"lacks blocks.0.attention_norm.weight"):
        load(gpt2, ignore=["score.*", "*.adapter.*"])


def test_tensors_of_odd_shapes_are_named(gpt2):
    state = tensors(gpt2)
    for odd in (torch.ones(1), torch.tensor(1.0), torch.ones(2, 2, 2)):
        save_file({**state, "transformer.h.0.attn.c_attn.bias": odd}, gpt2 / "model.safetensors")
        with pytest.raises(GlassError, match=r"c_attn.bias has the odd shape"):
            load(gpt2)


def test_a_bert_that_transformers_does_not_have_is_not_written(tmp_path):
    from glassformer.models.bert import Bert, Config

    small = Config(vocab=20, context=8, dim=8, depth=1, heads=2, position="alibi")
    with pytest.raises(GlassError, match="BERT learns its positions"):
        Model(Bert(small)).save(tmp_path / "x", format="huggingface")


def test_pickled_weights_are_refused(gpt2):
    (gpt2 / "model.safetensors").rename(gpt2 / "pytorch_model.bin")
    with pytest.raises(GlassError, match="pickle files, which can run code"):
        load(gpt2)


def test_half_precision_is_read_as_single(gpt2):
    save_file({k: v.half() for k, v in tensors(gpt2).items()}, gpt2 / "model.safetensors")
    assert {p.dtype for p in load(gpt2).network.parameters()} == {torch.float32}


def test_a_damaged_config_is_named(gpt2):
    for content in ("{", "[]", '"gpt2"', "[" * 100_000):
        (gpt2 / "config.json").write_text(content)
        with pytest.raises(GlassError, match=r"config.json"):
            load(gpt2)


# --- tokenizers -----------------------------------------------------------------------------------


def test_no_tokenizer_is_allowed(gpt2):
    assert load(gpt2).tokenizer is None


def test_gpt2s_two_files_and_berts_one_are_found(tmp_path):
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
def test_berts_way_with_accents_and_ideographs_is_that_of_transformers(
    tmp_path, accents, ideographs
):
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
    told = {"do_lower_case": True, "strip_accents": accents, "tokenize_chinese_chars": ideographs}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    theirs = transformers.BertTokenizer(vocab={t: i for i, t in enumerate(tokens)}, **told)
    expected = theirs("Café 学习", add_special_tokens=False)["input_ids"]
    assert load(tmp_path).tokenizer.encode("Café 学习") == expected


def test_a_tokenizer_is_written_so_that_transformers_reads_it(tmp_path):
    theirs = random_gpt2(0, vocab=280)
    theirs.save_pretrained(tmp_path / "a")
    model = load(tmp_path / "a")
    model.tokenizer = BPE.train(SAMPLE * 3, vocab=280)
    model.save(tmp_path / "b", format="huggingface")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    assert reader(SAMPLE[0])["input_ids"] == model.tokenizer.encode(SAMPLE[0])
    assert load(tmp_path / "b").tokenizer.encode(SAMPLE[1]) == model.tokenizer.encode(SAMPLE[1])


def test_what_transformers_does_not_have_is_said(gpt2, tmp_path):
    model = Model(load(gpt2).network, Characters.train(SAMPLE))
    with pytest.warns(UserWarning, match="no tokenizer of the kind 'characters'"):
        model.save(tmp_path / "out", format="huggingface")
    assert load(tmp_path / "out").tokenizer is None
    own = Model(Generator(Config(vocab=9, context=8, dim=8, depth=1, heads=1)))
    with pytest.raises(GlassError, match="has no generator"):
        own.save(tmp_path / "no", format="huggingface")
    with pytest.raises(GlassError, match="one of glassformer, huggingface"):
        own.save(tmp_path / "no", format="gguf")


def test_ours_and_theirs_hold_the_same(gpt2, tmp_path):
    model = load(gpt2)
    model.save(tmp_path / "ours")
    same(load(tmp_path / "ours"), model)
    assert load(tmp_path / "ours").config == model.config
