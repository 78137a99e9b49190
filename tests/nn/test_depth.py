"""Recurrence in depth: adaptive computation time token by token, and its cost."""

import pytest
import torch

from glassformer import MODELS, GlassError, Trace, load
from glassformer.core.reporter import NullReporter
from glassformer.nn.block import post_norm
from glassformer.nn.depth import DepthLoop, mean_of_tokens
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import full
from glassformer.nn.positions import sinusoid
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import Step
from glassformer.training.train import train

SIZES = {"vocab": 20, "context": 16, "dim": 8, "depth": 4, "heads": 2}


def build(name="universal", **settings):
    torch.manual_seed(0)
    model_class = MODELS[name]
    network = model_class(model_class.Config(**{**SIZES, **settings}))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network.eval()


def attend_literally(layer, x, i):
    """Causal attention of token i, head by head."""
    heads, e = [], layer.head_dim
    for h in range(2):
        part = slice(h * e, (h + 1) * e)
        q = layer.query(x[i])[part]
        scores = torch.stack([q @ layer.key(x[j])[part] for j in range(i + 1)]) / e**0.5
        pattern = scores.softmax(0)
        heads.append(sum(a * layer.value(x[j])[part] for j, a in enumerate(pattern)))
    return layer.out(torch.cat(heads))


def run_literally(network, ids):
    """Each token by itself, step by step, as in Graves' equations: its output, steps and R."""
    config, block, gate = network.config, network.loop.blocks[0], network.loop.gate
    states = [network.token(id) * config.dim**0.5 for id in ids]
    outputs = [torch.zeros(config.dim) for _ in ids]
    total, steps, remainders = [0.0] * len(ids), [0] * len(ids), [0.0] * len(ids)
    running = [True] * len(ids)
    for n in range(config.depth):
        inputs = [
            state + sinusoid(torch.tensor([i]), 8)[0] + sinusoid(torch.tensor([n]), 8)[0]
            for i, state in enumerate(states)
        ]
        for i in range(len(ids)):
            if not running[i]:
                continue
            p = float(torch.sigmoid(gate(inputs[i])[0]))
            y = block.attention_norm(inputs[i] + attend_literally(block.attention, inputs, i))
            y = block.feedforward_norm(y + block.feedforward(y))
            steps[i] += 1
            if total[i] + p > config.halt_threshold or n == config.depth - 1:
                running[i], remainders[i], p = False, 1 - total[i], 1 - total[i]
            outputs[i] = outputs[i] + p * y
            total[i] += p
            states[i] = y
    return torch.stack(outputs), steps, remainders


@pytest.mark.parametrize("threshold", [0.99, 0.9])
@torch.no_grad()
def test_every_token_stops_as_in_the_literal_loop(threshold):
    network, ids = build(halt_threshold=threshold), torch.randint(0, 20, (12,))
    network.loop.gate.bias.fill_(-2.0)  # so that some take several steps
    expected, steps, remainders = run_literally(network, ids)
    assert max(steps) - min(steps) > 1  # others read a token after it has stopped
    with Trace(network, "loop.n_steps", "loop.weight") as trace:
        torch.testing.assert_close(network.features(ids[None])[0], expected, rtol=1e-4, atol=1e-5)
    assert trace["loop.n_steps"][0].tolist() == steps
    weights = torch.stack(trace.visits["loop.weight"])[:, 0]  # steps, tokens
    torch.testing.assert_close(weights.sum(0), torch.ones(12))
    last = weights.gather(0, torch.tensor(steps)[None] - 1)[0]
    torch.testing.assert_close(last, torch.tensor(remainders), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_without_halting_every_token_takes_all_steps():
    network, ids = build(adaptive=False), torch.randint(0, 20, (1, 6))
    x = network.token(ids[0]) * 8**0.5
    block = network.loop.blocks[0]
    for n in range(4):
        x = x + sinusoid(torch.arange(6), 8) + sinusoid(torch.tensor([n]), 8)
        y = torch.stack([x[i] + attend_literally(block.attention, x, i) for i in range(6)])
        y = block.attention_norm(y)
        x = block.feedforward_norm(y + block.feedforward(y))
    torch.testing.assert_close(network.features(ids)[0], x, rtol=1e-4, atol=1e-5)
    assert network.train().extra_loss() is None


def loop_literally(token, ids, apply):
    """All steps without halting: tokens times √d, plus the signals of position and step."""
    x = token(ids) * 8**0.5
    for n in range(4):
        signals = sinusoid(torch.arange(ids.shape[1]), 8) + sinusoid(torch.tensor([n]), 8)
        x = apply(x + signals)
    return x


@torch.no_grad()
def test_the_classifier_is_a_loop_without_a_mask_and_the_mean_of_its_tokens():
    network, ids = build("universal_classifier", adaptive=False), torch.randint(0, 20, (2, 6))
    block, layout = network.loop.blocks[0], SequenceLayout(6, 6)
    assert (block.attention.mask, block.residual) == (full, post_norm)
    x = loop_literally(network.token, ids, lambda x: block(x, layout))
    torch.testing.assert_close(network(ids), network.head(x.mean(dim=1)))


@pytest.mark.parametrize("source_vocab", [None, 15])
@torch.no_grad()
def test_the_translator_is_a_loop_over_the_source_and_one_over_the_target(source_vocab):
    sizes = {name: value for name, value in SIZES.items() if name != "context"}
    model_class = MODELS["universal_translator"]
    network = model_class(model_class.Config(**sizes, source_vocab=source_vocab, adaptive=False))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ids, source = torch.randint(0, 20, (2, 6)), torch.randint(0, 15, (2, 5))
    layouts = SequenceLayout(5, 5), SequenceLayout(6, 6), SequenceLayout(6, 5)
    encode, decode = network.encoder_loop.blocks[0], network.decoder_loop.blocks[0]
    token = network.token if source_vocab is None else network.source_token
    encoded = loop_literally(token, source, lambda x: encode(x, layouts[0]))
    x = loop_literally(network.token, ids, lambda x: decode(x, layouts[1], encoded, layouts[2]))
    torch.testing.assert_close(network.eval()(ids, source), x @ network.token.weight.T)


def test_the_mean_of_tokens_leaves_out_padding_and_earlier_tokens():
    keep = torch.tensor([[True, True, True], [False, False, True]])
    value = torch.tensor([[2.0, 4.0], [9.0, 6.0]])  # of the last two tokens
    assert mean_of_tokens(value, SequenceLayout(2, 3, keep=keep)) == 4
    assert mean_of_tokens(value, SequenceLayout(2, 3)) == 5.25


@torch.no_grad()
def test_a_loop_applies_its_block_once_per_step():
    loop = DepthLoop(torch.nn.Identity(), 8, 3, adaptive=False, threshold=0.9)
    steps = []
    loop(torch.zeros(1, 2, 8), SequenceLayout(2, 2), lambda x, step: steps.append(step) or x)
    assert steps == [0, 1, 2]


def test_the_ponder_cost_is_the_mean_of_steps_and_remainder():
    network, ids = build(ponder_cost=0.5).train(), torch.randint(0, 20, (1, 12))
    with torch.no_grad():
        _, steps, remainders = run_literally(network, ids[0])
    network(ids)
    expected = 0.5 * (sum(steps) + sum(remainders)) / 12
    assert network.extra_loss().item() == pytest.approx(expected, rel=1e-4)
    assert network.extra_loss() is None  # it belongs to one pass
    keep = torch.arange(12) < 7
    network(ids, keep=keep[None])
    expected = 0.5 * (sum(steps[:7]) + sum(remainders[:7])) / 7
    assert network.extra_loss().item() == pytest.approx(expected, rel=1e-4)


class Objective:
    groups = (None,)

    def count(self, batch):
        return len(batch["ids"])

    def losses(self, network, batch, *, label_smoothing=0.0):
        yield network(batch["ids"]).sum() * 0.0


@pytest.mark.parametrize("name", ["universal", "universal_classifier", "universal_translator"])
def test_the_cost_is_part_of_the_loss(name):
    sizes = {k: v for k, v in SIZES.items() if name != "universal_translator" or k != "context"}
    model_class = MODELS[name]
    network = model_class(model_class.Config(**sizes, ponder_cost=0.25)).train()
    network.forward_inputs = ("ids",)
    if name == "universal_translator":
        forward = network.forward
        network.forward = lambda ids: forward(ids, source=ids)
    step = Step(network, Objective(), TrainingSettings(device="cpu", precision="float32"))
    batch = {"ids": torch.randint(0, 20, (3, 5))}
    ponder = {}
    for path, loop in network.named_modules():
        if isinstance(loop, DepthLoop):
            loop.register_forward_hook(lambda m, *_, p=path: ponder.update({p: m.ponder.item()}))
    (loss,) = step.losses(batch)
    loops = 2 if name == "universal_translator" else 1
    costs = [value for _, value in sorted(ponder.items())]
    assert len(costs) == loops
    assert all(1 <= cost <= 5 for cost in costs)  # between 1 and 4 steps, plus R
    assert loss.item() == pytest.approx(3 * 0.25 * sum(costs))
    loss.backward()
    gates = [p.grad for n, p in network.named_parameters() if ".gate." in n]
    assert len(gates) == 2 * loops
    assert all(g is not None and g.abs().max() > 0 for g in gates)


def test_a_high_ponder_cost_makes_tokens_stop_earlier(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("the cat sat on the mat and the dog lay on the log. " * 60)
    settings = ["model.dim=16", "model.depth=4", "model.heads=2", "model.context=16",
                "train.batch_size=8"]  # fmt: skip
    means = []
    for cost in (0.0, 1.0):
        train("generate", file, model="universal", run=tmp_path / str(cost), prior=False, steps=60,
              settings=[*settings, f"model.ponder_cost={cost}"], reporter=NullReporter(),
              precision="float32", device="cpu")  # fmt: skip
        trace = load(tmp_path / str(cost)).trace("the cat sat on", "loop.halting")
        means.append(float(trace["loop.halting#1"].mean()))
    assert means[1] > means[0] + 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ponder_cost": -0.1}, "ponder_cost must be at least 0"),
        ({"halt_threshold": 1.5}, "halt_threshold must be .*at most 1"),
        ({"dim": 9, "heads": 3}, "even dim"),
    ],
)
def test_impossible_settings_are_rejected(settings, message):
    with pytest.raises(GlassError, match=message):
        MODELS["universal"].Config(**{**SIZES, **settings})
