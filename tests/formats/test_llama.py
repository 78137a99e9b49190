"""Llama compared with tiny random models of `transformers`, and with the output of llama2.c."""

import hashlib
import json
import struct

import pytest
import torch

from formats import parity
from formats.parity import close
from glassformer import GlassError, Trace, load
from glassformer.formats import llama2c

transformers = pytest.importorskip("transformers")
ROPE_SCALED = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}


def random_model(seed):
    s = parity.random_sizes(seed)
    torch.manual_seed(seed)
    choose, heads = s["choose"], s["heads"]
    plain = {"rope_type": "default", "rope_theta": choose.choice([10_000.0, 100.0])}
    config = transformers.LlamaConfig(
        vocab_size=s["vocab"],
        max_position_embeddings=s["context"],
        hidden_size=s["dim"],
        num_hidden_layers=s["depth"],
        num_attention_heads=heads,
        num_key_value_heads=choose.choice([n for n in (1, 2, 4) if heads % n == 0]),
        head_dim=choose.choice([None, 6, 12]),
        intermediate_size=s["hidden"],
        hidden_act=s["activation"],
        rms_norm_eps=s["eps"],
        attention_bias=choose.random() < 0.5,
        mlp_bias=choose.random() < 0.5,
        tie_word_embeddings=choose.random() < 0.5,
        rope_parameters=ROPE_SCALED if choose.random() < 0.4 else plain,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return parity.randomize(transformers.LlamaForCausalLM(config))


@pytest.mark.parametrize("seed", range(20))
@torch.no_grad()
def test_random_models_match_transformers(seed, tmp_path):
    theirs = random_model(seed)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    parity.assert_export_round_trips(ours, theirs, tmp_path / "back")
    ids, keep = parity.ids_and_keep(theirs.config.vocab_size)
    expected = theirs(ids, attention_mask=keep.long(), output_attentions=True)
    close(ours.network(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
    close(ours.network(ids, keep=keep)[keep], expected.logits[keep], atol=1e-5, rtol=1e-5)
    parity.assert_patterns_agree(ours.network, ids, keep, expected.attentions)


@torch.no_grad()
def test_left_padding_matches_transformers(tmp_path):
    theirs = random_model(1)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    ids, keep = parity.ids_and_keep(theirs.config.vocab_size)
    keep = keep.flip(1)
    positions = (keep.cumsum(1) - 1).clamp(min=0)
    expected = theirs(ids, attention_mask=keep.long(), position_ids=positions).logits
    close(ours.network(ids, keep=keep)[keep], expected[keep], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scaled", [True, False])
@torch.no_grad()
def test_old_and_new_rotary_settings_are_equivalent(tmp_path, scaled):
    theirs = random_model(2)
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    rope = dict(ROPE_SCALED) if scaled else {"rope_type": "default", "rope_theta": 500.0}
    file.write_text(json.dumps({**config, "rope_parameters": rope}))
    new = load(tmp_path)
    del config["rope_parameters"]
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope if scaled else None
    file.write_text(json.dumps(config))
    assert load(tmp_path).config == new.config
    assert new.config.rope_theta == 500.0
    assert (new.config.rope_scaling is not None) == scaled


def test_greedy_story_starts_as_in_llama2c(data):
    files = data / "stories260K"
    model = load(files / "stories260K.bin", tokenizer=files / "tok512.bin")
    ids, cache, generated = torch.tensor([[1]]), model.network.cache(128), []
    with torch.inference_mode():
        for _ in range(128):
            ids = model.network(ids, cache=cache)[:, -1:].argmax(dim=-1)
            generated.append(int(ids))
    assert model.tokenizer.decode(generated).startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "park. One day, she saw a big, red ball. She wanted to play with it, but it was too high."
    )
    text = "Once upon a time, 你好 <s> <0x41>"
    assert model.tokenizer.decode(model.tokenizer.encode(text)) == text
    assert not {0, 1, 2} & set(model.tokenizer.encode(text))


def write_llama2c_file(path, *, tied=True, missing_bytes=0):
    """Write a small llama2.c model: dim 8, 2 layers, 2 heads that share 1 key-value head."""
    count = 11 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 96) + 8 + 6 * 4 + (not tied) * 88
    header = struct.pack("<7i", 8, 12, 2, 2, 1, 11 if tied else -11, 6)
    content = header + torch.randn(count).numpy().tobytes()
    path.write_bytes(content[: len(content) - missing_bytes])
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_of_a_llama2c_file_is_read(tmp_path, tied):
    path = write_llama2c_file(tmp_path / "model.bin", tied=tied)
    model = load(path)
    assert model.tokenizer is None
    assert model.config.tied is tied
    assert (model.config.context, model.config.kv_heads) == (6, 1)
    values = torch.frombuffer(bytearray(path.read_bytes()[28:]), dtype=torch.float32)
    assert torch.equal(model.network.token.weight.flatten(), values[:88])
    if not tied:
        assert torch.equal(model.network.head.weight.flatten(), values[-88:])
    assert model.network(torch.tensor([[1, 2, 3]])).shape == (1, 3, 11)


def test_rotary_neighbors_are_moved_half_a_head_apart():
    rows = torch.arange(8.0)[:, None]  # two heads of four rows, rotated as (0, 1) and (2, 3)
    assert llama2c.split_halves(rows, 4).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_corrupted_llama2c_files_are_rejected(tmp_path):
    path = write_llama2c_file(tmp_path / "model.bin", missing_bytes=4)
    with pytest.raises(GlassError, match=r"expected \d+ bytes, got \d+"):
        load(path)
    path.write_bytes(b"short")
    with pytest.raises(GlassError, match="shorter than the header"):
        load(path)
    path.write_bytes(struct.pack("<7i", 2**31 - 1, 1, 1, 1, 1, 1, 1))
    with pytest.raises(GlassError, match=r"not a llama2.c model: dim must be"):
        load(path)
    tokenizer = tmp_path / "tokenizer.bin"
    tokenizer.write_bytes(struct.pack("<ifi", 5, 0.0, 9) + b"abc")
    with pytest.raises(GlassError, match="token 0 has length 9"):
        load(write_llama2c_file(path), tokenizer=tokenizer)
    tokenizer.write_bytes(struct.pack("<ifi", 5, 0.0, 3) + b"abc")
    with pytest.raises(GlassError, match="ends after 1 of 11 tokens"):
        load(write_llama2c_file(path), tokenizer=tokenizer)


def test_greedy_stories_match_llama2c_to_the_end(data, tmp_path):
    """The hashes are of the output of llama2.c's `run -t 0 -n 512` (2026-11-17, gcc 12)."""
    files = data / "stories260K"
    load(files / "stories260K.bin", tokenizer=files / "tok512.bin").save(tmp_path / "ours")
    model = load(tmp_path / "ours")
    for prompt, expected in (
        ("One day, a robot named Max", "51f9240d5bee74596d586fd718351302"),
        ("One day", "9d1ffb434e9ceaa29cb39141fd48ca47"),
        ("", "e0c267ef267cb50130db210849536569"),
    ):
        story = prompt + model.generate(prompt, max_new_tokens=511, temperature=0.0) + "\n"
        assert hashlib.sha256(story.encode()).hexdigest().startswith(expected), story


def test_llama2c_prompt_starts_with_the_bos_token(tmp_path):
    tokens = [b"<unk>", b"<s>", b"</s>", *(bytes([c]) for c in b" abcdefg")]
    records = b"".join(struct.pack("<fi", 0.0, len(t)) + t for t in tokens)
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 5) + records)
    model = load(write_llama2c_file(tmp_path / "m.bin"), tokenizer=tmp_path / "tokenizer.bin")
    assert model.task == {"eos": [1, 2]}
    with Trace(model.network, "token") as trace:
        model.generate("ab", max_new_tokens=1, temperature=0.0)
    assert torch.equal(trace["token"][0, 0], model.network.token.weight[1])
    assert trace["token"].shape[1] == 1 + len(model.tokenizer.encode("ab"))
