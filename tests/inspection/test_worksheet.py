"""The worksheet of any model shows the numbers of the model."""

import copy
import re

import pytest
import torch

from cases import CASES, TEXT_CASES, VOCAB
from glassformer import GlassError, Model, Trace
from glassformer.inspection.trace_view import TraceView
from glassformer.inspection.traced_text import find_head, trace_inputs, trace_text
from glassformer.inspection.worksheet import top_tokens, worksheet
from glassformer.predict import inputs_for
from glassformer.tasks.translate import BOS, EOS
from glassformer.text.plain import UNKNOWN, Characters
from glassformer.text.tokenizer import SEPARATOR

LETTERS = "abcdefghijklmnopqrstuvwxyz .,ABCDEFGHIJKLMNOPQ"
TOKENIZER = Characters.train([LETTERS], special_tokens=(UNKNOWN, BOS, EOS, SEPARATOR))
TEXT = "a cat sat"


def test_the_tokenizer_has_the_vocabulary_of_the_models():
    assert TOKENIZER.vocab == VOCAB


@pytest.mark.parametrize("case", TEXT_CASES.values(), ids=TEXT_CASES)
def test_the_worksheet_of_every_model_shows_its_traced_values(case):
    steps = worksheet(case.network, TOKENIZER, TEXT, layer=0, head=0)
    assert steps[0].title == "Tokens and ids"
    assert steps[-1].title == "Probabilities"
    inputs = inputs_for(case.network, TOKENIZER, TEXT)
    with torch.inference_mode(), Trace(case.network) as trace:
        output = case.network(**inputs)[0]
    last = output if output.ndim == 1 else output[-1]
    best = last.float().softmax(dim=-1).topk(min(8, len(last))).values
    torch.testing.assert_close(steps[-1].tables[0].values[0], best)
    shown = {table.name: table.values for step in steps[1:-1] for table in step.tables}
    assert shown
    for name, values in shown.items():
        part = trace[name].float()
        while part.ndim > 2:  # the first text, and of several heads the first
            part = part[0]
        torch.testing.assert_close(values.reshape(part.shape), part, equal_nan=True)


@pytest.mark.parametrize("name", ["gpt2", "translator", "bert", "llama"])
def test_a_worksheet_shows_every_step_of_attention(name):
    steps = worksheet(CASES[name].network, TOKENIZER, TEXT, layer=1, head=2)
    titles = {step.title.split(" (")[0].removesuffix(", source") for step in steps}
    assert titles >= {
        "Embedding", "Queries", "Keys", "Values", "Attention scores", "Attention weights",
        "Attention output", "Output projection", "Residual connection",
        "RMS normalization" if name == "llama" else "Layer normalization",
        "Feed-forward network, hidden layer", "Feed-forward network", "Logits",
    }  # fmt: skip
    names = [step.tables[0].name for step in steps[1:-1]]
    assert not [n for n in names if ".0." in n]
    assert [n for n in names if n.endswith(".0")]  # the input of the block
    if name == "translator":
        assert {"encoder.1.attention.pattern", "decoder.1.cross.pattern"} <= set(names)
        cross = next(s for s in steps if "decoder.1.cross.pattern" in s.title).tables[0]
        assert "".join(cross.columns) == TEXT
        assert cross.rows[0] == BOS


def test_formulas_match_the_modules():
    formulas = lambda name: {
        s.tables[0].name: s.formula for s in worksheet(CASES[name].network, TOKENIZER, TEXT)[1:-1]
    }
    llama, gpt2, bert = formulas("llama"), formulas("gpt2"), formulas("bert by distance")
    assert llama["blocks.0.attention.q"] == "Q = X W_q"
    assert gpt2["blocks.0.attention.q"] == "Q = X W_q + b"
    assert llama["blocks.0.attention.scores"] == "Q Kᵀ / √8 of rotated Q and K, −∞ where masked"
    assert bert["body.blocks.0.attention.scores"] == "Q Kᵀ / √8 + distance bias, −∞ where masked"
    assert llama["norm"] == "x / RMS × scale"
    assert gpt2["norm"] == "(x − mean) / std × scale + shift"
    assert llama["blocks.0.feedforward.hidden"] == "SiLU(X W_g) × (X W₁)"
    assert gpt2["blocks.0.feedforward"] == "hidden W₂ + b₂"
    added = (gpt2["blocks.0.feedforward_residual"], bert["body.blocks.0.feedforward_residual"])
    assert added == ("x + feedforward(norm(x))", "x + feedforward(x)")
    added = [s.formula for s in worksheet(CASES["translator"].network, TOKENIZER, TEXT)
             if re.fullmatch(r"decoder\.0\.\w+_residual", s.tables[0].name)]  # fmt: skip
    assert added == ["x + attention(x)", "x + cross(x)", "x + feedforward(x)"]
    assert (gpt2["embedded"], bert["body.embedded"]) == ("E[id] + P", "E[id] + S")
    assert formulas("bert")["body.embedded"] == "E[id] + S + P"
    translator = formulas("translator")
    assert translator["embedded"] == "√d × E[id] + P"
    assert translator["decoder.0.cross.q"] == "Q = X W_q + b"
    assert translator["decoder.0.cross.k"] == "K = S W_k + b"
    assert (gpt2["output"], formulas("classifier")["output"]) == ("X Eᵀ", "X W + b")
    assert translator["position"].startswith("P[p, 2i] = sin(p / 10000^(2i/d)),  P[p, 2i+1] = cos")
    assert formulas("bert_classifier")["pooler"] == "tanh(X[0] W + b)"
    assert gpt2["blocks.0.attention"] == "concat(heads) W_o + b"
    assert formulas("decoder: plain, learned")["blocks.0.attention"] == "pattern X"
    assert formulas("decoder: unscaled, sinusoidal")["embedded"].endswith(" × P")
    halved = copy.deepcopy(CASES["gpt2"].network).bfloat16()
    again = {s.tables[0].name: s.formula for s in worksheet(halved, TOKENIZER, TEXT)[1:-1]}
    assert again == gpt2
    assert formulas("bert")["output"] == "norm(GELU(X W + b)) Eᵀ + bias"
    additive = formulas("recurrent_translator: additive")
    assert additive["cross.scores"] == "vᵀ tanh(q + k), −∞ where masked"


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "translator", "classifier", "generator"])
def test_every_linear_step_follows_from_its_weights_and_an_earlier_table(name):
    steps = worksheet(CASES[name].network, TOKENIZER, TEXT, head=1, weights=True)
    above, checked = [], set()
    for step in steps:
        *weights, table = step.tables
        by_name = {w.name: w.values for w in weights}
        matrix = next((w for n, w in by_name.items() if n[:1] == "W" and n != "W_g"), None)
        leaf = table.name.rsplit(".", 1)[-1]
        linear = re.match(r"([QKV] = )?[XS] W|hidden W|X Eᵀ", step.formula)
        matrix = by_name.get("Eᵀ", matrix)
        if matrix is not None and linear:
            shift = next((w for n, w in by_name.items() if n.startswith("b")), torch.zeros(1))
            tries = [x @ matrix + shift for x in above if x.shape[1] == len(matrix)]
            assert any(t.shape == table.values.shape and torch.allclose(t, table.values, atol=1e-4)
                       for t in tries), step.title  # fmt: skip
            checked.add(leaf)
        above += [t.values.float() for t in step.tables]
    assert checked >= {"q", "k", "v", "feedforward"}
    assert ("output" in checked) == (name != "bert")


def test_omitted_blocks_show_the_input_and_the_last_output():
    steps = worksheet(CASES["gpt2"].network, TOKENIZER, TEXT, layer=1)
    before = next(s for s in steps if s.tables[0].name == "blocks.0")
    assert before.text == "Blocks before block 1 are omitted; this is its input."
    steps = worksheet(CASES["gpt2"].network, TOKENIZER, TEXT, layer=0)
    after = next(s for s in steps if s.tables[0].name == "blocks.1")
    assert after.text == "Blocks after block 0 are omitted; this is the output of the last one."


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpt2", "The most likely tokens after the last token."),
        ("classifier", "The most likely classes."),
        ("gpt2_classifier", "The most likely classes."),
        ("bert", "The most likely tokens at the last position; write [MASK] to predict a token."),
    ],
)
def test_the_last_step_describes_the_prediction(name, text):
    assert worksheet(CASES[name].network, TOKENIZER, TEXT)[-1].text == text


def test_inspection_uses_eval_mode_and_the_inputs_of_the_task():
    """There is no dropout, and the ids are those of the task."""
    network = copy.deepcopy(CASES["gpt2"].network).train()
    assert not Model(network, TOKENIZER).network.training
    special_tokens = (UNKNOWN, BOS, EOS, "[CLS]", "[SEP]")
    tokenizer = Characters.train(
        [LETTERS[: VOCAB - len(special_tokens)]], special_tokens=special_tokens
    )
    for name in ("gpt2", "translator"):
        inputs = inputs_for(CASES[name].network, tokenizer, "a cat", "a")
        assert inputs["source" if name == "translator" else "ids"][0].tolist() == tokenizer.encode(
            "a cat"
        )
    ids = inputs_for(CASES["bert_classifier"].network, tokenizer, "a cat")["ids"][0].tolist()
    assert ids[0] == tokenizer.special_tokens["[CLS]"]


def test_a_worksheet_traces_only_the_values_that_it_shows(recwarn):
    network = CASES["gpt2"].network
    names = [t.name for s in worksheet(network, TOKENIZER, TEXT)[1:-1] for t in s.tables]
    assert "blocks.1" in names
    assert not [n for n in names if n.startswith("blocks.1.")]
    traced = trace_inputs(network, TOKENIZER, inputs_for(network, TOKENIZER, TEXT), "blocks.1")
    assert list(traced.trace) == ["blocks.1"]
    assert not recwarn.list


def test_unknown_tokens_are_counted():
    text = lambda text: worksheet(CASES["gpt2"].network, TOKENIZER, text)[0].text
    assert "2 of the tokens are not in the vocabulary" in text("a 😀 cat 你")
    assert "1 of the tokens is not in the vocabulary" in text("a 😀 cat")
    assert "vocabulary" not in text("a cat")


def test_traced_values_can_be_used_in_computations():
    model = Model(CASES["gpt2"].network, TOKENIZER)
    seen = model.trace(TEXT)
    layer = model.network.blocks[0].feedforward.down
    again = seen["blocks.0.feedforward.hidden"] @ layer.weight.T + layer.bias
    torch.testing.assert_close(again, seen["blocks.0.feedforward"])
    again.sum().backward()
    model.network.zero_grad()
    with pytest.raises(GlassError, match=r"no value matches '\*\.hiden'; did you mean 'hidden'"):
        model.trace(TEXT, "*.hiden")


def test_columns_of_the_logits_are_tokens():
    steps = worksheet(CASES["gpt2"].network, TOKENIZER, TEXT)
    table = steps[-2].tables[0]
    assert table.name == "output"
    assert list(table.columns) == [TOKENIZER.token(i) for i in range(VOCAB)]


def test_attention_can_be_computed_from_the_tables_above():
    steps = worksheet(CASES["gpt2"].network, TOKENIZER, TEXT)
    of = lambda leaf: next(
        t.values for s in steps for t in s.tables if t.name == f"blocks.0.attention.{leaf}"
    )
    hidden = of("scores").isinf()
    scores = (of("q") @ of("k").T / of("q").shape[1] ** 0.5).masked_fill(hidden, -float("inf"))
    torch.testing.assert_close(scores, of("scores"))
    torch.testing.assert_close(scores.softmax(-1), of("pattern"))
    torch.testing.assert_close(of("pattern") @ of("v"), of("head_outputs"))
    kinds = {t.name.split(".")[-1]: t.kind for s in steps for t in s.tables}
    assert kinds["token"] == kinds["q"] == "given"
    assert kinds["scores"] == kinds["head_outputs"] == "computed"


def test_a_masked_model_predicts_at_the_mask():
    special_tokens = (UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
    tokenizer = Characters.train(
        [LETTERS[: VOCAB - len(special_tokens)]], special_tokens=special_tokens
    )
    steps = worksheet(CASES["bert"].network, tokenizer, "a [MASK]at")
    tokens = list(steps[0].tables[0].columns)
    assert tokens == ["[CLS]", "a", " ", "[MASK]", "a", "t", "[SEP]"]
    output = CASES["bert"].network(torch.tensor([steps[0].tables[0].values[0].long().tolist()]))
    best = output[0, 3].softmax(-1).topk(8).values.detach()
    torch.testing.assert_close(steps[-1].tables[0].values[0], best)
    assert steps[-1].text == "The most likely tokens at [MASK]."


def test_a_worksheet_takes_a_translation():
    steps = worksheet(CASES["translator"].network, TOKENIZER, TEXT, target="bad")
    source, ids = steps[0].tables
    assert list(ids.columns) == [BOS, *"bad"]
    assert list(source.columns) == list(TEXT)


def test_patterns_and_next_tokens_are_those_of_the_model():
    network = CASES["gpt2"].network
    traced = trace_text(network, TOKENIZER, TEXT)
    head = find_head(traced, 1, 2)
    pattern = head.pattern
    assert head.rows == head.columns == list(TEXT)
    assert torch.equal(find_head(traced, "blocks.1.attention", 2).pattern, pattern)
    crossed = trace_text(CASES["translator"].network, TOKENIZER, TEXT, target="bad")
    head = find_head(crossed, "decoder.1.cross", 0)
    assert (head.rows, head.columns) == ([BOS, *"bad"], list(TEXT))
    assert head.pattern.shape == (4, len(TEXT))
    torch.testing.assert_close(pattern.sum(-1), torch.ones(len(TEXT)))
    assert not pattern.triu(1).any()
    best = network(torch.tensor([traced.ids]))[0, -1].softmax(-1).topk(3)
    top = top_tokens(traced, TOKENIZER, 3)
    assert [p for _, p in top] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert [t for t, _ in top] == [TOKENIZER.token(i) for i in best.indices.tolist()]


def test_an_unknown_block_or_head_or_text_is_rejected():
    network = CASES["gpt2"].network
    for options, message in (
        ({"layer": 7}, "there is no block 7; the last is 1"),
        ({"head": 9}, "there is no head 9; the last is 3"),
    ):
        with pytest.raises(GlassError, match=message):
            worksheet(network, TOKENIZER, TEXT, **options)
    with pytest.raises(GlassError, match="33 tokens do not fit in a context of 32"):
        worksheet(network, TOKENIZER, "a" * 33)
    with pytest.raises(GlassError, match="the text is empty"):
        worksheet(network, TOKENIZER, "")


@pytest.mark.parametrize("name", ["summarizer", "gpt2"])
def test_attention_with_a_single_head_is_shown_beside_any_other_head(name):
    network = CASES[name].network
    steps = worksheet(network, TOKENIZER, TEXT, head=1)
    shown = {table.name: table.values for step in steps for table in step.tables}
    with torch.inference_mode(), Trace(network, "*.pattern") as trace:
        network(**inputs_for(network, TOKENIZER, TEXT))
    patterns = {n: v for n, v in trace.items() if n in shown}
    assert patterns
    for path, value in patterns.items():
        torch.testing.assert_close(shown[path], value[0, min(1, value.shape[1] - 1)])


# --- displaying a trace ---------------------------------------------------------------------------


def test_a_trace_is_displayed_as_text_and_as_html():
    seen = TraceView(trace_text(CASES["gpt2"].network, TOKENIZER, TEXT))
    assert seen["blocks.1.attention.pattern"].shape == (1, 4, len(TEXT), len(TEXT))
    lines = repr(seen).splitlines()
    assert lines[0] == "a | · | c | a | t | · | s | a | t"
    assert len(lines) == len(seen) + 1
    pattern = next(line for line in lines if line.startswith("blocks.0.attention.pattern"))
    assert "1 × 4 × 9 × 9   mean 0.111, min 0, max 1" in pattern
    page = seen._repr_html_()
    assert page.count("<tr>") == len(seen)
    assert page.count("<img") == len(seen) + 3 * sum(v.ndim == 4 for v in seen.values())
    assert page.count("<details") == page.count("</details>")
    assert "<summary>blocks</summary>" in page
    with pytest.raises(KeyError, match="did you mean"):
        seen["blocks.0.attention.patern"]


@pytest.mark.parametrize("case", TEXT_CASES.values(), ids=TEXT_CASES)
def test_the_trace_of_every_model_can_be_displayed(case):
    seen = TraceView(trace_text(case.network, TOKENIZER, TEXT))
    page = seen._repr_html_()
    assert page.count("<tr>") == len(seen)
    assert page.count("<img") >= len(seen)
    assert "mean nan" not in page
