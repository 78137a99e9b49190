"""The tutorials' worked examples against what was worked out apart from this code."""

import math
from dataclasses import replace

import pytest
import torch

from glassformer.core.i18n import language
from glassformer.inspection import export
from glassformer.inspection.sheet import equal_when_rounded
from glassformer.lessons import (
    LESSONS,
    load_lesson,
    thrones,
    thrones_decoder,
    thrones_network,
    thrones_remarks,
)
from glassformer.lessons.lesson import load_steps
from glassformer.lessons.printed import read_matrices

PRINTED = read_matrices("thrones") | read_matrices("thrones_decoder")
THRONES = {step.title: step for step in load_steps(thrones)}
DECODER = {step.title: step for step in load_steps(thrones_decoder)}


def rows(text):
    return torch.tensor([[float(c) for c in row.split()] for row in text.split("/")]).double()


def of(step, kind="right"):
    return next(table for table in step.tables if table.kind == kind)


def close(mine, right, decimals=4):
    torch.testing.assert_close(mine.double(), right, rtol=0, atol=0.5001 * 10.0**-decimals)


# --- by hand: each matrix, in both columns --------------------------------------------------------


def test_positions_are_the_papers():
    by_feature = rows(
        "0 .8415 .9093 .1411 -.7568 -.9589/1 .5403 -.4161 -.9900 -.6536 .2837/"
        "0 .0464 .0927 .1388 .1846 .2300/1 .9989 .9957 .9903 .9828 .9732/"
        "0 .0022 .0043 .0065 .0086 .0108/1 1 1 1 1 .9999"
    )
    step = THRONES["Position"]
    close(of(step).values, by_feature.T)
    assert "9 of 36 cells contradict" in step.why
    assert "24 of 36 differ from the paper" in step.why
    assert int(step.wrong(of(step, "printed")).sum()) == 24


def test_values_are_no_copy_of_the_queries():
    right = rows(
        "3.6317 4.5824 4.2076 4.7639/2.2209 1.8324 2.1707 3.2463/3.1212 3.7655 3.4107 4.3295/"
        "1.0877 1.6544 1.3235 1.3832/1.7188 2.3357 1.8005 2.2113/2.6294 3.9769 2.9319 3.3616"
    )
    step = THRONES["Values"]
    close(of(step).values, right)
    assert step.why.startswith("0 of 24 cells are right")
    for name in ("Queries", "Keys", "Products"):
        step = THRONES[name]
        assert not step.wrong(of(step, "printed")).any(), name


def test_scores_are_divided_by_the_root_of_the_heads_width():
    step = THRONES["Scores"]
    product = (
        PRINTED["printed_input"] @ PRINTED["w_q"] @ (PRINTED["printed_input"] @ PRINTED["w_k"]).T
    )
    close(of(step).values, product / 2, 6)
    assert step.wrong(of(step, "printed")).all()
    assert "35 of 36" in step.why
    slip = next(table for table in step.tables if "√6" in table.name).values
    assert float((slip - PRINTED["printed_scores"]).abs().max()) < 0.01
    close(of(THRONES["Pattern"]).values[:1], rows(".9862 0 .0133 0 0 .0005"))


def test_mixtures_are_right_from_both_inputs():
    first = rows(
        "3.6244 4.5712 4.1963 4.7574/3.5808 4.5117 4.1314 4.7145/3.6194 4.5641 4.1888 4.7527/"
        "3.4338 4.3355 3.9260 4.5463/3.5362 4.4565 4.0673 4.6663/3.6062 4.5456 4.1690 4.7400"
    )
    show_all = rows(
        "3.6307 4.5306 4.1813 4.7719/3.6304 4.5214 4.1766 4.7731/3.6263 4.4565 4.1408 4.7778/"
        "3.5968 4.2846 4.0288 4.7562/3.6234 4.4217 4.1212 4.7793/3.6237 4.4260 4.1235 4.7788"
    )
    step = THRONES["Mixture"]
    close(of(step).values, first)
    close(step.tables[-1].values, show_all)
    assert "within 3e-04" in step.why
    assert "36 of 36" in THRONES["Projection"].why


def test_the_first_norm_took_the_geometric_mean():
    step = THRONES["Add and norm"]
    close(of(step).values[:1], rows("1.4456 1.0719 -.8697 -.1224 -1.4056 -.1197"))
    close(step.tables[-1].values[:1], rows("1.4437 1.0680 -.8744 -.1188 -1.4086 -.1098"))
    assert "0 of 36 cells follow, with the geometric mean 36:" in step.why
    assert "9.26, where the mean is 9.388" in step.why


def test_the_second_norm_took_two_rows_for_one():
    right = rows("1.1326/.9709/1.3179/1.1689/1.2902/1.2057")
    close(of(THRONES["Second deviation"]).values, right)
    assert "5e-07" in THRONES["Second deviation"].why
    step = THRONES["Second sum"]
    assert not step.wrong(of(step, "printed")).any()
    close(PRINTED["printed_sum_2"].mean(dim=1, keepdim=True), PRINTED["printed_mean_2"])
    step = THRONES["Second norm"]
    close(
        of(step).values[:2],
        rows("1.2508 1.2243 -.4709 -.2943 -1.6186 -.0912/1.6034 .8824 -.5596 -.6626 -1.3734 .1099"),
    )
    assert step.why.startswith("30 of 36 cells are wrong")


def test_what_is_printed_follows_from_what_is_printed_before():
    """Each slip as it was made gives the printed digits: another digit would not follow."""
    placed = PRINTED["embedding"] + PRINTED["printed_position"]
    assert equal_when_rounded(PRINTED["printed_input"], placed, 2).all()
    two_rows = torch.stack([PRINTED["printed_sum_2"][i : i + 2].std() for i in range(6)])[:, None]
    slipped = (PRINTED["printed_sum_2"] - PRINTED["printed_sum_2"].mean(dim=1, keepdim=True)) / (
        two_rows + 1e-4
    )
    assert equal_when_rounded(PRINTED["printed_norm_2"], slipped, 2).all()
    assert equal_when_rounded(
        PRINTED["printed_products"], PRINTED["printed_q"] @ PRINTED["printed_k"].T, 4
    ).all()
    assert equal_when_rounded(
        PRINTED["printed_sum_2"], PRINTED["printed_norm_1"] + PRINTED["printed_feedforward"], 2
    ).all()
    assert (
        float((PRINTED["printed_probs"] - PRINTED["printed_logits"].softmax(-1)).abs().max()) > 0.3
    )


def test_equal_scores_have_equal_probabilities():
    close(of(DECODER["Probabilities"]).values, rows(".0126 .0403 .0128 .8941 .0403"))
    assert len(thrones_network.VOCABULARY) == 25
    assert "There are 23 words if case is folded and 24 if not" in THRONES["Vocabulary"].why


@pytest.mark.parametrize(
    "name",
    [n for n, step in THRONES.items() if {"printed", "right"} <= {t.kind for t in step.tables}],
)
def test_a_changed_digit_is_seen(name):
    """What is printed is compared cell by cell: another digit would be another verdict."""
    step = THRONES[name]
    printed, right = of(step, "printed"), of(step)
    marked = step.wrong(printed)
    other = right.values + 2 * 10.0**-printed.decimals  # a digit that would be wrong everywhere
    assert step.wrong(replace(printed, values=other)).all()
    mended = torch.where(marked, right.values, printed.values)
    assert not step.wrong(replace(printed, values=mended)).any()


def test_it_learns():
    before, after = next(
        table for table in DECODER["One update"].tables if table.values.shape == (1, 2)
    ).values[0].tolist()  # fmt: skip
    assert after < before
    assert DECODER["After 300 updates"].text.endswith("you win or you die <end>")
    masked = DECODER["Masked attention"].tables
    pattern = next(table.values for table in masked if table.name == "pattern, ours")
    assert torch.equal(pattern.triu(1), torch.zeros(6, 6).double())


def test_three_words_are_masked_with_minus_infinity():
    steps = {step.title: step for step in load_steps(thrones_remarks)}
    right = rows("14 32 50/32 77 122/50 122 194")
    for head in (1, 2):
        close(of(steps[f"Head {head}: products"]).values, right)
        hidden = of(steps[f"Head {head}: mask"]).values
        assert torch.equal(hidden.isinf(), torch.ones(3, 3).triu(1).bool())
    assert "0.576 of itself and 0.212" in steps["Head 1: mask"].why
    close(of(steps["Pattern and mixture"]).values, torch.eye(3).double())
    undivided, divided, _ = steps["Why scores are divided"].tables
    assert undivided.values[0, 1] == pytest.approx(1 / (1 + math.exp(16)))
    assert divided.values[0, 1] == pytest.approx(1 / (1 + math.exp(2)))


# --- the other lessons ----------------------------------------------------------------------------


def test_counting_gives_the_tutorials_numbers():
    steps = {step.title: step for step in load_lesson("markov")}
    words = list(steps["Transition matrix"].tables[0].rows)
    my = steps["Look-up by product"].tables[1].values[0]
    probs = {word: float(my[words.index(word)]) for word in words}
    assert {k: round(v, 6) for k, v in probs.items() if v} == {
        "directories": 0.2, "files": 0.3, "photos": 0.5,
    }  # fmt: skip
    one, two = (table.values.tolist() for table in steps["Second order"].tables)
    assert one[0] == pytest.approx([0.4, 0.6])
    assert two == [[1, 0], [0, 1]]
    assert steps["Second order with skips"].tables[1].values.tolist() == [[4, 5]]
    assert steps["Mask"].tables[1].values.tolist() == [[0, 1]]
    assert steps["Pairs as features"].tables[1].values.tolist() == [[1, 0, -1]]
    assert steps["What follows"].tables[1].values.tolist() == [[1, 0]]


def test_attention_is_worked_out_from_what_is_given():
    steps = {step.title: step for step in load_lesson("attention")}
    table = lambda title: {t.name: t.values for t in steps[title].tables}
    films, people, scores = table("Why products: films and people").values()
    close(scores, people @ films.T, 9)
    found = table("Attention without parameters")
    close(found["X Xᵀ"], found["X"] @ found["X"].T, 9)
    close(found["pattern"], found["X Xᵀ"].softmax(-1), 9)
    close(found["Y"], found["pattern"] @ found["X"], 9)
    made = table("Queries, keys and values")
    for name in "qkv":
        close(made[name.upper()], found["X"] @ made[f"W_{name}"], 9)
    scaled = table("Scaling")
    close(scaled["undivided"], (made["Q"] @ made["K"].T).softmax(-1), 9)
    close(scaled["divided by √4"], (made["Q"] @ made["K"].T / 2).softmax(-1), 9)
    assert (table("Heads")["pattern of head 1"].sum(1) - 1).abs().max() < 1e-9


def test_gradients_are_those_of_the_loss():
    table = lambda title: {t.name: t.values for t in DECODER[title].tables}
    x = table("What the decoder says")["ours"]
    logits = x @ table("Scores for words")["W, ours"]
    answers = thrones_network.ids_of(thrones_decoder.TARGET[1:])
    asked = torch.tensor(sorted(set(answers.tolist())))
    off = (logits.softmax(-1) - torch.eye(25).double()[answers]) / 6
    close(table("Gradient")["by the scores of these words"], off[:, asked], 9)
    close(table("Gradient")["by the weights of these words"], (x.T @ off)[:, asked], 9)
    moved = table("One update")
    close(moved["and after"], moved["weights before"] - 0.5 * (x.T @ off)[:, asked], 9)
    close(table("Loss")["loss"], -logits.log_softmax(-1)[range(6), answers].mean()[None, None], 9)


def test_heads_cost_no_more_than_one():
    steps = {step.title: step for step in load_lesson("attention")}
    assert steps["How many parameters"].tables[0].values.tolist() == [[3 * 256**2, 256**2]] * 2
    assert steps["A set, not a sequence"].tables[0].values.item() < 1e-12
    measured, roots = steps["Scaling"].tables[2].values
    torch.testing.assert_close(measured, roots, rtol=0.03, atol=0)


def test_places_tell_two_sentences_apart():
    without, placed, adding = load_lesson("position")
    assert without.tables[-1].values.item() < 1e-12
    assert placed.tables[-1].values.item() > 0.1
    torch.testing.assert_close(adding.tables[-1].values, adding.tables[-2].values)


def test_layer_norm_needs_no_batch_and_batch_norm_does():
    layer, batch, learnt = load_lesson("norm")
    *_, show_all, alone = (table.values for table in layer.tables)
    torch.testing.assert_close(show_all[:1], alone)
    torch.testing.assert_close(show_all[0], show_all[1], atol=1e-4, rtol=0)
    *_, show_all, alone = (table.values for table in batch.tables)
    assert not torch.allclose(show_all[:2], alone, atol=0.1)
    scale, shift, moved, flat = (table.values for table in learnt.tables)
    torch.testing.assert_close(moved, layer.tables[3].values * scale + shift)
    assert flat.tolist() == [[0, 0, 0, 0]]


def test_what_is_ours_can_be_worked_out():
    """Every matrix of the decoder follows from the tables that stand before it."""
    named = lambda step: {table.name.removesuffix(", ours"): table.values for table in step.tables}
    x = named(DECODER["What the decoder reads"])["X"]
    masks = torch.full((6, 6), -torch.inf).triu(1).double()
    normed = lambda y: (
        (y - y.mean(1, keepdim=True)) / (y.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    )

    def attend(step, read, mask):
        w = named(DECODER[step])
        scores = (x @ w["W_q"]) @ (read @ w["W_k"]).T / 2 + mask
        close(scores.softmax(-1), w["pattern"], 9)
        added = scores.softmax(-1) @ (read @ w["W_v"]) @ w["W_o"]
        close(added, w["what it adds"], 9)
        close(normed(x + added), w["after the norm"], 9)
        return w["after the norm"]

    x = attend("Masked attention", x, masks)
    encoded = THRONES["Second norm"].tables[-1].values
    x = attend("Attention to the source", encoded, 0)
    w = named(DECODER["What the decoder says"])
    hidden = (x @ w["W₁"] + w["b₁"]).clamp(min=0)
    x = normed(x + hidden @ w["W₂"] + w["b₂"])
    close(x, w["ours"], 9)
    w = named(DECODER["Scores for words"])
    close(x @ w["W"], w["ours"], 9)


def test_a_softmax_before_the_loss_leaves_doubt():
    _, shares, loss, slope = (table.values for table in DECODER["Not twice"].tables)
    close(shares, rows(".175 .175 .175 .475"), 3)
    assert loss.item() == pytest.approx(-math.log(0.4754), abs=1e-3)
    assert slope.abs().min() > 0.1


def test_the_rule_for_the_width_asks_for_more_than_is_used():
    width = load_lesson("thrones")[-1].tables[0].values
    close(width, rows("26.1 11.3 6"), 1)


def test_a_query_need_not_meet_its_own_key_best():
    step = next(s for s in load_lesson("attention") if s.title == "Whom a word finds")
    own = step.tables[0].values.argmax(1) == torch.arange(5)
    assert 0 < int((~own).sum()) == len(step.text.split(" find")[0].split(","))


# --- in two languages and as formulas -------------------------------------------------------------


@pytest.mark.parametrize("name", LESSONS)
def test_a_walk_has_the_same_numbers_in_both_languages(name):
    english = load_lesson(name)
    token = language.set("zh")
    try:
        chinese = load_lesson(name)
    finally:
        language.reset(token)
    assert [s.title for s in english] != [s.title for s in chinese]
    for one, other in zip(english, chinese, strict=True):
        for mine, theirs in zip(one.tables, other.tables, strict=True):
            torch.testing.assert_close(mine.values, theirs.values, equal_nan=True)


def test_every_formula_has_braces_in_pairs():
    for name in LESSONS:
        for step in load_lesson(name):
            found = export.to_math(step.formula)
            assert found.count("{") == found.count("}")
            assert not set(found) & set(export.MATH) - {" ", "%", "&", "#", "，", "；"}, found
