"""The lesson machines: its tables against plain formulas and against what its texts say."""

import math

import pytest
import torch

from glassformer.lessons import LESSONS, machines_depth, machines_heads
from glassformer.lessons.lesson import load_steps
from glassformer.nn.attention import attend, dot

PATTERN = "Attention weights: 0.88 and 0.12, and why scores are scaled"
STEPS = {step.title: step for chapter in LESSONS["machines"] for step in load_steps(chapter)}


def tables(title):
    return {table.name: table.values.double() for table in STEPS[title].tables}


def matrix(rows):
    return torch.tensor(rows, dtype=torch.float64)


def assert_close(actual, expected, decimals=9):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.5001 * 10.0**-decimals)


def test_a_one_hot_vector_times_the_matrix_is_a_row_of_it():
    embedding, one_hot, e, product, rows = STEPS["One-hot vector times matrix = embedding"].tables
    ids = embedding.values[0].long()
    assert torch.equal(one_hot.values.argmax(1), ids)
    assert torch.equal(product.values, e.values[ids])
    assert torch.equal(product.values, rows.values)


def test_positions_are_distinct_and_closest_with_a_single_wave():
    values = tables("Every position is unique")
    position = torch.arange(6.0).double()
    waves = [
        f(position / 10_000**exponent) for exponent in (0, 0.5) for f in (torch.sin, torch.cos)
    ]
    encoding = torch.stack(waves, dim=1)
    assert_close(values["PE, d=4"], encoding, 6)
    distances = (encoding[:, None] - encoding).square().sum(2).sqrt()
    assert_close(values["distances between positions, d=4"], distances, 6)
    assert (distances + torch.eye(6) > 0.5).all()
    # with one wave: 333 positions are almost 53 turns
    one_wave = 2 * math.sin(abs(333 - 53 * 2 * math.pi) / 2)
    smallest = values["smallest distance between any two positions"][0]
    assert float(smallest[0]) == pytest.approx(one_wave, abs=1e-4)
    assert smallest.diff().min() > 0
    assert values["parameters, d=512"].flatten().tolist() == [0, 512 * 512]


def test_the_scores_of_the_tutorial_follow_from_vectors_of_its_sizes():
    w = tables("Queries, keys and values: from 4 to 3 features")
    assert w["W_q"].shape == (4, 3)
    for name in "qkv":
        assert torch.equal(w[name.upper()], w["X"] @ w[f"W_{name}"])
    products = w["Q"] @ w["K"].T
    assert products[0].tolist() == [112, 96]
    assert torch.equal(tables("Dot products: 112 and 96")["for both words"], products)
    assert products[1].argmax() == 0  # a query that matches another key better than its own
    assert tables("Scores: 14 and 12")["correct"].tolist() == [[14, 12]]
    for title in ("Dot products: 112 and 96", "Scores: 14 and 12", PATTERN):
        printed = STEPS[title].tables[0]
        assert printed.kind == "printed"
        assert not STEPS[title].wrong_cells(printed).any(), title
    weights = tables(PATTERN)
    share = 1 / (1 + math.exp(-2))
    assert_close(weights["correct"], matrix([[share, 1 - share]]))
    assert "1.1254e-07" in STEPS[PATTERN].text
    leak = 1 / (1 + math.exp(16))
    slopes = matrix([[leak * (1 - leak), share * (1 - share)]])
    assert_close(weights["slope p (1 − p)"], slopes)
    z = tables("Output of the head")
    assert_close(z["Z for “thinking”, scores divided by √64"], weights["correct"] @ w["V"])
    by_root_3 = (products / math.sqrt(3)).softmax(-1)
    assert_close(z["attention weights, divided by √3"], by_root_3)
    assert_close(z["Z, divided by √3"], by_root_3 @ w["V"])


def test_additive_scores_follow_the_formula():
    w = tables("Additive scores: queries and keys of unequal length")
    q, k = w["query"] @ w["W_q"], w["keys"] @ w["W_k"]
    expected = [
        [
            sum(v * math.tanh(a + b) for v, a, b in zip(w["v"][:, 0], q[0], row, strict=True))
            for row in k
        ]
    ]
    assert_close(w["additive scores"], matrix(expected))
    assert_close(w["dot products after the same maps"], q @ k.T)


def test_heads_are_concatenated_and_projected():
    heads, projection = tables("Two heads"), tables("Concatenation and output projection")
    side_by_side = torch.cat((heads["Z, head 1"], heads["Z, head 2"]), dim=1)
    assert_close(projection["concatenated"], side_by_side)
    assert_close(projection["output"], side_by_side @ projection["W_o"])
    x = tables("Queries, keys and values: from 4 to 3 features")["X"]
    q, k = x @ heads["W_q, head 2"], x @ heads["W_k, head 2"]
    pattern = (q @ k.T / math.sqrt(3)).softmax(-1)
    assert_close(heads["attention weights of head 2"], pattern)
    assert_close(heads["Z, head 2"], pattern @ x @ heads["W_v, head 2"])
    average = tables("Not an average")
    assert_close(average["average"], (heads["Z, head 1"] + heads["Z, head 2"]) / 2)
    assert_close(average["concatenated, times this projection"], average["average"])
    assert average["average"].shape != projection["output"].shape


def test_24_small_maps_equal_three_large_ones():
    values = machines_heads.compute_values()
    assert values["n_maps"] == 24
    assert values["map_parameters"].flatten().tolist() == [24 * 512 * 64, 3 * 512 * 512]
    assert values["map_differences"].max() <= 1e-5
    assert values["channel_difference"].item() <= 1e-4


def test_products_of_slopes_with_and_without_residual():
    chain = tables("Residual connection: the chain rule with +1")
    assert_close(chain["f g k"], matrix([[0.5 * 0.1 * 0.2]]))
    assert_close(chain["(1 + f) (1 + g) (1 + k)"], matrix([[1.5 * 1.1 * 1.2]]))
    layers = tables("Over 24 layers")
    for added, name in ((0, "without"), (1, "with")):
        expected = [
            [math.prod(added + s for s in slopes[:n]) for n in machines_depth.DEPTHS]
            for slopes in machines_depth.CHAINS
        ]
        table = layers[f"{name} residual connections, after n layers"]
        torch.testing.assert_close(table, matrix(expected))
    alone, after_norm, before_norm = machines_depth.compute_values()["gradients"]
    assert alone[-1] < 1e-3 * alone[0]  # as the text says: it vanishes without the residual
    assert min(after_norm[-1] / after_norm[0], before_norm[-1] / before_norm[0]) > 0.1


def test_a_normalized_row_still_has_three_equal_numbers():
    values = tables("Normalized is not normally distributed")
    row = values["row"]
    expected = (row - row.mean()) / (row.var(correction=0) + 1e-5).sqrt()
    assert_close(values["normalized"], expected)
    assert len(set(values["normalized"][0].tolist())) == 2
    assert_close(values["mean and standard deviation"], matrix([[0.0, 1]]), 4)


def test_the_tutorials_roles_do_not_fit_together_and_the_right_ones_do():
    title = "Cross-attention: who gives queries, keys and values"
    printed, correct = (table.values[0].int().tolist() for table in STEPS[title].tables)
    assert STEPS[title].wrong_cells(STEPS[title].tables[0]).tolist() == [[True, True, False]]
    q, k, v = (torch.zeros(1, 1, n, 3) for n in correct)
    assert attend(q, k, v, score=dot).shape[2] == correct[0]
    q, k, v = (torch.zeros(1, 1, n, 3) for n in printed)
    with pytest.raises(RuntimeError):
        attend(q, k, v, score=dot)


def test_cross_attention_follows_from_its_weights():
    w = tables("Cross-attention, computed")
    q, k, v = w["decoder"] @ w["W_q"], w["encoder"] @ w["W_k"], w["encoder"] @ w["W_v"]
    pattern = (q @ k.T / math.sqrt(3)).softmax(-1)
    assert_close(w["attention weights"], pattern)
    assert_close(w["output"], pattern @ v @ w["W_o"])
    mask = tables("Decoder: the causal mask")["mask"]
    assert torch.equal(mask, torch.ones(3, 3).double().tril())


def test_a_second_softmax_makes_a_certain_prediction_uncertain():
    values = tables("Do not apply the softmax twice")
    again = values["after a second softmax"]
    assert_close(again, matrix([[0.175, 0.175, 0.175, 0.475]]), 3)
    once, twice, certain = values["loss"][0].tolist()
    assert once == pytest.approx(math.log(1 + 3 * math.exp(-10)))
    assert once < 0.001 < 0.7 < certain < twice
    assert certain == pytest.approx(math.log(1 + 3 * math.exp(-1)))
    gradient = values["gradient after a second softmax"]
    assert gradient.abs().min() > 0.1
    assert_close(gradient, again - torch.eye(4).double()[3:])


def test_the_softmax_has_a_slope_where_the_tutorial_says_it_has_none():
    values = tables("The slope of the softmax at [0, 0, 0, 1]")
    p = values["softmax"]
    assert_close(p[:1], matrix([[0.175, 0.175, 0.175, 0.475]]), 3)
    jacobian = torch.diag(p[0]) - p[0][:, None] * p[0]
    assert_close(values["derivatives at [0, 0, 0, 1]"], jacobian)
    slopes = values["slope of the last output in the last input"][0]
    assert_close(slopes, p[:, 3] * (1 - p[:, 3]))
    assert slopes[0] > 0.24
    assert slopes[2] < 1e-20
