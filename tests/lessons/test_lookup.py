"""Lookup, heads as products of other sizes, and attention on a user's own sentence."""

import math

import pytest
import torch

from glassformer.lessons import attention_speed, attention_text, load_lesson, position_text

STEPS = {step.title: step for step in load_lesson("attention")}


def tables(title):
    return {table.name: table.values.double() for table in STEPS[title].tables}


def assert_close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def test_weights_select_the_inputs_that_matter():
    assert tables("Attention: weights on an input")["y"].tolist() == [[4.5], [4.5]]


def test_soft_lookup_approaches_exact_lookup():
    exact = tables("Exact lookup")
    assert exact["value found"][0].item() == 2
    assert exact["value found"][1].isnan().all()
    keys, legs, queries = (exact[name] for name in ("keys", "values: legs", "queries"))
    soft = tables("Soft lookup")
    weights = (queries @ keys.T).softmax(-1)
    assert_close(soft["weights"], weights)
    assert_close(soft["mixed value"], weights @ legs)
    scaled = tables("From soft to exact")
    best = int((queries[1] @ keys.T).argmax())
    own_weights = scaled["weights for the unknown query"][:, best]
    assert (own_weights.diff() > 0).all()
    assert own_weights[-1] > 0.999
    assert scaled["mixed value"][-1].item() == pytest.approx(legs[best].item(), abs=1e-3)


def test_the_same_word_has_the_same_output_without_positions():
    step = STEPS["A sentence: the cat walks on the street"]
    x, scores, pattern, output = (table.values for table in step.tables)
    assert_close(scores, x @ x.T)
    assert_close(pattern, scores.softmax(-1))
    assert_close(output, pattern @ x)
    assert torch.equal(output[0], output[4])
    others = scores[0, [1, 2, 3, 5]]
    assert (others <= 0).all()  # “the” and other words, as the text says
    assert scores[1, 2] > scores.fill_diagonal_(0)[1:4, [0, 3, 4, 5]].max()  # cat and walks


def test_small_products_folded_heads_and_absorbed_outputs_equal_the_layer():
    values = attention_speed.compute_values()
    assert values["product_differences"].max() <= 1e-5
    assert values["folded_difference"].item() <= 1e-5
    assert values["absorbed_difference"].item() <= 1e-4
    b, t, k, h, e = 2, 64, 256, 4, 64
    rows = [[n for n in row if not math.isnan(n)] for row in values["shapes"].tolist()]
    assert rows == [[b, t, k], [b, t, h, e], [b, h, t, e], [b * h, t, e], [b * h, t, t]]
    assert values["value_parameters"].tolist() == [[2 * k * k, h * k * k, k * k]]
    assert values["times"].shape == (4, 1)
    assert values["times"] is attention_speed.compute_values()["times"]  # measured once


def test_attention_on_an_own_sentence_follows_the_formulas():
    values = attention_text.compute_values("The cat sat on the mat")
    assert values["words"] == ["the", "cat", "sat", "on", "the", "mat"]
    x = values["x"]
    assert torch.equal(x[0], x[4])
    assert len({tuple(row) for row in x.tolist()}) == 5
    assert_close(values["plain_output"], (x @ x.T).softmax(-1) @ x)
    q, k, v = (x @ values[f"w_{name}"] for name in "qkv")
    assert_close(values["scores"], q @ k.T / 2)
    assert_close(values["pattern"], (q @ k.T / 2).softmax(-1))
    assert_close(values["output"], values["pattern"] @ v)
    masked = (q @ k.T / 2 + torch.full((6, 6), -torch.inf).triu(1)).softmax(-1)
    assert_close(values["masked_pattern"], masked)
    assert not torch.allclose(values["pattern_1"], values["pattern_2"])


def test_an_own_sentence_in_reverse_differs_only_with_positions():
    values = position_text.compute_values("dog bites man")
    assert values["reversed_text"] == "man bites dog"
    assert values["difference"].item() < 1e-12 < 0.1 < values["difference_with_positions"].item()
    assert_close(values["output"], values["reversed_output"].flip(0), 1e-12)
