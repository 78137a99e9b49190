"""GPT-2 compared with tiny random models of `transformers`; nothing is downloaded."""

import tempfile
from pathlib import Path

import pytest
import torch

from formats import parity
from formats.parity import close
from glassformer import load

transformers = pytest.importorskip("transformers")


def random_model(seed, vocab=None):
    s = parity.random_sizes(seed)
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=vocab or s["vocab"],
        n_positions=s["context"],
        n_embd=s["dim"],
        n_layer=s["depth"],
        n_head=s["heads"],
        n_inner=s["choose"].choice([None, s["hidden"]]),
        activation_function=s["activation"],
        layer_norm_epsilon=s["eps"],
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return parity.randomize(transformers.GPT2LMHeadModel(config))


@pytest.mark.parametrize("seed", range(20))
@torch.no_grad()
def test_random_models_match_transformers(seed):
    theirs = random_model(seed)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load(folder)
        parity.assert_export_round_trips(ours, theirs, Path(folder) / "back")
    ids, keep = parity.ids_and_keep(theirs.config.vocab_size)
    expected = theirs(ids, attention_mask=keep.long(), output_attentions=True)
    close(ours.network(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
    close(ours.network(ids, keep=keep)[keep], expected.logits[keep], atol=1e-5, rtol=1e-5)
    parity.assert_patterns_agree(ours.network, ids, keep, expected.attentions)


@torch.no_grad()
def test_tensor_names_without_prefix_are_accepted(tmp_path):
    theirs = random_model(3)
    theirs.save_pretrained(tmp_path / "with")
    theirs.transformer.save_pretrained(tmp_path / "without")
    ids, _ = parity.ids_and_keep(theirs.config.vocab_size)
    assert torch.equal(
        load(tmp_path / "with").network(ids), load(tmp_path / "without").network(ids)
    )


def test_gpt2_xl_has_the_published_size():
    from glassformer.models.gpt2 import GPT2, Config

    with torch.device("meta"):
        network = GPT2(Config(dim=1600, depth=48, heads=25))
    assert sum(p.numel() for p in network.parameters()) == 1_557_611_200
