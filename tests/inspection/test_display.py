"""Results are displayed in a terminal, in a notebook and as HTML."""

import re

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot

from cases import CASES, TEXT_CASES
from glassformer import Model
from glassformer.core.figures import animate, subplots
from glassformer.core.i18n import show_whitespace
from glassformer.inspection import export, terminal
from glassformer.inspection.alignment import Alignment
from glassformer.inspection.sheet import BLANK, Step, Table, blank_out
from glassformer.inspection.why import RecordedPass
from glassformer.inspection.worksheet import worksheet
from glassformer.predict import inputs_for
from inspection.test_worksheet import TEXT, TOKENIZER

MODEL = Model(CASES["gpt2"].network, TOKENIZER)
PATTERN = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
RESULTS = {
    "walk": lambda: MODEL.walk(TEXT),
    "why": lambda: MODEL.why(TEXT, "output[0,-1,5]"),
    "heads": lambda: MODEL.heads(TEXT),
    "patch": lambda: MODEL.patch("a cat", "a cab"),
    "alignment": lambda: Alignment(["ein", " Haus"], ["a", " house"], PATTERN),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_displayed_as_text_and_as_html(name):
    result = RESULTS[name]()
    steps, text, page = result.steps(), repr(result), result._repr_html_()
    assert steps
    for step in steps:
        assert step.title.split(" (")[0] in text
    assert "tensor(" not in text
    assert page.count("<table>") == sum(len(step.tables) for step in steps)
    assert page.count("<details>") == page.count("</details>") == (len(steps) > 1) * len(steps)
    assert max(map(len, text.splitlines())) <= 400


def test_weights_are_shaded_but_blanks_are_not():
    step = Step(
        "s", tables=(Table("t", PATTERN, ["a", "b"], ["a", "b"], "computed", 2, shaded=True),)
    )
    (tint,) = set(re.findall(r"/ (0\.\d+)\)\">0.75<", export.html_fragment([step])))
    assert float(tint) == pytest.approx(0.6 * 0.75)
    (hidden,) = blank_out([step], fraction=1.0)
    page = export.html_fragment([hidden])
    assert page.count(BLANK) == 4
    assert "<td style" not in page
    assert hidden.tables[0].shades() == [[0, 0], [0, 0]]


def test_nan_is_a_dash_only_if_the_table_allows_it():
    broken = torch.tensor([[float("nan"), 1.0]])
    assert Table("t", broken).cells() == [["nan", "1"]]
    assert Table("t", broken, dash_for_nan=True).cells() == [["–", "1"]]


@pytest.mark.parametrize(
    ("token", "seen"),
    [(" the", "·the"), ("a b", "a b"), (" ", "·"), ("\n", "⏎"), ("a\t", "a⇥"), ("", "")],
)
def test_the_whitespace_of_a_token_is_visible(token, seen):
    assert show_whitespace(token) == seen
    table = Table("t", torch.ones(1, 1), [token], [token])
    assert f"<th>{seen}</th>" in export.html_fragment([Step("s", tables=(table,))])


def test_a_table_fits_into_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    named = Table("named", torch.ones(2, 20), ["a", "b"], [f"column {i}" for i in range(20)])
    bare, one_more = Table("bare", torch.ones(40, 50)), Table("one more", torch.ones(33, 2))
    lines = terminal.render_text([Step("s", tables=(named, bare))]).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(f"column {i}" in " ".join(lines) for i in range(20))
    assert lines[-1].strip().startswith("… 8 more rows, ")
    assert "… 1 more row" in terminal.render_text([Step("s", tables=(one_more,))]).splitlines()[-1]
    table = Table(
        "all", torch.ones(40, 2), [f"row {i}" for i in range(40)], ["a", "b"], show_all=True
    )
    assert "row 39" in terminal.render_text([Step("s", tables=(table,))])


def test_plots_do_not_change_the_state_of_matplotlib():
    """Neither the backend nor the settings nor open figures change; a dollar sign is text."""
    backend, settings = mpl.get_backend(), dict(mpl.rcParams)
    other_figure = pyplot.figure()
    chart, axes = subplots(figsize=(2, 2))
    axes.set_title("costs $5 to $x_$")
    assert chart._repr_png_().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == [other_figure.number]
    assert (mpl.get_backend(), dict(mpl.rcParams)) == (backend, settings)
    pyplot.close(other_figure)


def test_an_animation_is_displayed_in_a_notebook():
    chart, axes = subplots(figsize=(1, 1))
    shown = animate(chart, lambda step: axes.set_title(str(step)), 2)._repr_html_()
    assert shown.startswith('<img alt="" src="data:image/gif;base64,R0lGOD')


@pytest.mark.parametrize("case", TEXT_CASES.values(), ids=TEXT_CASES)
def test_every_formula_of_every_model_is_valid_latex(case):
    inputs = inputs_for(case.network, TOKENIZER, TEXT)
    recorded = RecordedPass(case.network, inputs, TOKENIZER)
    last = ",".join(["0", *["-1"] * (recorded.trace["output"].ndim - 1)])
    steps = [
        *worksheet(case.network, TOKENIZER, TEXT),
        *recorded.explain_named(f"output[{last}]").steps(),
    ]
    for step in steps:
        latex = export.to_math(step.formula)
        assert latex.count("{") == latex.count("}")
        assert not re.search(r"\\sqrt(?! ?\{)|[_^]{2}|[_^]$|√", latex), latex
        assert latex.isascii(), latex


def test_control_characters_in_tokens_are_escaped():
    for token in ("\x1b[31m", "\x07", "\u202e", "\x00", "\r"):
        step = Step("s", tables=(Table("t", torch.ones(1, 1), [token], [token]),))
        for text in (
            terminal.render_text([step]),
            export.html_fragment([step]),
            export.latex([[step]], "t"),
        ):
            assert token[0] not in text
            assert f"{ord(token[0]):x}" in text
    assert export.escape_cell("\t=1+1").startswith("'")
    assert "fontspec" in export.latex([[Step("Привет")]], "t")
