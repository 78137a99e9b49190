"""How a number was made: what is said to have made it, computed again, is that number."""

import copy
import random
import re

import pytest
import torch
from torch import nn

from cases import CASES, ids, source
from glassformer import GlassError
from glassformer.inspection.why import FEW, RecordedPass, number_at
from glassformer.models.network import Trait
from glassformer.predict import inputs_for
from inspection.test_worksheet import TOKENIZER


def recorded(case):
    inputs = {"ids": ids(2, 6)} | ({"source": source(2)} if case.has(Trait.SEQ2SEQ) else {})
    return RecordedPass(copy.deepcopy(case.network).double(), inputs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number_is_what_its_terms_make(case):
    """Random names and places, and from there on down: to 1e-9 in double precision."""
    run, chance = recorded(case), random.Random(3)
    names = [name for name in run.trace if run.trace[name].is_floating_point()]
    explained = unknown = 0
    for name in chance.sample(names, min(12, len(names))):
        at = [chance.randrange(n) for n in run.trace[name].shape]
        why = run.at(f"{name}[{','.join(map(str, at))}]")
        assert why.value == float(run.trace[name][tuple(at)])
        for _ in range(8):
            if why.again is not None:
                explained += 1
                assert why.again == pytest.approx(why.value, abs=1e-9, rel=1e-9, nan_ok=True)
            unknown += why.how.startswith("made by")
            if (why := why.next()) is None:
                break
    assert explained + unknown > 0
    if case.has(Trait.ATTENTION):
        assert explained > 5 * unknown


@pytest.mark.parametrize("asked", ["blocks.0.attention.q[0,1,2,3]", "output[0,-1,5]"])
def test_a_chain_ends_in_a_table(asked):
    steps = recorded(CASES["gpt2"]).at(asked).steps()
    assert "row × column" in steps[0].formula
    assert re.match(r"kept as (token|position|.*(weight|bias))", steps[-1].says)


def test_the_terms_of_a_number_are_told():
    """All of the number that was asked for, factor by factor; of those below it the heaviest."""
    why = recorded(CASES["gpt2"]).at("output[0,-1,5]")
    first, *below = why.steps()
    table = first.tables[0]
    assert first.title == f"output[0,5,5] = {why.value:.6g}"
    assert table.columns == ["factor 1", "factor 2", "product"]
    torch.testing.assert_close(table.values[:, 0] * table.values[:, 1], table.values[:, 2])
    assert float(table.values[:, 2].sum()) == pytest.approx(why.value, abs=1e-5)
    assert list(table.values[:, 2].abs()) == sorted(table.values[:, 2].abs(), reverse=True)
    assert all(len(t.values) <= FEW for step in below for t in step.tables)
    cut = next(step for step in below if "more terms come to" in step.says)
    assert len(cut.tables[0].values) == FEW
    value, rest = (float(text.split(" = ")[-1].split(" together")[0].split(" to ")[-1])
                   for text in (cut.title, cut.says))  # fmt: skip
    assert float(cut.tables[0].values[:, -1].nan_to_num().sum()) + rest == pytest.approx(
        value, abs=1e-3
    )
    assert repr(why).startswith(first.title)


def test_a_share_comes_from_its_own_score():
    run = recorded(CASES["gpt2"])
    why = run.at("blocks.0.attention.pattern[0,0,4,1]")
    while why.how != "softmax":
        why = why.next()
    shares = why.step(None).tables[0]
    assert shares.columns == ["value", "share"]
    assert float(shares.values[:, 1].sum()) == pytest.approx(1)
    assert why.next().value == float(run.trace["blocks.0.attention.scores"][0, 0, 4, 1])


@pytest.mark.parametrize("name", ["llama", "decoder: additive, rotary", "bert", "translator"])
def test_a_chain_leads_to_what_was_learnt(name):
    """Not into the angles of a rotation, which come from nothing."""
    run = recorded(CASES[name])
    for asked in (
        "output[0,-1,5]",
        *(f"{n}[0,1,4,2]" for n in run.trace if n.endswith("scores")),
    ):
        last = run.at(asked).steps()[-1]
        assert re.match(r"kept as (source_)?(token|position|segment|.*(weight|bias))", last.says)


@pytest.mark.parametrize("name", ["gpt2", "llama", "generator"])
def test_a_mixture_comes_from_a_value_and_a_quotient_from_what_is_divided(name):
    run, mixed, divided = recorded(CASES[name]), 0, 0
    for column in range(20):
        why = run.at(f"output[0,-1,{column}]")
        while why is not None and why.how:
            below = why.next()
            if below is None:
                break
            if ".heads[" in why.name:
                mixed += 1
                assert ".v[" in below.name
            if why.how == "÷":
                divided += 1
                assert below.value == why.terms[0].values[0]
            why = below
    assert mixed or divided


def test_tokens_of_a_translator_are_named_on_the_right_side():
    network = CASES["translator"].network
    run = RecordedPass(network, inputs_for(network, TOKENIZER, "catsx", "bad "), TOKENIZER)
    says = lambda name: run.at(name).steps()[0].says.split(". ")[0]
    assert says("decoder.0.cross.k[0,0,2,1]") == "At 't'"
    assert says("embedded#1[0,2,1]") == "At 't'"
    assert says("embedded[0,2,1]") == "At 'a'"
    assert says("encoder.0[0,2,1]") == "At 't'"
    assert says("decoder.0.cross.scores[0,0,2,1]") == "What 'a' reads of 'a'"


def test_arithmetic_is_told_as_it_was_done():
    class Network(nn.Module):
        def forward(self, x):
            mean = x.mean(dim=1, keepdim=True)
            return torch.add(mean, torch.pow(2.0, x), alpha=3)

    run = RecordedPass(Network(), {"x": torch.tensor([[1.0, 2, 3, 4, 6]])})
    why = run.at("output[0,2]")
    assert (why.how, why.value) == ("+ 3 ×", pytest.approx(3.2 + 3 * 8))
    assert run.why(why.terms[1].entries[0]).how == "2 ^"
    mean = run.why(why.terms[0].entries[0])
    assert mean.step(2).says == "3 more terms come to 1.2 together."


def test_a_number_that_was_only_looked_up_says_where():
    (step,) = recorded(CASES["gpt2"]).at("token[0,1,2]").steps()
    assert step.says.startswith("kept as token.weight[")


def test_tokens_are_named():
    inputs = inputs_for(CASES["gpt2"].network, TOKENIZER, "a cat")
    run = RecordedPass(CASES["gpt2"].network, inputs, TOKENIZER)
    says = lambda name: run.at(name).steps()[0].says.split(". ")[0]
    assert says("output[0,-1,5]") == f"The score of {TOKENIZER.token(5)!r} at 't'"
    assert says("blocks.0.attention.scores[0,0,4,2]") == "What 't' reads of 'c'"
    assert says("blocks.0[0,2,3]") == "At 'c'"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_name_is_that_of_the_number(case):
    """Whoever asks for the name that is shown gets the number beside it."""
    run, chance, seen = recorded(case), random.Random(1), 0
    for name in chance.sample(list(run.trace), min(8, len(run.trace))):
        if not run.trace[name].is_floating_point():
            continue
        why = run.at(f"{name}[{','.join(str(chance.randrange(n)) for n in run.trace[name].shape)}]")
        for term in why.terms[:40]:
            for place in term.entries:
                called = run.name_entry(place)
                if called.split("[")[0].split("#")[0] in run.trace:
                    seen += 1
                    assert run.at(called).value == pytest.approx(number_at(place), nan_ok=True)
    assert seen or not case.has(Trait.ATTENTION)


def test_what_is_hidden_weighs_nothing():
    run = recorded(CASES["gpt2"])
    why = run.at("blocks.0.attention.pattern[0,0,2,1]")
    while why.how != "softmax":
        why = why.next()
    assert len(why.terms) == 6
    weights = [term.weight for term in why.terms]
    assert weights[3:] == [0, 0, 0]
    assert sum(weights) == pytest.approx(1)
    assert all(term.values[0] > -1e9 for term in why.heaviest()[:3])


def test_operands_keep_their_order():
    why = recorded(CASES["gpt2"]).at("blocks.0.attention_norm.normalized[0,2,1]")
    above, below = (term.values[0] for term in why.terms)
    assert (why.how, above / below) == ("÷", pytest.approx(why.value))
    assert why.step(None).tables[0].values[:, 0].tolist() == pytest.approx([above, below])


def test_each_kind_of_operation_is_explained():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.window = nn.Conv1d(4, 6, 2, dilation=2)
            self.bilinear = nn.Parameter(torch.randn(4, 4))

        def forward(self, ids):
            x = self.table(ids)  # b t d
            y = torch.cat((x, torch.tanh(x) * 2), dim=1)[:, 1:-1]
            y = y + (x @ self.bilinear).mean(dim=1, keepdim=True)
            y = nn.functional.glu(self.window(y.mT), dim=1)  # b 3 t
            y = y.masked_fill(y > 0.5, 0.25).log_softmax(dim=-1)
            y.mul_(3.0)
            return (y - y.sum(dim=(1, 2), keepdim=True)).flatten(1)

    torch.manual_seed(0)
    run, seen = RecordedPass(Network().double(), {"ids": torch.tensor([[1, 2, 3, 4]])}), set()
    stack = [run.at("output[0,3]")]
    for _ in range(400):
        if not stack:
            break
        why = stack.pop()
        seen.add(why.how.split(" ")[0])
        assert not why.how.startswith("made by"), why.how
        if why.again is not None:
            assert why.again == pytest.approx(why.value, abs=1e-9)
        stack += [run.why(place) for term in why.terms for place in term.entries]
    assert seen >= {"−", "×", "log", "a", "window", "+", "row", "", "sum"}


def test_what_is_not_known_is_named():
    class Network(nn.Module):
        def forward(self, x):
            return x.cumsum(dim=1)

    why = RecordedPass(Network(), {"x": torch.ones(1, 3)}).at("output[0,2]")
    assert why.how == "made by cumsum from x"
    assert why.again is None
    (step,) = why.steps()
    assert (step.title, step.formula) == ("output[0,2] = 3", "made by cumsum from x")


def test_padding_is_no_number_of_the_text():
    run = recorded(CASES["convolutional"])
    why = run.at("layers.0.window[0,3,0]")
    called = [run.name_entry(place) for term in why.terms for place in term.entries[:1]]
    assert called.count("layers.0.norm[0,0,0]") <= 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("blocks.0.attention.score[0,0,0,0]", "no value is named .* did you mean 'blocks.0.attent"),
        ("output[0,9,0]", r"has the shape \[2, 6, 50\]: there is no \[0, 9, 0\]"),
        ("output[0,1]", "there is no"),
        ("output", "name a value and a place in it"),
        ("output[0,,1]", "name a value and a place in it"),
        ("output[-]", "name a value and a place in it"),
        ("blocks.0#3[0,0,0]", "comes by 1 times: there is no #3"),
    ],
)
def test_what_is_not_there_is_said(asked, message):
    with pytest.raises(GlassError, match=message):
        recorded(CASES["gpt2"]).at(asked)
