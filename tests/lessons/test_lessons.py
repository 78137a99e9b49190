"""The worked examples against numbers that were computed independently of this code."""

import math
from dataclasses import replace

import pytest
import torch

from glassformer.core.errors import GlassError
from glassformer.core.i18n import language
from glassformer.inspection import export
from glassformer.inspection.sheet import equal_when_rounded
from glassformer.lessons import (
    LESSONS,
    load_lesson,
    ratings,
    thrones,
    thrones_decoder,
    thrones_input,
    thrones_network,
    thrones_remarks,
    thrones_text,
)
from glassformer.lessons.lesson import load_steps
from glassformer.lessons.printed import read_matrices

PRINTED = read_matrices("thrones") | read_matrices("thrones_decoder")
THRONES = {s.title: s for chapter in (thrones_input, thrones) for s in load_steps(chapter)}
DECODER = {step.title: step for step in load_steps(thrones_decoder)}


def matrix(text):
    return torch.tensor([[float(c) for c in row.split()] for row in text.split("/")]).double()


def find_table(step, kind="correct"):
    return next(table for table in step.tables if table.kind == kind)


def assert_close(actual, expected, decimals=4):
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=0.5001 * 10.0**-decimals)


# --- thrones: printed and correct matrices --------------------------------------------------------


def test_the_positional_encoding_is_that_of_the_paper():
    by_feature = matrix(
        "0 .8415 .9093 .1411 -.7568 -.9589/1 .5403 -.4161 -.9900 -.6536 .2837/"
        "0 .0464 .0927 .1388 .1846 .2300/1 .9989 .9957 .9903 .9828 .9732/"
        "0 .0022 .0043 .0065 .0086 .0108/1 1 1 1 1 .9999"
    )
    step = THRONES["Positional encoding"]
    assert_close(find_table(step).values, by_feature.T)
    assert "9 of 36 cells contradict" in step.note
    assert "24 of 36 differ from the paper" in step.note
    assert int(step.wrong_cells(find_table(step, "printed")).sum()) == 24


def test_the_printed_values_are_a_copy_of_the_queries():
    expected = matrix(
        "3.6317 4.5824 4.2076 4.7639/2.2209 1.8324 2.1707 3.2463/3.1212 3.7655 3.4107 4.3295/"
        "1.0877 1.6544 1.3235 1.3832/1.7188 2.3357 1.8005 2.2113/2.6294 3.9769 2.9319 3.3616"
    )
    step = THRONES["Values"]
    assert_close(find_table(step).values, expected)
    assert step.note.startswith("0 of 24 cells are correct")
    for name in ("Queries", "Keys", "Dot products"):
        step = THRONES[name]
        assert not step.wrong_cells(find_table(step, "printed")).any(), name


def test_scores_are_divided_by_the_square_root_of_the_head_size():
    step = THRONES["Attention scores"]
    product = (
        PRINTED["printed_input"] @ PRINTED["w_q"] @ (PRINTED["printed_input"] @ PRINTED["w_k"]).T
    )
    assert_close(find_table(step).values, product / 2, 6)
    assert step.wrong_cells(find_table(step, "printed")).all()
    assert "35 of 36" in step.note
    by_root_6 = next(table for table in step.tables if "√6" in table.name).values
    assert float((by_root_6 - PRINTED["printed_scores"]).abs().max()) < 0.01
    assert_close(
        find_table(THRONES["Attention weights"]).values[:1], matrix(".9862 0 .0133 0 0 .0005")
    )


def test_attention_outputs_are_correct_for_both_inputs():
    from_printed_input = matrix(
        "3.6244 4.5712 4.1963 4.7574/3.5808 4.5117 4.1314 4.7145/3.6194 4.5641 4.1888 4.7527/"
        "3.4338 4.3355 3.9260 4.5463/3.5362 4.4565 4.0673 4.6663/3.6062 4.5456 4.1690 4.7400"
    )
    from_correct_input = matrix(
        "3.6307 4.5306 4.1813 4.7719/3.6304 4.5214 4.1766 4.7731/3.6263 4.4565 4.1408 4.7778/"
        "3.5968 4.2846 4.0288 4.7562/3.6234 4.4217 4.1212 4.7793/3.6237 4.4260 4.1235 4.7788"
    )
    step = THRONES["Attention output"]
    assert_close(find_table(step).values, from_printed_input)
    assert_close(step.tables[-1].values, from_correct_input)
    assert "within 3e-04" in step.note
    assert "36 of 36" in THRONES["Output projection"].note


def test_the_first_printed_norm_uses_the_geometric_mean():
    step = THRONES["Residual connection and layer normalization"]
    assert_close(find_table(step).values[:1], matrix("1.4456 1.0719 -.8697 -.1224 -1.4056 -.1197"))
    assert_close(step.tables[-1].values[:1], matrix("1.4437 1.0680 -.8744 -.1188 -1.4086 -.1098"))
    assert "0 of 36 cells can be reproduced; with the geometric mean, 36:" in step.note
    assert "9.26, while the arithmetic mean is 9.388" in step.note


def test_the_second_printed_norm_uses_the_standard_deviation_of_two_rows():
    expected = matrix("1.1326/.9709/1.3179/1.1689/1.2902/1.2057")
    assert_close(find_table(THRONES["Second standard deviation"]).values, expected)
    assert "5e-07" in THRONES["Second standard deviation"].note
    step = THRONES["Second residual connection"]
    assert not step.wrong_cells(find_table(step, "printed")).any()
    assert_close(PRINTED["printed_sum_2"].mean(dim=1, keepdim=True), PRINTED["printed_mean_2"])
    step = THRONES["Second layer normalization"]
    assert_close(
        find_table(step).values[:2],
        matrix(
            "1.2508 1.2243 -.4709 -.2943 -1.6186 -.0912/1.6034 .8824 -.5596 -.6626 -1.3734 .1099"
        ),
    )
    assert step.note.startswith("30 of 36 cells are wrong")


def test_printed_numbers_follow_from_earlier_printed_numbers():
    """Repeating each mistake of the tutorial gives exactly the digits that it prints."""
    with_positions = PRINTED["embedding"] + PRINTED["printed_position"]
    assert equal_when_rounded(PRINTED["printed_input"], with_positions, 2).all()
    two_rows = torch.stack([PRINTED["printed_sum_2"][i : i + 2].std() for i in range(6)])[:, None]
    norm_2 = (PRINTED["printed_sum_2"] - PRINTED["printed_sum_2"].mean(dim=1, keepdim=True)) / (
        two_rows + 1e-4
    )
    assert equal_when_rounded(PRINTED["printed_norm_2"], norm_2, 2).all()
    assert equal_when_rounded(
        PRINTED["printed_products"], PRINTED["printed_q"] @ PRINTED["printed_k"].T, 4
    ).all()
    assert equal_when_rounded(
        PRINTED["printed_sum_2"], PRINTED["printed_norm_1"] + PRINTED["printed_feedforward"], 2
    ).all()
    assert (
        float((PRINTED["printed_probs"] - PRINTED["printed_logits"].softmax(-1)).abs().max()) > 0.3
    )


def test_equal_logits_have_equal_probabilities():
    assert_close(
        find_table(DECODER["Probabilities"]).values, matrix(".0126 .0403 .0128 .8941 .0403")
    )
    assert len(thrones_network.VOCABULARY) == 25
    assert "There are 23 words ignoring case, and 24 otherwise" in THRONES["Vocabulary"].note


def test_the_corpus_is_counted_and_numbered():
    corpus = THRONES["Corpus"].tables[0].values[0].tolist()
    assert corpus == [6, 12, 12, 30]
    listed = THRONES["The list N and its set"].text
    all_words, distinct = (part.split(".")[0].split(", ") for part in listed.split(": ")[1:])
    assert (len(all_words), len(distinct)) == (30, 23)
    assert sorted(set(map(str.lower, all_words))) == sorted(distinct)
    numbering = THRONES["Numbering"].tables[0]
    assert numbering.values[0].tolist() == list(range(1, 26))
    assert numbering.columns[4] == "when"
    step = THRONES["Input"]
    assert not step.wrong_cells(find_table(step, "printed")).any()


def test_positions_are_written_out_cell_by_cell():
    step = THRONES["Positions, cell by cell"]
    first, angles, printed, second = (table.values for table in step.tables)
    assert_close(first[:, 2:], matrix("0 .79/1 1.6/0 .96/1 1.64/0 .97/1 1.2"), 6)
    assert_close(second, matrix(".8415/.5403/.0464/.9989/.0022/1"))
    assert_close(angles[:, :1].sin(), printed)  # sines of the wrong angles, as the note says
    by_formula = torch.where(torch.arange(6)[:, None] % 2 == 0, angles.sin(), angles.cos())
    assert_close(by_formula[:, 1:], second, 6)
    marked = step.wrong_cells(find_table(step, "printed"))
    assert marked.flatten().tolist() == [False] + [True] * 5


def test_the_softmax_is_written_out_for_the_printed_and_the_correct_scores():
    values = [table.values for table in THRONES["Softmax, written out"].tables]
    scores, powers, total, weights = values[:4]
    assert scores[0, 0] == 23.82
    assert_close(powers / total, weights, 9)
    assert float(weights[0, 0]) == pytest.approx(
        1 / sum(math.exp(x - 23.82) for x in (23.82, 12.77, 20.3, 8.06, 11.51, 17.62))
    )
    scores, powers, total, weights = values[4:]
    assert_close(scores, PRINTED["printed_products"][:1] / 2, 9)
    assert_close(powers / total, weights, 9)
    assert_close(weights, matrix(".9862 0 .0133 0 0 .0005"))


def test_the_first_cell_of_the_first_norm_uses_the_wrong_mean():
    step = THRONES["Mean, standard deviation, and the first cell"]
    printed, correct, rows = step.tables
    assert step.wrong_cells(printed).tolist() == [[False, True, False, True]]
    total = THRONES["First residual connection"].tables[0].values
    assert_close(total, PRINTED["printed_input"] + PRINTED["printed_projection"], 9)
    mean, std = total.mean(1), total.std(1, correction=0)
    assert_close(rows.values[:, 0], mean, 9)
    assert_close(rows.values[:, 1], total.prod(1) ** (1 / 6), 9)
    assert_close(rows.values[:, 2], std)
    expected = matrix(f"11.63 {mean[0]} {std[0]} {(11.63 - mean[0]) / std[0]}")
    assert_close(correct.values, expected)
    assert printed.values[0, 3].item() == round((11.63 - 9.26) / (1.57 + 0.0001), 2)


def test_an_own_sentence_of_the_corpus_goes_through_the_encoder():
    values = thrones_text.compute_values("When you play game of thrones")
    corrected = THRONES["Second layer normalization"].tables[-1].values
    assert_close(values["encoded"], corrected, 9)
    assert_close(values["pattern"], THRONES["Attention weights"].tables[-1].values, 9)
    other = thrones_text.compute_values("He won't die, or I win.")
    assert other["words"] == ["He", "won't", "die", "or", "I", "win"]
    assert_close(other["input"], other["embedding"] + values["position"], 9)
    assert float(other["probs"].sum()) == pytest.approx(1)
    with pytest.raises(
        GlassError, match="'dragon' is not in the tutorial's vocabulary: use I, drink"
    ):
        thrones_text.compute_values("the dragon")


def test_a_flattened_output_needs_more_weights():
    step = DECODER["Not flattened"]
    assert step.wrong_cells(find_table(step, "printed")).all()
    assert find_table(step).values.tolist() == [[6, 6, 6, 25]]
    assert step.tables[-1].values.tolist() == [[36 * 23, 6 * 25]]


@pytest.mark.parametrize(
    "name",
    [n for n, step in THRONES.items() if {"printed", "correct"} <= {t.kind for t in step.tables}],
)
def test_a_changed_digit_is_marked_as_wrong(name):
    step = THRONES[name]
    printed, expected = find_table(step, "printed"), find_table(step)
    marked = step.wrong_cells(printed)
    other = expected.values + 2 * 10.0**-printed.decimals  # wrong in every cell
    assert step.wrong_cells(replace(printed, values=other)).all()
    fixed = torch.where(marked, expected.values, printed.values)
    assert not step.wrong_cells(replace(printed, values=fixed)).any()


def test_training_lowers_the_loss_and_generates_the_target():
    before, after = next(
        table for table in DECODER["One update"].tables if table.values.shape == (1, 2)
    ).values[0].tolist()  # fmt: skip
    assert after < before
    assert DECODER["After 300 updates"].text.endswith("you win or you die <end>")
    masked = DECODER["Masked self-attention"].tables
    pattern = next(table.values for table in masked if table.name == "attention weights, ours")
    assert torch.equal(pattern.triu(1), torch.zeros(6, 6).double())


def test_later_words_are_masked_with_minus_infinity():
    steps = {step.title: step for step in load_steps(thrones_remarks)}
    expected = matrix("14 32 50/32 77 122/50 122 194")
    for head in (1, 2):
        assert_close(find_table(steps[f"Head {head}: dot products"]).values, expected)
        hidden = find_table(steps[f"Head {head}: mask"]).values
        assert torch.equal(hidden.isinf(), torch.ones(3, 3).triu(1).bool())
    assert "weight 0.576 and to each later word with weight 0.212" in steps["Head 1: mask"].note
    assert_close(find_table(steps["Attention weights and output"]).values, torch.eye(3).double())
    *_, concatenated, w_o, combined = steps["Attention weights and output"].tables
    assert_close(combined.values, concatenated.values @ w_o.values, 9)


# --- the other lessons ----------------------------------------------------------------------------


def test_learned_features_predict_hidden_ratings_and_determine_the_features():
    values = ratings.compute_values()
    is_hidden = values["known"].isnan()
    assert torch.equal(is_hidden, ~values["hidden"].isnan())
    assert int(is_hidden.sum()) == values["n_hidden"] == 16
    errors = (values["predicted_hidden"] - values["ratings"])[is_hidden]
    rmse = float(errors.square().mean().sqrt())
    assert rmse == pytest.approx(float(values["errors"][0, 1]))
    assert rmse < 0.1 < 0.5 < float(values["errors"][1, 1])
    torch.testing.assert_close(values["recovered"], values["movies"], rtol=0, atol=0.1)
    assert not torch.allclose(values["learned_movies"], values["movies"], atol=0.5)
    torch.testing.assert_close(values["output"], values["pattern"] @ values["learned_movies"])


def test_counting_gives_the_numbers_of_the_tutorial():
    steps = {step.title: step for step in load_lesson("markov")}
    words = list(steps["Transition matrix"].tables[0].rows)
    my = steps["Lookup by matrix multiplication"].tables[1].values[0]
    probs = {word: float(my[words.index(word)]) for word in words}
    assert {k: round(v, 6) for k, v in probs.items() if v} == {
        "directories": 0.2, "files": 0.3, "photos": 0.5,
    }  # fmt: skip
    after_one, after_two = (table.values.tolist() for table in steps["Second order"].tables)
    assert after_one[0] == pytest.approx([0.4, 0.6])
    assert after_two == [[1, 0], [0, 1]]
    assert steps["Second order with skips"].tables[1].values.tolist() == [[4, 5]]
    assert steps["Mask"].tables[1].values.tolist() == [[0, 1]]
    assert steps["Pairs as features"].tables[1].values.tolist() == [[1, 0, -1]]
    assert steps["Next word"].tables[1].values.tolist() == [[1, 0]]


def test_attention_follows_from_the_given_matrices():
    steps = {step.title: step for step in load_lesson("attention")}
    tables = lambda title: {t.name: t.values for t in steps[title].tables}
    movies, viewers, scores = tables("Why dot products: movies and viewers").values()
    assert_close(scores, viewers @ movies.T, 9)
    plain = tables("Attention without parameters")
    assert_close(plain["X Xᵀ"], plain["X"] @ plain["X"].T, 9)
    assert_close(plain["attention weights"], plain["X Xᵀ"].softmax(-1), 9)
    assert_close(plain["Y"], plain["attention weights"] @ plain["X"], 9)
    projected = tables("Queries, keys and values")
    for name in "qkv":
        assert_close(projected[name.upper()], plain["X"] @ projected[f"W_{name}"], 9)
    scaling, products = tables("Scaling"), projected["Q"] @ projected["K"].T
    assert_close(scaling["unscaled"], products.softmax(-1), 9)
    assert_close(scaling["divided by √4"], (products / 2).softmax(-1), 9)
    head_1 = tables("Multi-head attention")["attention weights of head 1"]
    assert (head_1.sum(1) - 1).abs().max() < 1e-9


def test_gradients_match_the_formula():
    tables = lambda title: {t.name: t.values for t in DECODER[title].tables}
    x = tables("Decoder output")["ours"]
    logits = x @ tables("Logits")["W, ours"]
    targets = thrones_network.ids_of(thrones_decoder.TARGET[1:])
    columns = torch.tensor(sorted(set(targets.tolist())))
    error = (logits.softmax(-1) - torch.eye(25).double()[targets]) / 6
    assert_close(
        tables("Gradient")["with respect to the logits of these words"], error[:, columns], 9
    )
    weights = tables("Gradient")["with respect to the weights of these words"]
    assert_close(weights, (x.T @ error)[:, columns], 9)
    update = tables("One update")
    after = update["weights before"] - 0.5 * (x.T @ error)[:, columns]
    assert_close(update["weights after"], after, 9)
    loss = -logits.log_softmax(-1)[range(6), targets].mean()
    assert_close(tables("Loss")["loss"], loss[None, None], 9)


def test_several_heads_have_as_many_parameters_as_one():
    steps = {step.title: step for step in load_lesson("attention")}
    assert steps["Number of parameters"].tables[0].values.tolist() == [[3 * 256**2, 256**2]] * 2
    assert steps["A set, not a sequence"].tables[0].values.item() < 1e-12
    measured, roots = steps["Scaling"].tables[2].values
    torch.testing.assert_close(measured, roots, rtol=0.03, atol=0)
    lengths, divided = steps["Scaling"].tables[3].values
    torch.testing.assert_close(lengths, 0.5 * roots)
    assert divided.tolist() == [0.5] * 4


def test_outputs_of_two_sentences_differ_only_with_positional_encoding():
    without, with_positions, adding = load_lesson("position")
    assert without.tables[-1].values.item() < 1e-12
    assert with_positions.tables[-1].values.item() > 0.1
    torch.testing.assert_close(adding.tables[-1].values, adding.tables[-2].values)


def test_batch_norm_depends_on_the_batch_and_layer_norm_does_not():
    layer, batch, scaled = load_lesson("norm")
    *_, all_texts, first_text = (table.values for table in layer.tables)
    torch.testing.assert_close(all_texts[:1], first_text)
    torch.testing.assert_close(all_texts[0], all_texts[1], atol=1e-4, rtol=0)
    *_, all_texts, two_texts = (table.values for table in batch.tables)
    assert not torch.allclose(all_texts[:2], two_texts, atol=0.1)
    scale, shift, output, equal_numbers = (table.values for table in scaled.tables)
    torch.testing.assert_close(output, layer.tables[3].values * scale + shift)
    assert equal_numbers.tolist() == [[0, 0, 0, 0]]


def test_every_decoder_table_follows_from_earlier_tables():
    tables_by_name = lambda step: {
        table.name.removesuffix(", ours"): table.values for table in step.tables
    }
    x = tables_by_name(DECODER["Decoder input"])["X"]
    mask_matrix = torch.full((6, 6), -torch.inf).triu(1).double()
    layer_norm = lambda y: (
        (y - y.mean(1, keepdim=True)) / (y.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    )

    def attend(step, source, mask):
        w = tables_by_name(DECODER[step])
        scores = (x @ w["W_q"]) @ (source @ w["W_k"]).T / 2 + mask
        assert_close(scores.softmax(-1), w["attention weights"], 9)
        output = scores.softmax(-1) @ (source @ w["W_v"]) @ w["W_o"]
        assert_close(output, w["output"], 9)
        assert_close(layer_norm(x + output), w["after layer normalization"], 9)
        return w["after layer normalization"]

    x = attend("Masked self-attention", x, mask_matrix)
    encoded = THRONES["Second layer normalization"].tables[-1].values
    x = attend("Cross-attention", encoded, 0)
    w = tables_by_name(DECODER["Decoder output"])
    hidden = (x @ w["W₁"] + w["b₁"]).clamp(min=0)
    x = layer_norm(x + hidden @ w["W₂"] + w["b₂"])
    assert_close(x, w["ours"], 9)
    w = tables_by_name(DECODER["Logits"])
    assert_close(x @ w["W"], w["ours"], 9)


def test_the_embedding_is_smaller_than_the_rule_requires():
    sizes = load_lesson("thrones")[-1].tables[0].values
    assert_close(sizes, matrix("26.1 11.3 6"), 1)


def test_a_query_may_match_another_key_better_than_its_own():
    title = "Which key a query matches best"
    step = next(s for s in load_lesson("attention") if s.title == title)
    is_own = step.tables[0].values.argmax(1) == torch.arange(5)
    assert 0 < int((~is_own).sum()) == len(step.text.split(" match")[0].split(" and "))


# --- languages and formulas -----------------------------------------------------------------------


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_the_same_numbers_in_both_languages(name):
    english = load_lesson(name)
    token = language.set("zh")
    try:
        chinese = load_lesson(name)
    finally:
        language.reset(token)
    assert [s.title for s in english] != [s.title for s in chinese]
    for step, translated in zip(english, chinese, strict=True):
        for table, other in zip(step.tables, translated.tables, strict=True):
            torch.testing.assert_close(table.values, other.values, equal_nan=True)


def test_every_formula_has_balanced_braces():
    for name in LESSONS:
        for step in load_lesson(name):
            latex = export.to_math(step.formula)
            assert latex.count("{") == latex.count("}")
            assert not set(latex) & set(export.MATH) - {" ", "%", "&", "#", "，", "；"}, latex
