"""Transformer-XL: the paper's equations written out, streams of segments, and its memory."""

import copy
import math
import random

import pytest
import torch

from cases import CASES
from faults import stopping_after
from glassformer import MODELS, GlassError, checkpoint, load
from glassformer.checkpoint import LAST
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.generate.decode import generate_tokens
from glassformer.generate.sampling import GREEDY
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.memory import LayerMemory, MemoryBlock, StreamMemory
from glassformer.nn.positions import sinusoid
from glassformer.tasks import TASKS
from glassformer.training.evaluate import evaluate
from glassformer.training.resume import resume
from glassformer.training.train import train

SIZES = {"vocab": 20, "context": 4, "memory": 4, "dim": 8, "depth": 2, "heads": 2}


def build(**settings):
    torch.manual_seed(0)
    model_class = MODELS["transformer_xl"]
    network = model_class(model_class.Config(**{**SIZES, **settings}))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


def read(network, ids, *, size=4, **options):
    rows = torch.arange(len(ids))
    return torch.cat(
        [
            network(chunk, streams=rows, segment=torch.full_like(rows, i), **options)
            for i, chunk in enumerate(ids.split(size, dim=1))
        ],
        dim=1,
    )


def attend_literally(layer, queries, inputs):
    """The attention of the paper, equation by equation, for one sequence.

    A_ij = q_i·k_j + q_i·r_(i-j) + u·k_j + v·r_(i-j), with r = W_R R.
    """
    relative, e = layer.position, layer.head_dim
    first, rows = len(inputs) - len(queries), []
    for i, x in enumerate(queries, start=first):
        heads = []
        for h in range(2):
            part = slice(h * e, (h + 1) * e)
            q = layer.query(x)[part]
            u, v = relative.content[h, 0], relative.distance[h, 0]
            scores = []
            for j in range(i + 1):
                k = layer.key(inputs[j])[part]
                r = relative.project(sinusoid(torch.tensor([i - j]), 8)[0])[part]
                scores.append((q @ k + q @ r + u @ k + v @ r) / math.sqrt(e))
            pattern = torch.stack(scores).softmax(0)
            heads.append(sum(a * layer.value(inputs[j])[part] for j, a in enumerate(pattern)))
        rows.append(layer.out(torch.cat(heads)))
    return torch.stack(rows)


@torch.no_grad()
def test_segments_follow_the_equations_of_the_paper():
    network, text = build(), torch.randint(0, 20, (11,))
    memories, outputs = [torch.empty(0, 8)] * 2, []
    for segment in text.split(4):
        x = network.token(segment)
        for n, block in enumerate(network.blocks):
            inputs = torch.cat((memories[n], x))
            memories[n] = inputs[-4:]
            normed = block.attention_norm(inputs)
            x = x + attend_literally(block.attention, normed[-len(segment) :], normed)
            x = x + block.feedforward(block.feedforward_norm(x))
        outputs.append(network.norm(x) @ network.token.weight.T)
    torch.testing.assert_close(read(network, text[None])[0], torch.cat(outputs))


@torch.no_grad()
def test_information_moves_further_with_every_layer():
    """With two layers and a memory of 4 tokens, the first token reaches two segments on."""
    network, text = build(), torch.randint(0, 20, (1, 20))
    changed = text.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 20
    difference = (read(network, text) - read(network, changed)).abs().amax(dim=-1)[0]
    assert difference[:12].reshape(3, 4).amax(dim=1).gt(1e-6).all()
    assert difference[12:].eq(0).all()
    long = (read(network, text, memory=20) - read(network, changed, memory=20)).abs()
    assert long[0, -1].max() > 1e-6


@torch.no_grad()
def test_a_segment_that_is_read_again_starts_from_the_same_memory():
    network, text, rows = build(), torch.randint(0, 20, (3, 8)), torch.arange(3)
    first, second = text.split(4, dim=1)
    network(first, streams=rows, segment=torch.zeros(3))
    once = network(second, streams=rows, segment=torch.ones(3))
    for parts in ([rows], rows.split(2)):  # whole, and in micro-batches
        again = [network(second[p], streams=p, segment=torch.ones(len(p))) for p in parts]
        torch.testing.assert_close(torch.cat(again), once)
    elsewhere = network(second, streams=rows, segment=torch.full((3,), 7))  # not the next segment
    torch.testing.assert_close(elsewhere, network(second))


@torch.no_grad()
def test_without_memory_each_segment_is_read_by_itself():
    text = torch.randint(0, 20, (2, 8))
    for network, options in ((build(), {"memory": 0}), (build(memory=0), {})):
        expected = torch.cat([network(segment) for segment in text.split(4, dim=1)], dim=1)
        torch.testing.assert_close(read(network, text, **options), expected)


@torch.no_grad()
def test_an_evaluation_does_not_touch_the_memory_of_training():
    network, text, rows = build().train(), torch.randint(0, 20, (2, 8)), torch.arange(2)
    first, second = text.split(4, dim=1)
    expected = read(network, text)
    network(first, streams=rows, segment=torch.zeros(2))
    read(network.eval(), torch.randint(0, 20, (2, 12)))
    found = network.train()(second, streams=rows, segment=torch.ones(2))
    torch.testing.assert_close(found, expected[:, 4:])


@torch.no_grad()
def test_a_prior_reads_the_ids_before_a_segment_and_leaves_out_its_fold():
    network, seen = copy.deepcopy(CASES["transformer_xl with a prior"].network), []
    network.norm.register_forward_hook(lambda _, _inputs, output: seen.append(output))
    text, rows = torch.randint(0, 5, (2, 12)) * 10, torch.arange(2)
    folds = torch.tensor([[1], [3]]).expand(2, 6)
    past, segment = text.split(6, dim=1)
    for options in ({}, {"folds": folds}, {"past_ids": past}, {"past_ids": past, "folds": folds}):
        found = network(segment, streams=rows, segment=torch.zeros(2), **options)
        logits, given = network.unembed(seen[-1]), (options.get(n) for n in ("past_ids", "folds"))
        torch.testing.assert_close(found, network.prior(logits, seen[-1], segment, *given))
        plain = network(segment, streams=rows, segment=torch.zeros(2))
        assert torch.equal(found, plain) == (not options)


@torch.no_grad()
def test_values_that_are_not_finite_do_not_stay_in_memory():
    network, text, rows = build(), torch.randint(0, 20, (1, 8)), torch.arange(1)
    weight = network.token.weight.clone()
    network.token.weight.fill_(float("nan"))
    network(text[:, :4], streams=rows, segment=torch.zeros(1))
    network.token.weight.copy_(weight)
    assert network(text[:, 4:], streams=rows, segment=torch.ones(1)).isfinite().all()


@torch.no_grad()
def test_a_block_without_earlier_inputs_is_an_ordinary_block():
    parts = (Attention(8, 2, mask=causal), FeedForward(8, 16))
    plain, with_memory = Block(8, *parts), MemoryBlock(8, *parts)
    x, layout = torch.randn(2, 5, 8), SequenceLayout(5, 5)
    torch.testing.assert_close(with_memory(x, layout), plain(x, layout))
    last = with_memory(x, SequenceLayout(2, 5))  # the first three inputs are only read
    torch.testing.assert_close(last, plain(x, layout)[:, -2:])


def test_a_layer_remembers_its_last_inputs_without_gradients():
    layer, x = LayerMemory(10, limit=3), torch.randn(2, 2, 4, requires_grad=True)
    assert layer.size == 0
    assert layer.extend(x) is x
    inputs = layer.extend(2 * x)
    assert torch.equal(inputs, torch.cat((x, 2 * x), dim=1))
    assert (layer.size, layer.length) == (3, 4)
    assert torch.equal(layer.state[0], inputs[:, 1:])
    assert not layer.state.requires_grad
    with pytest.raises(ValueError, match=r"it has \d+ of at most 10 tokens, got \d+ more"):
        layer.extend(torch.randn(2, 8, 4))
    with pytest.raises(ValueError, match="batch size 2, got 1"):
        layer.extend(x[:1])


def test_a_stream_continues_after_it_was_saved():
    memory, rows = StreamMemory(1), torch.arange(2)
    with memory.open(rows, 0, limit=4) as cache:
        cache.layers[0].extend(torch.ones(2, 3, 4))
    restored = StreamMemory(1)
    restored.restore(memory.to_tensors())
    for other in (memory, restored):
        with other.open(rows, 1, limit=2) as cache:
            assert cache.layers[0].size == 2
            cache.layers[0].extend(torch.zeros(2, 1, 4))
    assert memory.to_tensors().keys() == restored.to_tensors().keys() == {"0.1", "1.1"}


@torch.no_grad()
def test_generation_goes_on_beyond_the_context_without_starting_over():
    network, prompt = build(), torch.randint(0, 20, (1, 11))
    calls = []
    network.register_forward_pre_hook(
        lambda _m, args, kwargs: calls.append(args[0].shape[1]), with_kwargs=True
    )
    tokens = [int(t) for t in generate_tokens(network, prompt, 12, sampling=GREEDY)]
    assert calls == [4, 4, 3] + [1] * 11  # the prompt in segments, then one token at a time
    assert len(tokens) == 12


@pytest.fixture
def text(tmp_path):
    words = "the a cat dog mat log sat lay on by and while two birds sang to it".split()
    choose = random.Random(0).choice
    file = tmp_path / "words.txt"
    file.write_text(" ".join(choose(words) for _ in range(3000)))
    return file


def test_streams_are_consecutive_and_depend_only_on_seed_and_step(tmp_path, text):
    spec = TASKS["generate"]
    task = spec.open(spec.prepare(DataRequest(files=(text,)), tmp_path, NullReporter()), tmp_path)
    network = build(vocab=task.dataset.sizes()["vocab"], context=8)
    batches = task.train_batches(network, 3, seed=5)
    first, second = batches.at(7), batches.at(8)
    assert first["streams"].tolist() == [0, 1, 2]
    assert first["segment"].tolist() == [7, 7, 7]
    assert torch.equal(first["targets"][:, :-1], first["ids"][:, 1:])
    is_next = first["targets"][:, -1] == second["ids"][:, 0]
    assert is_next.all()
    assert torch.equal(second["past_ids"], first["ids"][:, 1:])
    again = task.train_batches(network, 3, seed=5).at(7)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(task.train_batches(network, 3, seed=6).at(7)["ids"], first["ids"])
    n_segments = (task.dataset.size - 1) // 8
    later = batches.at(n_segments // 3)["ids"][0]  # each stream reads a third of the text
    assert torch.equal(later, batches.at(0)["ids"][1])
    assert torch.equal(batches.at(n_segments)["ids"], batches.at(0)["ids"])
    (text.parent / "short.txt").write_text("abc")
    (tmp_path / "short").mkdir()
    request = DataRequest(files=(text.parent / "short.txt",), valid=(text,))
    artifacts = spec.prepare(request, tmp_path / "short", NullReporter())
    short = spec.open(artifacts, tmp_path / "short")
    with pytest.raises(GlassError, match=r"too few tokens \(3\) for a window of 9 tokens"):
        short.train_batches(network, 3, seed=5).at(0)


SETTINGS = ["model.dim=16", "model.depth=2", "model.heads=2", "model.context=8", "model.memory=12",
            "train.batch_size=4"]  # fmt: skip
OPTIONS = {"model": "transformer_xl", "reporter": NullReporter(), "settings": SETTINGS,
           "precision": "float32", "device": "cpu"}  # fmt: skip


@pytest.mark.parametrize("prior", [False, True])
def test_a_stopped_run_continues_with_its_memory(tmp_path, text, prior, monkeypatch):
    options = {**OPTIONS, "prior": prior, "steps": 12}
    train("generate", text, run=tmp_path / "whole", **options)
    with stopping_after(5, monkeypatch):
        train("generate", text, run=tmp_path / "stopped", **options)
    resume(tmp_path / "stopped", NullReporter())
    whole, stopped = (
        checkpoint.load(tmp_path / name / LAST)[0].state_dict() for name in ("whole", "stopped")
    )
    assert all(torch.equal(value, stopped[name]) for name, value in whole.items())


def test_micro_batches_give_the_same_gradients(tmp_path, text):
    for name, extra in (("whole", []), ("split", ["train.accumulate=2"])):
        settings = [*SETTINGS, "train.optimizer=adamw", *extra]
        train("generate", text, run=tmp_path / name,
              **{**OPTIONS, "settings": settings, "prior": False, "steps": 6})  # fmt: skip
    whole, split = (
        checkpoint.load(tmp_path / name / LAST)[0].state_dict() for name in ("whole", "split")
    )
    for name, value in whole.items():
        torch.testing.assert_close(split[name], value, rtol=1e-3, atol=1e-4)


def test_evaluation_can_use_a_longer_memory(tmp_path, text):
    train("generate", text, run=tmp_path / "run", **OPTIONS, prior=False, steps=30)
    default = evaluate(tmp_path / "run")
    assert default["loss"] == pytest.approx(evaluate(tmp_path / "run", context=20)["loss"])
    assert evaluate(tmp_path / "run", context=8)["loss"] != default["loss"]
    assert evaluate(tmp_path / "run", context=100)["loss"] != default["loss"]
    assert len(load(tmp_path / "run").generate("the cat", max_new_tokens=40)) >= 40


@pytest.mark.parametrize(("memory", "message"), [(-1, "at least 0"), (1.5, "must be an integer")])
def test_an_impossible_memory_is_rejected(memory, message):
    with pytest.raises(GlassError, match=f"memory must be .*{message}|memory {message}"):
        build(memory=memory)
