"""Where heads look, what their silence costs, and which values carry a difference."""

import copy

import pytest
import torch
import torch.nn.functional as F

from cases import CASES, ids
from glassformer import GlassError
from glassformer.inspection import draw
from glassformer.inspection.heads import LENGTH, attention_shares, measure_heads, repeated
from glassformer.inspection.patch import patch
from glassformer.models.network import Trait
from inspection.test_worksheet import TOKENIZER

SAID = torch.tensor([1, 2, 3, 1, 2, 3])


def looking(*positions):
    """A head whose row i looks at one place only."""
    return F.one_hot(torch.tensor(positions), len(positions)).float()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ((0, 0, 1, 2, 3, 4), {"previous": 1.0, "first": 0.2, "distance": 5 / 6}),
        ((0, 0, 0, 0, 0, 0), {"first": 1.0, "distance": 15 / 6}),
        ((0, 1, 2, 3, 4, 5), {"same": 1.0, "previous": 0.0, "distance": 0.0}),
        ((0, 1, 2, 0, 1, 2), {"duplicate": 1.0, "induction": 0.0}),
        ((0, 1, 2, 1, 2, 3), {"induction": 1.0, "duplicate": 0.0}),
    ],
)
def test_a_head_that_looks_at_one_place_is_known_by_it(positions, expected):
    found = attention_shares(looking(*positions), SAID)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_chance_is_said_twice():
    text = repeated(50, 100)
    assert torch.equal(text[:, :LENGTH], text[:, LENGTH:])


@pytest.mark.parametrize("name", ["gpt2", "translator", "bert", "classifier", "llama"])
def test_a_silent_head_is_one_whose_way_out_is_closed(name):
    case = CASES[name]
    inputs = {"ids": ids(1, 8)}
    if case.has(Trait.SEQ2SEQ):
        inputs["source"] = ids(1, 5)
    found = measure_heads(case.network, inputs)
    assert len({(role.name, role.head) for role in found}) == len(found)
    role = found[-1]
    network = copy.deepcopy(case.network)
    out = network.get_submodule(role.name).out
    width = out.in_features // (1 + max(r.head for r in found if r.name == role.name))
    with torch.no_grad():
        whole = network(**inputs)
        out.weight[:, role.head * width : (role.head + 1) * width] = 0
        without = network(**inputs)
    if case.has(Trait.CACHED):
        losses = [F.cross_entropy(o[0, :-1], inputs["ids"][0, 1:]) for o in (without, whole)]
        expected = float(losses[0] - losses[1])
    else:
        old, new = (o.softmax(-1).flatten(0, -2) for o in (whole, without))
        expected = float((old * (old.log() - new.log())).sum(-1).mean())
    assert role.cost == pytest.approx(expected, abs=1e-5)
    *_, far, costs = (a for a in draw.role_map(found).get_axes() if a.patches)
    assert [bar.get_width() for bar in costs.patches] == pytest.approx([r.cost for r in found])
    assert [bar.get_width() for bar in far.patches] == pytest.approx(
        [r.distance or 0 for r in found]
    )


def test_a_token_is_not_what_followed_itself():
    assert attention_shares(torch.eye(4), torch.ones(4))["induction"] == 0


def test_a_head_that_looks_at_all_alike_is_the_measure():
    causal = measure_heads(CASES["gpt2"].network, {"ids": ids(1, 6)}).even[""]
    assert causal["first"] == pytest.approx(sum(1 / n for n in range(2, 7)) / 5)
    both = measure_heads(CASES["translator"].network, {"ids": ids(1, 6), "source": ids(1, 6)}).even
    assert both["encoder"]["first"] == pytest.approx(1 / 6)
    assert both["decoder"]["first"] == causal["first"]


def test_a_layer_without_heads_of_its_own_is_silenced_whole():
    case = CASES["decoder: plain, learned"]
    with torch.no_grad():
        found = measure_heads(case.network, {"ids": ids(1, 8)})
    assert all(role.cost != 0 for role in found)


def test_one_token_has_a_cost_too():
    assert all(
        role.cost == role.cost for role in measure_heads(CASES["gpt2"].network, {"ids": ids(1, 1)})
    )


def test_a_model_without_attention_has_no_heads():
    with pytest.raises(GlassError, match="no attention"):
        measure_heads(CASES["convolutional"].network, {"ids": ids(1, 8)})


CLEAN, CORRUPT = "a cat sat", "a dog sat"


def sharp(name):
    """A model whose answers differ between texts."""
    network = copy.deepcopy(CASES[name].network)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network


@pytest.mark.parametrize("name", ["gpt2", "llama", "generator"])
def test_what_comes_before_carries_nothing_and_the_end_carries_all(name):
    found = patch(sharp(name), TOKENIZER, CLEAN, CORRUPT)
    previous_ids = next(i for i, (a, b) in enumerate(zip(CLEAN, CORRUPT, strict=True)) if a != b)
    for block, shares in found.positions.items():
        assert shares.shape == (len(CLEAN),)
        torch.testing.assert_close(
            shares[:previous_ids], torch.zeros(previous_ids), atol=1e-4, rtol=0
        )
        if block == "blocks.1":
            assert float(shares[-1]) == pytest.approx(1, abs=1e-4)
            assert shares[:-1].abs().max() < 1e-4  # no one reads them any more
    assert all(shares.shape == (4,) for shares in found.heads.values())
    assert list(found.positions) == [
        f"blocks.{i}{part}" for i in range(2) for part in ("", ".attention", ".feedforward")
    ]
    drawn = torch.from_numpy(draw.patch_map(found).get_axes()[0].images[0].get_array().data)
    torch.testing.assert_close(drawn.float(), torch.stack(list(found.positions.values())))


def test_one_place_after_the_other_is_one_run_each():
    """A batch in which each row has another place changed is as many runs."""
    network = sharp("gpt2")
    found = patch(network, TOKENIZER, CLEAN, CORRUPT)
    texts = [torch.tensor([TOKENIZER.encode(text)]) for text in (CLEAN, CORRUPT)]
    from glassformer import Trace

    with torch.inference_mode():
        with Trace(network, "blocks.0") as kept:
            right = network(texts[0])[0, -1].log_softmax(-1)
        wrong = network(texts[1])[0, -1].log_softmax(-1)
        change = right.exp() - wrong.exp()
        first, second = change.argmax(), change.argmin()

        def swap(value):
            value = value.clone()
            value[:, 3] = kept["blocks.0"][:, 3]
            return value

        with Trace(network, edit={"blocks.0": swap}):
            mixed = network(texts[1])[0, -1].log_softmax(-1)
    lead = lambda scores: float(scores[first] - scores[second])
    share = (lead(mixed) - lead(wrong)) / (lead(right) - lead(wrong))
    assert float(found.positions["blocks.0"][3]) == pytest.approx(share, abs=1e-4)


def test_texts_that_cannot_be_compared_are_refused():
    network = sharp("gpt2")
    with pytest.raises(GlassError, match="as many tokens; they have 9 and 4"):
        patch(network, TOKENIZER, CLEAN, "a do")
    with pytest.raises(GlassError, match="nothing to explain"):
        patch(network, TOKENIZER, CLEAN, CLEAN)
    with pytest.raises(GlassError, match="no blocks whose values"):
        patch(CASES["markov"].network, TOKENIZER, "a cat", "a cab")


def test_a_picture_has_a_kind_that_is_known(tmp_path):
    found = patch(sharp("gpt2"), TOKENIZER, CLEAN, CORRUPT)
    with pytest.raises(GlassError, match="is written as"):
        draw.save(draw.patch_map(found), tmp_path / "a.txt")
    draw.save(draw.patch_map(found), tmp_path / "a.svg")
    assert ">blocks.0.attention<" in (tmp_path / "a.svg").read_text()  # a text stays a text
