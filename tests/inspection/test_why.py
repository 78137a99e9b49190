"""Explanations of numbers: recomputing a number from its terms gives the same number."""

import copy
import random
import re

import pytest
import torch
from torch import nn

from cases import CASES
from glassformer import GlassError
from glassformer.inspection.why import MAX_TERMS, RecordedPass, entry_value
from glassformer.models.network import Trait
from glassformer.predict import inputs_for
from inspection.test_worksheet import TOKENIZER


def record_pass(case):
    inputs = {n: x.double() if x.is_floating_point() else x for n, x in case.inputs(2, 6).items()}
    return RecordedPass(copy.deepcopy(case.network).double(), inputs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number_equals_the_result_of_its_terms(case):
    """Random entries and the chains below them, to 1e-9 in double precision."""
    recorded, rng = record_pass(case), random.Random(3)
    names = [n for n, v in recorded.trace.items() if v.is_floating_point() and v.numel()]
    explained = unexplained = 0
    for name in rng.sample(names, min(12, len(names))):
        at = [rng.randrange(n) for n in recorded.trace[name].shape]
        why = recorded.explain_named(f"{name}[{','.join(map(str, at))}]")
        assert why.value == float(recorded.trace[name][tuple(at)])
        for _ in range(8):
            if why.recomputed is not None:
                explained += 1
                assert why.recomputed == pytest.approx(why.value, abs=1e-9, rel=1e-9, nan_ok=True)
            unexplained += why.operation.startswith("computed by")
            if (why := why.explain_next()) is None:
                break
    assert explained + unexplained > 0
    if case.has(Trait.ATTENTION):
        assert explained > 5 * unexplained


@pytest.mark.parametrize("name", ["blocks.0.attention.q[0,1,2,3]", "output[0,-1,5]"])
def test_a_chain_ends_at_a_weight(name):
    steps = record_pass(CASES["gpt2"]).explain_named(name).steps()
    assert "row × column" in steps[0].formula
    assert re.match(r"read from (token|position|.*(weight|bias))", steps[-1].text)


def test_the_first_number_has_all_its_terms_and_the_others_the_largest():
    why = record_pass(CASES["gpt2"]).explain_named("output[0,-1,5]")
    first, *below = why.steps()
    table = first.tables[0]
    assert first.title == f"output[0,5,5] = {why.value:.6g}"
    assert table.columns == ["factor 1", "factor 2", "product"]
    torch.testing.assert_close(table.values[:, 0] * table.values[:, 1], table.values[:, 2])
    assert float(table.values[:, 2].sum()) == pytest.approx(why.value, abs=1e-5)
    assert list(table.values[:, 2].abs()) == sorted(table.values[:, 2].abs(), reverse=True)
    assert all(len(t.values) <= MAX_TERMS for step in below for t in step.tables)
    cut = next(step for step in below if "terms add up to" in step.text)
    assert len(cut.tables[0].values) == MAX_TERMS
    value = float(cut.title.split(" = ")[-1])
    rest = float(cut.text.split(" add up to ")[-1].removesuffix("."))
    assert float(cut.tables[0].values[:, -1].nan_to_num().sum()) + rest == pytest.approx(
        value, abs=1e-3
    )
    assert repr(why).startswith(first.title)


def test_a_softmax_probability_is_explained_by_its_own_logit():
    recorded = record_pass(CASES["gpt2"])
    why = recorded.explain_named("blocks.0.attention.pattern[0,0,4,1]")
    while why.operation != "softmax":
        why = why.explain_next()
    table = why.step(None).tables[0]
    assert table.columns == ["value", "probability"]
    assert float(table.values[:, 1].sum()) == pytest.approx(1)
    assert why.explain_next().value == float(
        recorded.trace["blocks.0.attention.scores"][0, 0, 4, 1]
    )


@pytest.mark.parametrize("name", ["llama", "decoder: additive, rotary", "bert", "translator"])
def test_a_chain_ends_at_a_weight_and_not_at_the_angles_of_a_rotation(name):
    recorded = record_pass(CASES[name])
    for entry_name in (
        "output[0,-1,5]",
        *(f"{n}[0,1,4,2]" for n in recorded.trace if n.endswith("scores")),
    ):
        last = recorded.explain_named(entry_name).steps()[-1]
        assert re.match(r"read from (source_)?(token|position|segment|.*(weight|bias))", last.text)


@pytest.mark.parametrize("name", ["gpt2", "llama", "generator"])
def test_attention_output_is_explained_by_a_value_and_a_quotient_by_the_dividend(name):
    recorded, mixed, divided = record_pass(CASES[name]), 0, 0
    for column in range(20):
        why = recorded.explain_named(f"output[0,-1,{column}]")
        while why is not None and why.operation:
            following = why.explain_next()
            if following is None:
                break
            if ".head_outputs[" in why.name:
                mixed += 1
                assert ".v[" in following.name
            if why.operation == "÷":
                divided += 1
                assert following.value == why.terms[0].values[0]
            why = following
    assert mixed or divided


def test_source_and_target_tokens_of_a_translator_are_not_mixed_up():
    network = CASES["translator"].network
    recorded = RecordedPass(network, inputs_for(network, TOKENIZER, "catsx", "bad "), TOKENIZER)
    text = lambda name: recorded.explain_named(name).steps()[0].text.split(". ")[0]
    assert text("decoder.0.cross.k[0,0,2,1]") == "Token 't'"
    assert text("embedded#1[0,2,1]") == "Token 't'"
    assert text("embedded[0,2,1]") == "Token 'a'"
    assert text("encoder.0[0,2,1]") == "Token 't'"
    assert text("decoder.0.cross.scores[0,0,2,1]") == "Query 'a', key 'a'"


def test_arithmetic_is_described_in_the_order_of_its_operands():
    class Network(nn.Module):
        def forward(self, x):
            mean = x.mean(dim=1, keepdim=True)
            return torch.add(mean, torch.pow(2.0, x), alpha=3)

    recorded = RecordedPass(Network(), {"x": torch.tensor([[1.0, 2, 3, 4, 6]])})
    why = recorded.explain_named("output[0,2]")
    assert (why.operation, why.value) == ("+ 3 ×", pytest.approx(3.2 + 3 * 8))
    assert recorded.explain(why.terms[1].entries[0]).operation == "2 ^"
    mean = recorded.explain(why.terms[0].entries[0])
    assert mean.step(2).text == "The other 3 terms add up to 1.2."


def test_a_number_that_was_looked_up_names_its_table():
    (step,) = record_pass(CASES["gpt2"]).explain_named("token[0,1,2]").steps()
    assert step.text.startswith("read from token.weight[")


def test_the_first_step_names_the_tokens():
    inputs = inputs_for(CASES["gpt2"].network, TOKENIZER, "a cat")
    recorded = RecordedPass(CASES["gpt2"].network, inputs, TOKENIZER)
    text = lambda name: recorded.explain_named(name).steps()[0].text.split(". ")[0]
    assert text("output[0,-1,5]") == f"The logit of {TOKENIZER.token(5)!r} at token 't'"
    assert text("blocks.0.attention.scores[0,0,4,2]") == "Query 't', key 'c'"
    assert text("blocks.0[0,2,3]") == "Token 'c'"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_name_of_a_term_refers_to_its_value(case):
    recorded, rng, seen = record_pass(case), random.Random(1), 0
    for name in rng.sample(list(recorded.trace), min(8, len(recorded.trace))):
        if not recorded.trace[name].is_floating_point():
            continue
        why = recorded.explain_named(
            f"{name}[{','.join(str(rng.randrange(n)) for n in recorded.trace[name].shape)}]"
        )
        for term in why.terms[:40]:
            for entry in term.entries:
                entry_name = recorded.name_entry(entry)
                if entry_name.split("[")[0].split("#")[0] in recorded.trace:
                    seen += 1
                    assert recorded.explain_named(entry_name).value == pytest.approx(
                        entry_value(entry), nan_ok=True
                    )
    assert seen or not case.has(Trait.ATTENTION)


def test_masked_scores_have_magnitude_0():
    recorded = record_pass(CASES["gpt2"])
    why = recorded.explain_named("blocks.0.attention.pattern[0,0,2,1]")
    while why.operation != "softmax":
        why = why.explain_next()
    assert len(why.terms) == 6
    weights = [term.magnitude for term in why.terms]
    assert weights[3:] == [0, 0, 0]
    assert sum(weights) == pytest.approx(1)
    assert all(term.values[0] > -1e9 for term in why.sorted_terms()[:3])


def test_operands_of_a_division_keep_their_order():
    why = record_pass(CASES["gpt2"]).explain_named("blocks.0.attention_norm.normalized[0,2,1]")
    dividend, divisor = (term.values[0] for term in why.terms)
    assert (why.operation, dividend / divisor) == ("÷", pytest.approx(why.value))
    assert why.step(None).tables[0].values[:, 0].tolist() == pytest.approx([dividend, divisor])


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
    recorded, seen = RecordedPass(Network().double(), {"ids": torch.tensor([[1, 2, 3, 4]])}), set()
    stack = [recorded.explain_named("output[0,3]")]
    for _ in range(400):
        if not stack:
            break
        why = stack.pop()
        seen.add(why.operation.split(" ")[0])
        assert not why.operation.startswith("computed by"), why.operation
        if why.recomputed is not None:
            assert why.recomputed == pytest.approx(why.value, abs=1e-9)
        stack += [recorded.explain(entry) for term in why.terms for entry in term.entries]
    assert seen >= {"−", "×", "log", "a", "window", "+", "row", "", "sum"}


def test_an_operation_without_an_explainer_is_reported_by_name():
    class Network(nn.Module):
        def forward(self, x):
            return x.cumsum(dim=1)

    why = RecordedPass(Network(), {"x": torch.ones(1, 3)}).explain_named("output[0,2]")
    assert why.operation == "computed by cumsum from x"
    assert why.recomputed is None
    (step,) = why.steps()
    assert (step.title, step.formula) == ("output[0,2] = 3", "computed by cumsum from x")


def test_padding_is_not_mistaken_for_an_input():
    recorded = record_pass(CASES["convolutional"])
    why = recorded.explain_named("layers.0.window[0,3,0]")
    entry_name = [recorded.name_entry(entry) for term in why.terms for entry in term.entries[:1]]
    assert entry_name.count("layers.0.norm[0,0,0]") <= 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blocks.0.attention.score[0,0,0,0]", "no value is named .* did you mean 'blocks.0.attent"),
        ("output[0,9,0]", r"has the shape \[2, 6, 50\]; \[0, 9, 0\] is not an index into it"),
        ("output[0,1]", "is not an index"),
        ("output", "expected a value and an index into it"),
        ("output[0,,1]", "expected a value and an index into it"),
        ("output[-]", "expected a value and an index into it"),
        ("blocks.0#3[0,0,0]", "is computed 1 times; there is no #3"),
    ],
)
def test_an_invalid_name_or_index_is_rejected(name, message):
    with pytest.raises(GlassError, match=message):
        record_pass(CASES["gpt2"]).explain_named(name)


def test_logits_of_counts_are_explained_by_their_evidence():
    network = CASES["speedrun with a prior"].network
    ids = torch.tensor([[0, 10, 20, 10, 0, 30]])  # the prior of this case has counted these ids
    recorded = RecordedPass(network, {"ids": ids})
    why = recorded.explain_named("prior.count_logits[0,5,20]")
    assert why.operation == "sum"
    assert len(why.terms) > 1  # the unigram term, and one for each context that was followed by 20
    assert why.recomputed == pytest.approx(why.value, abs=1e-5)
    names = " ".join(step.title for step in why.steps())
    assert "prior.count_logits" in names
