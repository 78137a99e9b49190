"""What is asked of a model shows itself: in a terminal, in a notebook, on a page."""

import re

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot

from cases import CASES
from glassformer import Model
from glassformer.core.figures import moving, subplots
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
ANSWERS = {
    "walk": lambda: MODEL.walk(TEXT),
    "why": lambda: MODEL.why(TEXT, "output[0,-1,5]"),
    "heads": lambda: MODEL.heads(TEXT),
    "patch": lambda: MODEL.patch("a cat", "a cab"),
    "alignment": lambda: Alignment(["ein", " Haus"], ["a", " house"], PATTERN),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_shows_itself_as_text_and_as_a_page(name):
    answer = ANSWERS[name]()
    steps, text, page = answer.steps(), repr(answer), answer._repr_html_()
    assert steps
    for step in steps:
        assert step.title.split(" (")[0] in text
    assert "tensor(" not in text
    assert page.count("<table>") == sum(len(step.tables) for step in steps)
    assert page.count("<details>") == page.count("</details>") == (len(steps) > 1) * len(steps)
    assert max(map(len, text.splitlines())) <= 400


def test_shares_stand_on_a_colour_but_what_is_left_out_does_not():
    step = Step("s", tables=(Table("t", PATTERN, ["a", "b"], ["a", "b"], "made", 2, shaded=True),))
    (tint,) = set(re.findall(r"/ (0\.\d+)\)\">0.75<", export.folded([step])))
    assert float(tint) == pytest.approx(0.6 * 0.75)
    (hidden,) = blank_out([step], share=1.0)
    page = export.folded([hidden])
    assert page.count(BLANK) == 4
    assert "<td style" not in page
    assert hidden.tables[0].shades() == [[0, 0], [0, 0]]


def test_no_number_is_a_dash_only_where_that_is_meant():
    broken = torch.tensor([[float("nan"), 1.0]])
    assert Table("t", broken).cells() == [["nan", "1"]]
    assert Table("t", broken, gaps=True).cells() == [["–", "1"]]


@pytest.mark.parametrize(
    ("token", "seen"),
    [(" the", "·the"), ("a b", "a b"), (" ", "·"), ("\n", "⏎"), ("a\t", "a⇥"), ("", "")],
)
def test_one_sees_the_space_of_a_token(token, seen):
    assert show_whitespace(token) == seen
    table = Table("t", torch.ones(1, 1), [token], [token])
    assert f"<th>{seen}</th>" in export.folded([Step("s", tables=(table,))])


def test_a_sheet_is_cut_to_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    named = Table("named", torch.ones(2, 20), ["a", "b"], [f"column {i}" for i in range(20)])
    bare = Table("bare", torch.ones(40, 50))
    lines = terminal.text([Step("s", tables=(named, bare))]).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(f"column {i}" in " ".join(lines) for i in range(20))
    assert lines[-1].strip().startswith("… 8 more rows, ")
    whole = Table(
        "whole", torch.ones(40, 2), [f"row {i}" for i in range(40)], ["a", "b"], whole=True
    )
    assert "row 39" in terminal.text([Step("s", tables=(whole,))])


def test_pictures_leave_those_of_others_alone():
    """No backend, no setting and no open figure is changed; a dollar begins no formula."""
    backend, settings = mpl.get_backend(), dict(mpl.rcParams)
    theirs = pyplot.figure()
    chart, axes = subplots(figsize=(2, 2))
    axes.set_title("costs $5 to $x_$")
    assert chart._repr_png_().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == [theirs.number]
    assert (mpl.get_backend(), dict(mpl.rcParams)) == (backend, settings)
    pyplot.close(theirs)


def test_what_moves_moves_in_a_notebook():
    chart, axes = subplots(figsize=(1, 1))
    shown = moving(chart, lambda step: axes.set_title(str(step)), 2)._repr_html_()
    assert shown.startswith('<img alt="" src="data:image/gif;base64,R0lGOD')


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_formula_of_every_model_is_good_latex(case):
    inputs = inputs_for(case.network, TOKENIZER, TEXT)
    run = RecordedPass(case.network, inputs, TOKENIZER)
    last = ",".join(["0", *["-1"] * (run.trace["output"].ndim - 1)])
    steps = [*worksheet(case.network, TOKENIZER, TEXT), *run.at(f"output[{last}]").steps()]
    for step in steps:
        found = export.mathematics(step.formula)
        assert found.count("{") == found.count("}")
        assert not re.search(r"\\sqrt(?! ?\{)|[_^]{2}|[_^]$|√", found), found
        assert found.isascii(), found


def test_no_token_gives_orders_to_a_terminal_or_a_page():
    for token in ("\x1b[31m", "\x07", "\u202e", "\x00", "\r"):
        step = Step("s", tables=(Table("t", torch.ones(1, 1), [token], [token]),))
        for text in (terminal.text([step]), export.folded([step]), export.latex([[step]], "t")):
            assert token[0] not in text
            assert f"{ord(token[0]):x}" in text
    assert export.plain("\t=1+1").startswith("'")
    assert "fontspec" in export.latex([[Step("Привет")]], "t")
