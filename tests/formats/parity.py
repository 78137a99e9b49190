"""What the parity tests share: a random model of `transformers`, saved, loaded here, compared."""

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


def shake(network):
    """Weights away from where they start, so that no bias is 0 and no scale 1."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network.eval()


def sizes(seed):
    """A random choice of width, heads, depth, vocabulary and activation."""
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
    """Every head's attention, where the query is a real token."""
    with Trace(network, "*.pattern") as trace:
        network(ids, keep=keep, **more)
    for mine, other in zip(trace.values(), theirs, strict=True):
        close(mine.transpose(1, 2)[keep], other.transpose(1, 2)[keep], atol=1e-6, rtol=1e-6)


def assert_the_way_back(model, theirs, folder):
    """What we write, their library loads with equal tensors, and we load as it was."""
    model.save(folder, format="huggingface")
    again = type(theirs).from_pretrained(folder, attn_implementation="eager")
    previous_ids, after = theirs.state_dict(), again.state_dict()
    assert previous_ids.keys() == after.keys()
    assert all(torch.equal(previous_ids[name], after[name]) for name in previous_ids)
    ours = load(folder)
    assert ours.config == model.config
    state = ours.network.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in model.network.state_dict().items())
