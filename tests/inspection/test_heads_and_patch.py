"""What heads attend to, the effect of ablating them, and activation patching."""

import copy

import pytest
import torch
import torch.nn.functional as F

from cases import CASES, ids
from glassformer import GlassError
from glassformer.inspection import draw
from glassformer.inspection.heads import (
    LENGTH,
    attention_fractions,
    make_repeated_ids,
    measure_heads,
)
from glassformer.inspection.patch import patch
from glassformer.models.network import Trait
from inspection.test_worksheet import TOKENIZER

IDS = torch.tensor([1, 2, 3, 1, 2, 3])


def one_hot_pattern(*positions):
    """Attention weights of 1 from row i to positions[i]."""
    return F.one_hot(torch.tensor(positions), len(positions)).float()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ((0, 0, 1, 2, 3, 4), {"previous": 1.0, "first": 0.2, "distance": 5 / 6}),
        ((0, 0, 0, 0, 0, 0), {"first": 1.0, "distance": 15 / 6}),
        ((0, 1, 2, 3, 4, 5), {"self": 1.0, "previous": 0.0, "distance": 0.0}),
        ((0, 1, 2, 0, 1, 2), {"duplicate": 1.0, "induction": 0.0}),
        ((0, 1, 2, 1, 2, 3), {"induction": 1.0, "duplicate": 0.0}),
    ],
)
def test_fractions_of_a_head_that_attends_to_one_position_per_row(positions, expected):
    fractions = attention_fractions(one_hot_pattern(*positions), IDS)
    assert {name: fractions[name] for name in expected} == pytest.approx(expected)


def test_repeated_is_random_tokens_twice():
    text = make_repeated_ids(50, 100)
    assert torch.equal(text[:, :LENGTH], text[:, LENGTH:])


@pytest.mark.parametrize("name", ["gpt2", "translator", "bert", "classifier", "llama"])
def test_ablating_a_head_equals_zeroing_its_output_weights(name):
    case = CASES[name]
    inputs = {"ids": ids(1, 8)}
    if case.has(Trait.SEQ2SEQ):
        inputs["source"] = ids(1, 5)
    report = measure_heads(case.network, inputs)
    assert len({(head.name, head.head) for head in report}) == len(report)
    head = report[-1]
    network = copy.deepcopy(case.network)
    out = network.get_submodule(head.name).out
    head_dim = out.in_features // (1 + max(h.head for h in report if h.name == head.name))
    with torch.no_grad():
        output = network(**inputs)
        out.weight[:, head.head * head_dim : (head.head + 1) * head_dim] = 0
        ablated = network(**inputs)
    assert report.cost_is_loss == (name in ("gpt2", "translator", "llama"))
    if report.cost_is_loss:
        losses = [F.cross_entropy(o[0, :-1], inputs["ids"][0, 1:]) for o in (ablated, output)]
        expected = float(losses[0] - losses[1])
    else:
        old, new = (o.softmax(-1).flatten(0, -2) for o in (output, ablated))
        expected = float((old * (old.log() - new.log())).sum(-1).mean())
    assert head.cost == pytest.approx(expected, abs=1e-5)
    *_, distances, costs = (a for a in draw.heads_figure(report).get_axes() if a.patches)
    assert [bar.get_width() for bar in costs.patches] == pytest.approx([h.cost for h in report])
    assert [bar.get_width() for bar in distances.patches] == pytest.approx(
        [h.distance or 0 for h in report]
    )


def test_induction_does_not_count_the_token_itself():
    assert attention_fractions(torch.eye(4), torch.ones(4))["induction"] == 0


def test_a_uniform_head_is_reported_for_each_stack():
    causal = measure_heads(CASES["gpt2"].network, {"ids": ids(1, 6)}).uniform[""]
    assert causal["first"] == pytest.approx(sum(1 / n for n in range(2, 7)) / 5)
    inputs = {"ids": ids(1, 6), "source": ids(1, 6)}
    uniform = measure_heads(CASES["translator"].network, inputs).uniform
    assert uniform["encoder"]["first"] == pytest.approx(1 / 6)
    assert uniform["decoder"]["first"] == causal["first"]


def test_a_layer_without_head_outputs_is_ablated_entirely():
    case = CASES["decoder: plain, learned"]
    with torch.no_grad():
        report = measure_heads(case.network, {"ids": ids(1, 8)})
    assert all(head.cost != 0 for head in report)


def test_the_cost_is_defined_for_a_single_token():
    assert all(
        head.cost == head.cost for head in measure_heads(CASES["gpt2"].network, {"ids": ids(1, 1)})
    )


def test_a_model_without_attention_has_no_heads():
    with pytest.raises(GlassError, match="no attention"):
        measure_heads(CASES["convolutional"].network, {"ids": ids(1, 8)})


CLEAN, CORRUPT = "a cat sat", "a dog sat"


def randomize_weights(name):
    """A model with larger random weights, whose outputs differ between texts."""
    network = copy.deepcopy(CASES[name].network)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network


@pytest.mark.parametrize("name", ["gpt2", "llama", "generator"])
def test_tokens_before_the_change_recover_nothing_and_the_last_token_everything(name):
    result = patch(randomize_weights(name), TOKENIZER, CLEAN, CORRUPT)
    before = next(i for i, (a, b) in enumerate(zip(CLEAN, CORRUPT, strict=True)) if a != b)
    for block, fractions in result.positions.items():
        assert fractions.shape == (len(CLEAN),)
        torch.testing.assert_close(fractions[:before], torch.zeros(before), atol=1e-4, rtol=0)
        if block == "blocks.1":
            assert float(fractions[-1]) == pytest.approx(1, abs=1e-4)
            assert fractions[:-1].abs().max() < 1e-4  # no later layer attends to them
    assert all(fractions.shape == (4,) for fractions in result.heads.values())
    assert list(result.positions) == [
        f"blocks.{i}{part}" for i in range(2) for part in ("", ".attention", ".feedforward")
    ]
    drawn = torch.from_numpy(draw.patch_figure(result).get_axes()[0].images[0].get_array().data)
    torch.testing.assert_close(drawn.float(), torch.stack(list(result.positions.values())))


def test_patching_in_a_batch_equals_patching_one_position_at_a_time():
    network = randomize_weights("gpt2")
    result = patch(network, TOKENIZER, CLEAN, CORRUPT)
    texts = [torch.tensor([TOKENIZER.encode(text)]) for text in (CLEAN, CORRUPT)]
    from glassformer import Trace

    with torch.inference_mode():
        with Trace(network, "blocks.0") as trace:
            clean = network(texts[0])[0, -1].log_softmax(-1)
        corrupt = network(texts[1])[0, -1].log_softmax(-1)
        change = clean.exp() - corrupt.exp()
        first, second = change.argmax(), change.argmin()

        def swap(value):
            value = value.clone()
            value[:, 3] = trace["blocks.0"][:, 3]
            return value

        with Trace(network, edit={"blocks.0": swap}):
            patched = network(texts[1])[0, -1].log_softmax(-1)
    difference = lambda log_probs: float(log_probs[first] - log_probs[second])
    fraction = (difference(patched) - difference(corrupt)) / (
        difference(clean) - difference(corrupt)
    )
    assert float(result.positions["blocks.0"][3]) == pytest.approx(fraction, abs=1e-4)


def test_texts_that_cannot_be_compared_are_rejected():
    network = randomize_weights("gpt2")
    with pytest.raises(GlassError, match="same number of tokens, got 9 and 4"):
        patch(network, TOKENIZER, CLEAN, "a do")
    with pytest.raises(GlassError, match="no difference to explain"):
        patch(network, TOKENIZER, CLEAN, CLEAN)
    with pytest.raises(GlassError, match="no blocks whose values"):
        patch(CASES["markov"].network, TOKENIZER, "a cat", "a cab")


def test_saving_a_plot_rejects_an_unknown_file_type(tmp_path):
    result = patch(randomize_weights("gpt2"), TOKENIZER, CLEAN, CORRUPT)
    with pytest.raises(GlassError, match="can be written as"):
        draw.save(draw.patch_figure(result), tmp_path / "a.txt")
    draw.save(draw.patch_figure(result), tmp_path / "a.svg")
    assert ">blocks.0.attention<" in (tmp_path / "a.svg").read_text()  # text, not paths
