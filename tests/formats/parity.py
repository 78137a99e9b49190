"""Helpers of the parity tests, which save a random `transformers` model, load it and compare."""

from __future__ import annotations

import logging
import random

import torch
from transformers.utils import logging as their_logging

from glassformer import Trace, load

their_logging.set_verbosity_error()
their_logging.disable_progress_bar()
logging.getLogger("transformers").setLevel(logging.ERROR)
close = torch.testing.assert_close


def randomize(network):
    """Add noise to the weights, so that no bias is 0 and no scale is 1."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network.eval()


def random_sizes(seed):
    """Return random dimensions, vocabulary size, activation and so on."""
    choose = random.Random(seed)
    heads = choose.choice([1, 2, 3, 4])
    return {
        "heads": heads,
        "dim": heads * choose.choice([4, 8, 10]),
        "depth": choose.choice([1, 2, 3]),
        "vocab": choose.randrange(20, 90),
        "hidden": choose.choice([16, 30, 64]),
        "activation": choose.choice(["gelu_new", "gelu", "relu", "silu"]),
        "eps": choose.choice([1e-5, 1e-6, 1e-12]),
        "context": choose.choice([16, 32]),
        "choose": choose,
    }


def ids_and_keep(vocab, length=14):
    ids, keep = torch.randint(0, vocab, (3, length)), torch.ones(3, length, dtype=torch.bool)
    keep[1, 9:] = False
    keep[2, 4:] = False
    return ids, keep


@torch.no_grad()
def assert_patterns_agree(network, ids, keep, theirs, **more):
    """Compare the attention of every head, where the query is not padding."""
    with Trace(network, "*.pattern") as trace:
        network(ids, keep=keep, **more)
    for pattern, expected in zip(trace.values(), theirs, strict=True):
        close(pattern.transpose(1, 2)[keep], expected.transpose(1, 2)[keep], atol=1e-6, rtol=1e-6)


def assert_export_round_trips(model, theirs, folder):
    """Check that `transformers` and we load the exported folder with equal tensors."""
    model.save(folder, format="huggingface")
    reloaded = type(theirs).from_pretrained(folder, attn_implementation="eager")
    before, after = theirs.state_dict(), reloaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    ours = load(folder)
    assert ours.config == model.config
    state = ours.network.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in model.network.state_dict().items())
